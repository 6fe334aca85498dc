"""Which steps of a run's life are open, what they add up to so far, and when they close. Pure; one thread at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from satwatch.sat.totals import StepTotals

# A step of the largest runs takes minutes, and a checkpoint or an evaluation may come between its batches.
STEP_TIMEOUT_SECONDS: Final = 600.0
# Ranks are a step or two apart. More open steps than this are those of ranks that are gone.
MAX_OPEN: Final = 64
# Closed steps whose sums are kept for batches that come late, and for how long.
MAX_CLOSED: Final = 16
LATE_SECONDS: Final = 3600.0
# Steps whose sums are gone, known by their numbers: the greatest. Any lower one may be among those gone.
MAX_FORGOTTEN: Final = 1024


@dataclass(frozen=True, slots=True)
class StepState:
    """A step as it is now.

    Attributes:
        step: its number.
        totals: its batches and reports, merged.
        at: its last message, Unix time in seconds.
        policy_version: the newest version that consumed its tokens, or None.
        ranks: ranks heard of.
        is_closed: all ranks have ended it, or its time is up.
        has_just_closed: this is the first that is told of it since it closed.
    """

    step: int
    totals: StepTotals
    at: float
    policy_version: int | None
    ranks: int
    is_closed: bool
    has_just_closed: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a batch belongs.

    Attributes:
        step: the number of its step.
        microbatch: its number within rank and step.
        changed: the steps that it changed, those that it closed first, each ascending. Without its own: the step is
            so old that its sums are gone.
    """

    step: int
    microbatch: int
    changed: tuple[StepState, ...]


@dataclass(slots=True)
class _Step:
    """A step that is remembered.

    Attributes:
        heard: the clock at its last message.
        ended: the ranks that have ended it.
        next_microbatch: by rank, the number of a batch that comes without one.
        is_stored: another process has stored a part of it.
        is_due: it has closed, and that has not been told yet.
    """

    number: int
    heard: float
    at: float = 0.0
    totals: StepTotals = field(default_factory=StepTotals.empty)
    policy_version: int | None = None
    ranks: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    next_microbatch: dict[int, int] = field(default_factory=dict)
    is_stored: bool = False
    is_closed: bool = False
    is_due: bool = False

    @property
    def is_empty(self) -> bool:
        """Nothing is known of it but that ranks have ended it."""
        return not (self.totals.batches or self.totals.measures or self.is_stored)

    def hear(self, rank: int, totals: StepTotals, at: float, now: float) -> None:
        self.totals = self.totals.merge(totals)
        self.at, self.heard = max(self.at, at), now
        self.ranks.add(rank)

    def number_microbatch(self, rank: int, microbatch: int | None) -> int:
        number = self.next_microbatch.get(rank, 0) if microbatch is None else microbatch
        self.next_microbatch[rank] = max(number + 1, self.next_microbatch.get(rank, 0))
        return number

    def tell(self) -> StepState:
        has_just_closed, self.is_due = self.is_due, False
        return StepState(
            self.number,
            self.totals,
            self.at,
            self.policy_version,
            len(self.ranks),
            self.is_closed,
            has_just_closed,
        )


class StepBook:
    """The steps of one life of a run.

    A step closes when every rank has ended it, by saying so or with its first message of a later step, or when
    nothing has been heard of it for ``timeout`` seconds. A batch that comes later still is merged, and the step is
    told again. Batches of a run that numbers no steps are steps of their own, numbered in the order of their coming.

    Attributes:
        world_size: the ranks of the life; may grow.
        newest: the greatest step that had a batch, or None.
    """

    def __init__(self, world_size: int = 1, *, timeout: float, first_arrival: int = 0) -> None:
        """Know of no step.

        Args:
            world_size: the ranks of the life.
            timeout: seconds after a step's last message until it closes.
            first_arrival: the number of the first batch that comes without one.
        """
        self.world_size = world_size
        self.newest: int | None = None
        self._timeout = timeout
        self._next_arrival = first_arrival
        self._is_numbered: bool | None = None
        self._open: dict[int, _Step] = {}
        self._closed: dict[int, _Step] = {}  # those touched last are last
        self._forgotten: set[int] = set()
        self._gone_below: int | None = None
        self._latest: dict[int, int] = {}  # by rank, the step of its last message

    def resume(self, steps: Iterable[tuple[int, float]], now: float) -> None:
        """Go on with steps that were open when another process stored them.

        Args:
            steps: number, and Unix time of the last message, of each.
            now: the clock, seconds.
        """
        for number, at in steps:
            step = self._find(number, now)
            if step is not None:
                step.is_stored, step.at = True, max(step.at, at)

    def add(
        self,
        rank: int,
        step: int | None,
        microbatch: int | None,
        totals: StepTotals,
        at: float,
        policy_version: int | None,
        now: float,
    ) -> Placed | None:
        """Take a batch.

        Args:
            rank: whose it is.
            step: its step; None: it has none.
            microbatch: its number within rank and step; None: it has none.
            totals: of the batch.
            at: when it came, Unix time in seconds.
            policy_version: the version that consumes it, or None.
            now: the clock, seconds.

        Returns:
            Its place; None for a batch without a step among others that have one.
        """
        if step is None:
            return None if self._is_numbered else self._stand_alone(totals, at, policy_version)
        self._is_numbered = True
        self.newest = step if self.newest is None else max(self.newest, step)
        found = self._find(step, now)
        if found is None:
            return Placed(step, microbatch or 0, ())
        found.hear(rank, totals, at, now)
        if policy_version is not None:
            found.policy_version = max(policy_version, found.policy_version or policy_version)
        return Placed(step, found.number_microbatch(rank, microbatch), self._settle(rank, found))

    def report(
        self, rank: int, step: int, totals: StepTotals, at: float, now: float, *, ended: bool
    ) -> tuple[StepState, ...]:
        """Take what a rank says of a step beside its batches.

        Args:
            rank: who says it.
            step: the step.
            totals: what is reported.
            at: when it came, Unix time in seconds.
            now: the clock, seconds.
            ended: the rank has sent the step's last batch.

        Returns:
            The steps that changed; none where the run's batches come without steps.
        """
        found = None if self._is_numbered is False else self._find(step, now)
        if found is None:
            return ()
        found.hear(rank, totals, at, now)
        if ended:
            found.ended.add(rank)
        return self._settle(rank, found)

    def expire(self, now: float) -> tuple[StepState, ...]:
        """Close the steps whose time is up, and return them; forget those that nobody has spoken of for an hour."""
        for step in [step for step in self._closed.values() if now - step.heard >= LATE_SECONDS]:
            self._forget(step.number)
        return self._close(step for step in self._open.values() if now - step.heard >= self._timeout)

    def close(self) -> tuple[StepState, ...]:
        """Close all steps: their life is over."""
        return self._close(self._open.values())

    def _stand_alone(self, totals: StepTotals, at: float, policy_version: int | None) -> Placed:
        if self._is_numbered is None:
            self._open.clear()  # reported before any batch: their numbers are those of batches now
        self._is_numbered = False
        self.newest, self._next_arrival = self._next_arrival, self._next_arrival + 1
        state = StepState(self.newest, totals, at, policy_version, 1, is_closed=True, has_just_closed=True)
        return Placed(self.newest, 0, (state,))

    def _find(self, number: int, now: float) -> _Step | None:
        """Return a step, a new one if need be; None if its sums are gone."""
        known = self._open.get(number)
        if known is None and (known := self._closed.pop(number, None)) is not None:
            self._closed[number] = known
        if known is None and not self._is_gone(number):
            ended = {rank for rank, latest in self._latest.items() if latest > number}
            known = self._open[number] = _Step(number, now, ended=ended)
        return known

    def _is_gone(self, number: int) -> bool:
        return number in self._forgotten or (self._gone_below is not None and number < self._gone_below)

    def _settle(self, rank: int, heard: _Step) -> tuple[StepState, ...]:
        """Close what a message has ended, and return that and the message's own step."""
        if heard.number > self._latest.get(rank, heard.number - 1):
            for step in self._open.values():
                if step.number < heard.number:
                    step.ended.add(rank)
        # Not the greatest: a number far ahead by mistake would end all steps after it before they began.
        self._latest[rank] = heard.number
        beyond = sorted(self._open)[: max(0, len(self._open) - MAX_OPEN)]
        told = self._close(
            step for step in self._open.values() if len(step.ended) >= self.world_size or step.number in beyond
        )
        if heard.is_empty or any(state.step == heard.number for state in told):
            return told
        return (*told, heard.tell())

    def _close(self, steps: Iterable[_Step]) -> tuple[StepState, ...]:
        told = []
        for step in sorted(steps, key=lambda step: step.number):
            step.is_closed = step.is_due = True
            self._closed[step.number] = self._open.pop(step.number)
            if not step.is_empty:
                told.append(step.tell())
        while len(self._closed) > MAX_CLOSED:
            self._forget(next(iter(self._closed)))
        return tuple(told)

    def _forget(self, number: int) -> None:
        del self._closed[number]
        self._forgotten.add(number)
        if len(self._forgotten) > MAX_FORGOTTEN:
            lowest = min(self._forgotten)
            self._forgotten.remove(lowest)
            self._gone_below = lowest + 1 if self._gone_below is None else max(self._gone_below, lowest + 1)
