"""What the history is told: steps, batches, versions, engines and alerts, as they come out of the accounts.

All of it happens in the ledger's thread, after the answers. What is told goes to a recorder that never waits.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Final

from satwatch.alerts.standing import resolved
from satwatch.history import BatchSeen, EventSeen, LifeEnded, LifeOpened, Record, StepSeen, VersionSeen
from satwatch.sat.totals import StepTotals
from satwatch.server.judging import LifeJudge, Stored
from satwatch.server.resuming import Resumed
from satwatch.server.runs import CHECK_RUN, IDLE_SECONDS, Run
from satwatch.server.stats import Account, RunStats
from satwatch.server.steps import STEP_TIMEOUT_SECONDS, StepBook, StepState
from satwatch.types import BatchRecord, Event, Rule, StepReport

logger = logging.getLogger(__name__)

# Why the alerts of a life are resolved: its trainer has closed it, or has not come back to this sidecar.
ENDED: Final = "the run has ended"
NOT_BACK: Final = "the run has not come back since the sidecar started again"

_UNPLACED: Final = "Run %r: batches without a step come among others that have one; the history leaves them out."
_TOO_LATE: Final = (
    "Run %r: a batch of step %d has come long after the step closed; the history's steps leave such batches out. "
    "Has the trainer started again? Then it needs another incarnation."
)


@dataclass(frozen=True, slots=True)
class LifeKey:
    """One life of a run: its steps never start over.

    Attributes:
        run: the run's name.
        incarnation: the trainer's name for it; empty if it has none.
        window: grows when steps start over; see :class:`satwatch.server.runs.Run`.
    """

    run: str
    incarnation: str
    window: int

    def is_same_life(self, other: LifeKey) -> bool:
        """Tell whether it is of the same life: one that has a name goes on in whatever window its run came back."""
        named = (self.run, self.incarnation) == (other.run, other.incarnation)
        return named and (self.window == other.window or self.incarnation != "")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a message belongs, as it was when the message came.

    Attributes:
        key: the life.
        rule: the rule that it was opened with.
        world_size: its ranks.
        at: when the message came, Unix time in seconds.
        stats: the run's accounts.
    """

    key: LifeKey
    rule: Rule
    world_size: int
    at: float
    stats: RunStats = field(repr=False)

    @classmethod
    def of(cls, run: Run, at: float) -> Origin:
        """Return where a message of a run belongs that has just been placed."""
        return cls(LifeKey(run.name, run.incarnation, run.window), run.rule, run.world_size, at, run.stats)


@dataclass(slots=True)
class _Life:
    """What is kept of an open life.

    Attributes:
        book: its steps.
        judge: of its steps and its silence.
        stats: where closed steps are counted.
        untold: open steps that have changed since they were told.
        has_ended: its trainer has closed it.
        has_warned: a batch without a place has been logged.
        has_warned_late: a batch of a step whose sums are gone has been logged.
    """

    key: LifeKey
    book: StepBook
    stats: RunStats
    judge: LifeJudge
    untold: dict[int, StepState] = field(default_factory=dict)
    has_ended: bool = False
    has_warned: bool = False
    has_warned_late: bool = False


class Recording:
    """Tells a recorder what comes in; for the ledger's thread, but for :meth:`life`."""

    def __init__(
        self,
        put: Callable[[Record], None] | None,
        *,
        step_timeout: float = STEP_TIMEOUT_SECONDS,
        resumed: Mapping[tuple[str, str], Resumed] | None = None,
        read_past: Callable[[str, Resumed], Future[Stored]] | None = None,
        is_shared: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Know of no life.

        Args:
            put: takes a record; never waits and never fails. None: the history is off, and steps are only counted.
            step_timeout: seconds after a step's last message until it closes.
            resumed: where stored lives stand, by run and incarnation.
            read_past: reads what a stored life's judge needs; None: judge it as if it had just begun.
            is_shared: other sidecars write to the history too, so that a run that doesn't come back may be with them.
            clock: seconds from anywhere, upwards.
        """
        self._put = put
        self._step_timeout = step_timeout
        self._resumed = dict(resumed or {})
        self._read_past = read_past
        self._clock = clock
        self._awaited_until = math.inf if is_shared else clock() + IDLE_SECONDS
        self._lives: dict[str, _Life] = {}

    def opened(self, origin: Origin) -> None:
        """Record that a life was opened, or opened again."""
        self._life(origin)

    def closed(self, origin: Origin) -> None:
        """Record that all ranks of a life have closed it.

        What is kept of it stays: a batch that was on its way, or one that opens it again, finds its step.
        """
        life = self._life(origin)
        if life is None or life.has_ended:
            return
        last_at = life.judge.arrivals.last_at
        at = origin.at if last_at is None else max(origin.at, last_at)  # the wall clock may have been set back
        self._close(life, at, ENDED)
        life.has_ended = True
        self._tell(LifeEnded(life.key, at))

    def reopened(self, origin: Origin) -> None:
        """Record that a life goes on that all of its ranks had closed."""
        life = self._life(origin)
        if life is not None:
            self._reopen(life, origin)

    def batch(self, origin: Origin, account: Account) -> None:
        """Record a batch that was accounted for."""
        life = self._life(origin)
        if life is None:
            return
        request = account.request
        place = life.book.add(
            request.rank,
            request.step,
            request.microbatch,
            account.totals,
            origin.at,
            request.policy_version,
            self._clock(),
        )
        life.judge.hear(origin.at, life.book.newest)
        life.stats.came(life.judge.arrivals)
        if place is None:
            self._warn_unplaced(life)
            return
        if all(state.step != place.step for state in place.changed):
            self._warn_late(life, place.step)
        if self._put is not None:
            record = BatchRecord(
                life=0,
                step=place.step,
                rank=request.rank,
                microbatch=place.microbatch,
                at=origin.at,
                policy_version=request.policy_version,
                values=account.totals.values(),
                worst=account.worst,
            )
            self._put(BatchSeen(life.key, record))
        self._note(life, place.changed)

    def report(self, origin: Origin, report: StepReport) -> None:
        """Record what a rank says of a step beside its batches."""
        totals = replace(StepTotals.empty(), measures=dict(report.measures))
        if report.measures:
            origin.stats.report(totals, report.step, origin.key.window)
        life = self._life(origin)
        if life is not None:
            now = self._clock()
            changed = life.book.report(report.rank, report.step, totals, origin.at, now, ended=report.ended)
            self._note(life, changed)

    def published(self, origin: Origin, version: int, age: float) -> None:
        """Record that a version was published ``age`` seconds before the message came."""
        life = self._life(origin)
        if life is not None:
            self._tell(VersionSeen(life.key, version, origin.at - age, life.book.newest))

    def tick(self, now: float, open_runs: Iterable[str]) -> None:
        """Do what time brings: tell of open steps, close those whose time is up, and judge silence.

        Args:
            now: Unix time in seconds.
            open_runs: names of the runs that are open.
        """
        is_open = set(open_runs)
        for life in list(self._lives.values()):
            self._note(life, life.book.expire(self._clock()))
            if life.has_ended and life.key.run in is_open:
                self._note(life, life.book.close())  # what a batch on its way at the end has opened
            elif life.key.run in is_open:
                self._flush(life)
                self._raise(life, life.judge.tick(now))
                life.stats.came(life.judge.arrivals)
            else:
                self._end(life, now, "the run is open no more")
        if self._clock() >= self._awaited_until:
            self._stop_awaiting(now)

    def finish(self) -> None:
        """Tell what has not been told yet; the sidecar ends, and the lives may go on with another."""
        for life in self._lives.values():
            self._flush(life)

    def newest_step(self, run: str) -> int | None:
        """Return the newest step of a run that had a batch; of the only one where it is not known which run."""
        lives = [life for life in self._lives.values() if life.key.run == run or not run]
        lives = [life for life in lives if not life.has_ended] or lives
        return lives[0].book.newest if len(lives) == 1 else None

    def life(self, run: str) -> LifeKey | None:
        """Return the life of a run that is known, an ended one included; safe from any thread (it is one look)."""
        life = self._lives.get(run)
        return None if life is None else life.key

    def _life(self, origin: Origin) -> _Life | None:
        """Return the life of a message, opened if need be; None for one of a life that is over."""
        key = origin.key
        if key.run == CHECK_RUN:  # no trainer's: a look whether the sidecar is there
            return None
        known = self._lives.get(key.run)
        if known is not None and known.key.is_same_life(key):
            if known.stats is not origin.stats:
                known.stats = origin.stats
                known.stats.came(known.judge.arrivals)
                self._reopen(known, origin)  # it had made room for others, and nobody knows its end but this
            if origin.world_size > known.book.world_size:
                known.book.world_size = origin.world_size
                if not known.has_ended:
                    self._tell(_opening(known.key, origin))
            return known
        if known is not None:
            if known.stats is origin.stats and key.window < known.key.window:
                return None
            self._end(known, origin.at, "the run has started again")
        resumed = self._resumed.pop((key.run, key.incarnation), None) if key.incarnation else None
        first = 0 if resumed is None else resumed.next_arrival
        book = StepBook(origin.world_size, timeout=self._step_timeout, first_arrival=first)
        life = self._lives[key.run] = _Life(key, book, origin.stats, self._judge_of(key.run, resumed))
        life.stats.came(life.judge.arrivals)
        self._tell(_opening(key, origin))
        if resumed is not None:
            book.resume(resumed.open_steps, self._clock())
        return life

    def _reopen(self, life: _Life, origin: Origin) -> None:
        if life.has_ended:
            life.has_ended = False
            life.judge.reopen()
            self._tell(_opening(life.key, origin))

    def _judge_of(self, run: str, resumed: Resumed | None) -> LifeJudge:
        if resumed is None:
            return LifeJudge(run)
        return LifeJudge(run, resumed.active, self._read_past(run, resumed) if self._read_past else None)

    def _stop_awaiting(self, now: float) -> None:
        """Resolve the alerts of lives that were open when the sidecar started, and that nobody has opened since."""
        self._awaited_until = math.inf
        for key, life in self._resumed.items():
            for event in life.active:
                self._tell(EventSeen(None, resolved(event, now, NOT_BACK)))
            self._resumed[key] = replace(life, active=())

    def _end(self, life: _Life, at: float, why: str) -> None:
        """Let go of a life that is over."""
        self._close(life, at, why)
        del self._lives[life.key.run]

    def _close(self, life: _Life, at: float, why: str) -> None:
        """Close its steps, and resolve its alerts."""
        self._note(life, life.book.close())
        self._raise(life, life.judge.end(at, why))

    def _note(self, life: _Life, changed: Iterable[StepState]) -> None:
        """Tell of closed steps at once, and of open ones soon."""
        for state in changed:
            if not state.is_closed:
                life.untold[state.step] = state
                continue
            life.untold.pop(state.step, None)
            self._tell(_seen(life.key, state))
            if state.has_just_closed:
                life.stats.steps_closed += 1
                if self._put is not None and not life.has_ended:  # alerts have nowhere else to go
                    self._raise(life, life.judge.close(state))

    def _raise(self, life: _Life, events: Iterable[Event]) -> None:
        for event in events:
            self._tell(EventSeen(life.key, replace(event, run=life.key.run)))

    def _flush(self, life: _Life) -> None:
        for _, state in sorted(life.untold.items()):
            self._tell(_seen(life.key, state))
        life.untold.clear()

    def _tell(self, record: Record) -> None:
        if self._put is not None:
            self._put(record)

    @staticmethod
    def _warn_unplaced(life: _Life) -> None:
        if not life.has_warned:
            life.has_warned = True
            logger.warning(_UNPLACED, life.key.run)

    @staticmethod
    def _warn_late(life: _Life, step: int) -> None:
        if not life.has_warned_late:
            life.has_warned_late = True
            logger.warning(_TOO_LATE, life.key.run, step)


def _opening(key: LifeKey, origin: Origin) -> LifeOpened:
    return LifeOpened(key, key.run, key.incarnation, origin.rule, origin.world_size, origin.at)


def _seen(key: LifeKey, state: StepState) -> StepSeen:
    return StepSeen(
        key,
        state.step,
        state.totals,
        at=state.at,
        policy_version=state.policy_version,
        ranks=state.ranks,
        is_closed=state.is_closed,
    )
