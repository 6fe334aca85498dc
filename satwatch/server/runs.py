"""Which runs are open, under which rule, and which batches have been counted.

Pure but for its log: values and a clock's reading in, values or refusals out; no socket, thread or file. One thread
writes; what a probe asks for, :meth:`RunRegistry.facts`, any thread may.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from satwatch.errors import (
    ConfigError,
    InvalidBatchError,
    OverloadedError,
    UnknownRunError,
    VersionOrderError,
    required,
)
from satwatch.server.facts import with_canary, with_published
from satwatch.server.ranks import Rank
from satwatch.server.retries import RETRY_KEYS, Retries
from satwatch.server.stats import RunStats
from satwatch.types import RULE_FIELDS, BoundsRequest, CanaryScores, Rule, RunInfo, RunOpening, TrainerFacts

logger = logging.getLogger(__name__)

# A run idle for less is waited for, not forgotten: a checkpoint or an evaluation takes minutes.
IDLE_SECONDS: Final = 3600.0
# Ended incarnations that a run remembers: a process that outlived its run must not take it back.
ENDED_INCARNATIONS: Final = 64
# An incarnation that was heard of so short a time ago may well be alive.
ALIVE_SECONDS: Final = 60.0
# The run of `satwatch check`: no engine generates for it.
CHECK_RUN: Final = "satwatch-check"

_SHARED_RANK: Final = (
    "Run %r: rank %d sent two different batches as step %d, microbatch %d; such batches are not counted. "
    "Do several ranks share rank %d?"
)
_WHICH_RUN: Final = (
    "The engines could be those of %s, so their versions are compared with none. Name one: run in [probe], or --run."
)

Change: TypeAlias = Literal["none", "new", "replaced"]


@dataclass(slots=True)
class Run:
    """An open run.

    Attributes:
        name: the run's name.
        incarnation: its life; empty if the trainer names none.
        rule: the rule it was opened with.
        world_size: the largest that a rank announced, of this incarnation and since its trainer last started again.
        window: grows when steps start over; a batch of an older window is late.
        touched: the clock at its last message.
        batches: batches counted, over all incarnations.
        duplicate_batches: retries, answered and not counted.
        tokens: active tokens counted.
        scope_fallbacks: batches whose q is the microbatch's where the rule asks for more.
        client_fallbacks: batches that clients answered without the sidecar, summed over their restarts.
        published_version: the last one published in this incarnation.
        version_may_fall: the run was opened again without an incarnation since then.
        policy_version: the last one seen in a batch.
        facts: what a probe needs of this incarnation; replaced as a whole, and so safe to read from any thread.
        ended: the incarnations that others have replaced, the latest of them.
        speaking: the ranks heard of in this life that have not closed it.
        has_ended: all ranks heard of have closed this life, and none has been heard of since.
        has_warned: a retry with another content has been logged.
        ranks: what is kept of each rank.
        stats: what the ledger keeps of the batches; another thread writes it.
    """

    name: str
    incarnation: str
    rule: Rule
    world_size: int
    window: int = 0
    touched: float = 0.0
    batches: int = 0
    duplicate_batches: int = 0
    tokens: int = 0
    scope_fallbacks: int = 0
    client_fallbacks: int = 0
    published_version: int | None = None
    version_may_fall: bool = False
    policy_version: int | None = None
    facts: TrainerFacts = field(init=False)
    ended: deque[str] = field(default_factory=lambda: deque(maxlen=ENDED_INCARNATIONS))
    speaking: set[int] = field(default_factory=set)
    has_ended: bool = False
    has_warned: bool = False
    ranks: dict[int, Rank] = field(default_factory=dict)
    stats: RunStats = field(default_factory=RunStats)

    def __post_init__(self) -> None:
        self.facts = TrainerFacts(self.name)

    @property
    def applied_rule(self) -> Rule:
        """The rule as this version applies it: q is always the microbatch's."""
        return self.rule if self.rule.scope == "microbatch" else replace(self.rule, scope="microbatch")

    def check_rank(self, rank: int) -> None:
        """Refuse a rank that the run does not have.

        Raises:
            InvalidBatchError: a rank outside the run's world.
        """
        if rank >= self.world_size:
            raise InvalidBatchError(
                required("rank", rank, f"0 to {self.world_size - 1} (world_size {self.world_size})")
            )

    def rank(self, number: int) -> Rank:
        """Return what is kept of a rank."""
        return self.ranks.setdefault(number, Rank(self.window, life=self.window))

    def begin_life(self) -> None:
        """Start another life, of which nobody has been heard yet."""
        self.window += 1
        self.speaking.clear()
        self.has_ended = False

    def info(self) -> RunInfo:
        """Return what is told of the run."""
        return RunInfo(
            run=self.name,
            incarnation=self.incarnation,
            rule=self.rule,
            world_size=self.world_size,
            batches=self.batches,
            tokens=self.tokens,
            published_version=self.published_version,
            policy_version=self.policy_version,
        )


class RunRegistry:
    """The open runs of a sidecar, at most ``max_runs``."""

    def __init__(self, max_runs: int, clock: Callable[[], float], retry_keys: int = RETRY_KEYS) -> None:
        """Make an empty registry; the clock counts seconds from anywhere, upwards."""
        self._max_runs = max_runs
        self._clock = clock
        self._runs: dict[str, Run] = {}
        self._retries = Retries(retry_keys)
        self._said_which: tuple[str, ...] = ()
        # Above those of all runs that have made room: what is remembered of them elsewhere is of other lives.
        self._first_window = 0

    def __len__(self) -> int:
        return len(self._runs)

    def runs(self) -> list[Run]:
        """Return the open runs in the order of their opening; safe from any thread (the copy is one operation)."""
        return list(self._runs.values())

    def open(self, opening: RunOpening) -> tuple[Run, Change]:
        """Open a run, or open it again.

        The same incarnation and rule change nothing. A new incarnation, or no incarnation and another rule, replaces
        rule and versions; counters go on.

        Raises:
            ConfigError: another rule in the same incarnation, or an incarnation that has ended.
            OverloadedError: too many runs, and none that has ended or is idle long enough to make room.
        """
        run = self._runs.get(opening.run)
        change: Change = "none"
        if run is None:
            self._make_room(opening.run)
            run = Run(opening.run, opening.incarnation, opening.rule, opening.world_size, self._first_window)
            self._runs[run.name], change = run, "new"
        elif self._replaces(run, opening):
            self._replace(run, opening)
            change = "replaced"
        elif not opening.incarnation:
            # Perhaps a trainer that started again, perhaps a rank that reconnects: versions may start over.
            run.version_may_fall = True
        run.world_size = max(run.world_size, opening.world_size)
        run.touched = self._clock()
        is_back = opening.rank in run.ranks
        rank = run.rank(opening.rank)
        if is_back:
            rank.reopened = rank.fallbacks.reopened = True
        rank.world_size = opening.world_size
        return run, change

    def _replace(self, run: Run, opening: RunOpening) -> None:
        """Start a new incarnation of a run, or its first under another rule."""
        if opening.incarnation != run.incarnation:
            self._end_incarnation(run, opening.incarnation)
        run.incarnation, run.rule, run.world_size = opening.incarnation, opening.rule, opening.world_size
        run.published_version = run.policy_version = None
        run.facts = TrainerFacts(run.name)
        run.begin_life()

    def _end_incarnation(self, run: Run, successor: str) -> None:
        if run.incarnation:  # no incarnation is no name, and may come again
            run.ended.append(run.incarnation)
        idle = self._clock() - run.touched
        if idle < ALIVE_SECONDS and run.incarnation:
            message = "Run %r: incarnation %r replaces %r, last heard of %.1f s ago. Do two trainers use one run?"
            logger.warning(message, run.name, successor, run.incarnation, idle)

    @staticmethod
    def _replaces(run: Run, opening: RunOpening) -> bool:
        if opening.incarnation in run.ended:
            came = repr(opening.incarnation)
            raise ConfigError(
                required("incarnation", came, f"the current one {run.incarnation!r} or a new one: {came} has ended")
            )
        if opening.incarnation != run.incarnation:
            return True
        if opening.rule == run.rule:
            return False
        if not opening.incarnation:
            return True
        name = next(name for name in RULE_FIELDS if getattr(opening.rule, name) != getattr(run.rule, name))
        came, is_set = getattr(opening.rule, name), getattr(run.rule, name)
        raise ConfigError(
            required(f"rule.{name}", came, f"{is_set}, as incarnation {run.incarnation!r} was opened with")
        )

    def _make_room(self, name: str) -> None:
        if len(self._runs) < self._max_runs:
            return
        idlest = min(self._runs.values(), key=lambda run: (not run.has_ended, run.touched))
        if not idlest.has_ended and self._clock() - idlest.touched < IDLE_SECONDS:
            came = f"{name!r}, one more than {self._max_runs} open runs"
            wanted = f"one of them, or one that has ended or is idle for {IDLE_SECONDS:.0f} s to make room"
            raise OverloadedError(required("run", came, wanted))
        self._first_window = max(self._first_window, idlest.window + 1)
        del self._runs[idlest.name]

    def find(self, name: str, incarnation: str) -> Run:
        """Return an open run.

        Raises:
            UnknownRunError: a run that was never opened, or another incarnation than the open one.
        """
        run = self._runs.get(name)
        if run is None:
            raise UnknownRunError(required("run", repr(name[:80]), "a run that OpenRun has opened"))
        if run.incarnation != incarnation:
            came, is_open = repr(incarnation[:80]), repr(run.incarnation)
            raise UnknownRunError(required("incarnation", came, f"{is_open}, the one that OpenRun opened last"))
        run.touched = self._clock()
        return run

    def hear(self, run: Run, rank: int) -> bool:
        """Note a rank's batch or report, and tell whether that opens an ended life again."""
        run.speaking.add(rank)
        reopens, run.has_ended = run.has_ended, False
        return reopens

    def close(self, name: str, incarnation: str, rank: int) -> tuple[Run, bool]:
        """Note that a rank sends nothing more, and tell whether that ends the life: all ranks heard of have said so.

        A rank that only opened the run, to publish its versions, is not waited for.

        Raises:
            UnknownRunError: as :meth:`find`.
            InvalidBatchError: a rank outside the run's world.
        """
        run = self.find(name, incarnation)
        run.check_rank(rank)
        run.speaking.discard(rank)
        ends = not run.speaking and not run.has_ended
        run.has_ended = not run.speaking
        return run, ends

    def publish(self, name: str, incarnation: str, version: int, age: float = 0.0) -> int | None:
        """Record a version that was published ``age`` seconds ago, and return the one before.

        Raises:
            UnknownRunError: as :meth:`find`.
            VersionOrderError: below the last one of this incarnation, or, where runs have none, of this opening.
        """
        run = self.find(name, incarnation)
        previous = run.published_version
        if previous is not None and version < previous and not run.version_may_fall:
            raise VersionOrderError(required("version", version, f"{previous} or more, the last one published"))
        run.published_version, run.version_may_fall = version, False
        run.facts = with_published(run.facts, version, self._clock() - age)
        return previous

    def report_canary(self, name: str, incarnation: str, scores: CanaryScores) -> None:
        """Record the trainer's scores of its canary.

        Raises:
            UnknownRunError: as :meth:`find`.
        """
        run = self.find(name, incarnation)
        run.facts = with_canary(run.facts, scores)

    def facts(self, name: str = "") -> TrainerFacts:
        """Return what a run's trainer has told that a probe needs; safe from any thread.

        Args:
            name: the run; one that isn't open has told nothing. Empty: the only run that has published a version or
                scored a canary; one that has ended or was idle for an hour counts only where it is alone. Of several
                none is chosen: a lag against another trainer's versions would be a wrong number.
        """
        if name:
            run = self._runs.get(name)
            return TrainerFacts(name) if run is None else run.facts
        told = [run for run in self.runs() if run.name != CHECK_RUN and (run.facts.published or run.facts.canaries)]
        if len(told) > 1:
            now = self._clock()
            told = [run for run in told if not run.has_ended and now - run.touched < IDLE_SECONDS] or told
        self._say_which([run.name for run in told])
        return told[0].facts if len(told) == 1 else TrainerFacts()

    def _say_which(self, names: list[str]) -> None:
        """Say that a run has to be named: once, and again when other runs are in question."""
        several = tuple(sorted(names)) if len(names) > 1 else ()
        if several and several != self._said_which:
            logger.warning(_WHICH_RUN, " or ".join(map(repr, several[:8])))
        self._said_which = several

    def place(self, run: Run, request: BoundsRequest) -> int:
        """Return the window of a batch that has come, after starting a new one if its step shows a restart."""
        step = request.step
        if run.incarnation or step is None:  # a named incarnation's steps never start over
            return run.window
        rank = run.rank(request.rank)
        if rank.has_restarted(step, run.window):
            if rank.window == run.window:  # else another rank of the same restart came first
                run.begin_life()
                run.world_size = rank.world_size  # perhaps fewer ranks than before
            rank.life, rank.step, rank.reopened = run.window, step, False
        elif rank.step is None or step > rank.step:
            rank.step, rank.reopened = step, False
        rank.window = run.window
        return run.window

    def count(self, run: Run, request: BoundsRequest, tokens: int, quantile_reference: float | None) -> bool:
        """Count an answered batch, and tell whether it is new: a retry counts once.

        Args:
            run: the batch's run.
            request: the batch and where it belongs.
            tokens: its active tokens.
            quantile_reference: q of the answer, or None; with the tokens it tells a retry from another batch.
        """
        rank = run.rank(request.rank)
        run.client_fallbacks += rank.fallbacks.observe(request.client_fallbacks)
        found = self._retries.look(request, run.incarnation or rank.life, (tokens, quantile_reference))
        if found != "new":
            run.duplicate_batches += 1
            if found == "different" and not run.has_warned:
                run.has_warned = True
                logger.warning(_SHARED_RANK, run.name, request.rank, request.step, request.microbatch, request.rank)
            return False
        run.batches += 1
        run.tokens += tokens
        run.scope_fallbacks += run.rule.scope != "microbatch"
        if request.policy_version is not None:
            run.policy_version = request.policy_version
        return True
