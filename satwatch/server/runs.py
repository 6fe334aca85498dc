"""Which runs are open, under which rule, and which batches have been counted.

Pure: values and a clock's reading in, values or refusals out; no socket, thread or file. One thread writes.
"""

from __future__ import annotations

from collections import OrderedDict
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
from satwatch.server.stats import RunStats
from satwatch.types import RULE_FIELDS, BoundsRequest, Rule, RunInfo, RunOpening

# A run idle for less is waited for, not forgotten: a checkpoint or an evaluation takes minutes.
IDLE_SECONDS: Final = 3600.0
# A retry follows its original within the client's deadline; this holds minutes of the largest runs, in 70 MB at most.
RETRY_KEYS: Final = 1 << 18

Change: TypeAlias = Literal["none", "new", "replaced"]


@dataclass(slots=True)
class Fallbacks:
    """What one rank's client said of the batches it answered without the sidecar.

    It says its own total so far. A lower total is a message overtaken by a later one, or, once the rank has
    opened the run again, a client that started again from 0.
    """

    last: int = 0
    reopened: bool = False

    def observe(self, count: int) -> int:
        """Take a client's total so far, and return by how much the sum grows."""
        if count >= self.last:
            new = count - self.last
        elif self.reopened:
            new = count
        else:
            return 0
        self.last, self.reopened = count, False
        return new


@dataclass(slots=True)
class Rank:
    """What is kept of one data-parallel rank."""

    openings: int = 0
    fallbacks: Fallbacks = field(default_factory=Fallbacks)


@dataclass(slots=True)
class Run:
    """An open run.

    Attributes:
        name: the run's name.
        incarnation: its life; empty if the trainer names none.
        rule: the rule it was opened with.
        world_size: the largest that a rank of this incarnation announced.
        window: grows when steps may start over; a batch of an older window is late.
        touched: the clock at its last message.
        batches: batches counted, over all incarnations.
        duplicate_batches: retries, answered and not counted.
        tokens: active tokens counted.
        scope_fallbacks: batches whose q is the microbatch's where the rule asks for more.
        client_fallbacks: batches that clients answered without the sidecar, summed over their restarts.
        published_version: the last one published in this incarnation.
        version_may_fall: the run was opened again without an incarnation since then.
        policy_version: the last one seen in a batch.
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
    ranks: dict[int, Rank] = field(default_factory=dict)
    stats: RunStats = field(default_factory=RunStats)

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
        self._retry_keys = retry_keys
        self._runs: dict[str, Run] = {}
        self._counted: OrderedDict[tuple[object, ...], None] = OrderedDict()

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
            ConfigError: another rule in the same incarnation.
            OverloadedError: too many runs, and none idle long enough to make room.
        """
        run = self._runs.get(opening.run)
        change: Change = "none"
        if run is None:
            self._make_room(opening.run)
            run = Run(opening.run, opening.incarnation, opening.rule, opening.world_size)
            self._runs[run.name], change = run, "new"
        elif self._replaces(run, opening):
            run.incarnation, run.rule, run.world_size = opening.incarnation, opening.rule, opening.world_size
            run.published_version = run.policy_version = None
            run.window, change = run.window + 1, "replaced"
        elif not opening.incarnation:
            # Perhaps a trainer that started again, perhaps a rank that reconnects: steps and versions may start over.
            run.window += 1
            run.version_may_fall = True
        run.world_size = max(run.world_size, opening.world_size)
        run.touched = self._clock()
        rank = run.ranks.setdefault(opening.rank, Rank())
        rank.openings += 1
        rank.fallbacks.reopened = True
        return run, change

    @staticmethod
    def _replaces(run: Run, opening: RunOpening) -> bool:
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
        idlest = min(self._runs.values(), key=lambda run: run.touched)
        if self._clock() - idlest.touched < IDLE_SECONDS:
            came = f"{name!r}, one more than {self._max_runs} open runs"
            raise OverloadedError(
                required("run", came, f"one of them, or one idle for {IDLE_SECONDS:.0f} s to make room")
            )
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

    def publish(self, name: str, incarnation: str, version: int) -> int | None:
        """Record a published version, and return the one before.

        Raises:
            UnknownRunError: as :meth:`find`.
            VersionOrderError: below the last one of this incarnation, or, where runs have none, of this opening.
        """
        run = self.find(name, incarnation)
        previous = run.published_version
        if previous is not None and version < previous and not run.version_may_fall:
            raise VersionOrderError(required("version", version, f"{previous} or more, the last one published"))
        run.published_version, run.version_may_fall = version, False
        return previous

    def count(self, run: Run, request: BoundsRequest, tokens: int) -> bool:
        """Count an answered batch, and tell whether it is new: a retry counts once."""
        rank = run.ranks.setdefault(request.rank, Rank())
        run.client_fallbacks += rank.fallbacks.observe(request.client_fallbacks)
        if self._is_retry(run, rank, request):
            run.duplicate_batches += 1
            return False
        run.batches += 1
        run.tokens += tokens
        run.scope_fallbacks += run.rule.scope != "microbatch"
        if request.policy_version is not None:
            run.policy_version = request.policy_version
        return True

    def _is_retry(self, run: Run, rank: Rank, request: BoundsRequest) -> bool:
        if request.step is None or request.microbatch is None:
            return False
        # Without an incarnation, a rank that opens again may be a trainer that starts its steps again.
        life = run.incarnation or rank.openings
        key = (run.name, life, request.rank, request.step, request.microbatch)
        if key in self._counted:
            return True
        self._counted[key] = None
        if len(self._counted) > self._retry_keys:
            self._counted.popitem(last=False)
        return False
