"""The judge of one life: its closed steps, its silence, and where a judge of before has left it; for one thread."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Final

from satwatch.alerts import JudgeState, observe_clock, observe_step, resolve_all, settle
from satwatch.alerts.standing import resolved
from satwatch.errors import SatwatchError
from satwatch.history import step_point
from satwatch.server.arrivals import Arrivals
from satwatch.server.steps import MAX_OPEN, StepState
from satwatch.types import Event, StepPoint

logger = logging.getLogger(__name__)

# Why an alert of before is resolved: nobody knows whether it still holds; or the stored steps say that it doesn't.
RESTARTED: Final = "the sidecar has started again"
NOT_HELD: Final = "the sidecar has started again, and the last steps do not show it"


@dataclass(frozen=True, slots=True)
class Stored:
    """What a history has of a life, for its judge to go on.

    Attributes:
        state: the judge after its closed steps.
        arrivals: when its steps came.
        unclosed: its steps that had not closed, by number.
    """

    state: JudgeState
    arrivals: Arrivals = field(default_factory=Arrivals)
    unclosed: Mapping[int, StepPoint] = field(default_factory=dict)


class LifeJudge:
    """Judges one life of a run; each method returns what was raised and resolved.

    Of a life that goes on the past is read by another thread. Until that is done, steps wait to be judged.

    Attributes:
        arrivals: when its batches came.
    """

    def __init__(self, run: str, told: Sequence[Event] = (), past: Future[Stored] | None = None) -> None:
        """Judge from a life's beginning, or from where it stands.

        Args:
            run: the run's name.
            told: its alerts that are raised and not resolved, as a judge of before has told them.
            past: what the history has of it; None: this is its beginning, or nobody knows.
        """
        self.arrivals = Arrivals()
        self._state = JudgeState(run)
        self._told = tuple(told)
        self._past = past
        self._waiting: deque[StepState] = deque(maxlen=MAX_OPEN)
        self._unclosed: Mapping[int, StepPoint] = {}

    def hear(self, at: float, step: int | None) -> None:
        """Note a batch that came at a Unix time, and the newest step by then."""
        self.arrivals = self.arrivals.hear(at, step)

    def close(self, step: StepState) -> tuple[Event, ...]:
        """Judge a step that has closed."""
        events = self._go_on(step.at)
        if self._past is not None:
            self._waiting.append(step)
            return events
        return (*events, *self._judge(step))

    def tick(self, now: float) -> tuple[Event, ...]:
        """Judge silence, at a Unix time."""
        events = self._go_on(now)
        if self._past is not None:
            return events
        arrivals = self.arrivals
        self._state, more = observe_clock(self._state, now, arrivals.last_at, arrivals.longest_gap)
        return (*events, *more)

    def end(self, at: float, why: str) -> tuple[Event, ...]:
        """Resolve what is raised: the life is over."""
        self._state, events = resolve_all(self._state, at, why)
        left = tuple(resolved(event, at, why) for event in self._told)
        self._told, self._past = (), None
        return (*events, *left)

    def reopen(self) -> None:
        """Go on after the end; the time between both is no pause of the run's."""
        self.arrivals = Arrivals().after(self.arrivals)

    def _judge(self, step: StepState) -> tuple[Event, ...]:
        point = step_point(step.step, step.totals, at=step.at, policy_version=step.policy_version, ranks=step.ranks)
        if not point.batches:  # all of its batches came to a process of before
            point = self._unclosed.get(step.step, point)
        self._state, events = observe_step(self._state, point)
        return events

    def _go_on(self, at: float) -> tuple[Event, ...]:
        """Take over from the judge of before, once the past is read."""
        if self._told and self._past is None:
            return self._take_over(None, at)
        if self._past is None or not self._past.done():
            return ()
        try:
            stored = self._past.result()
        except (SatwatchError, CancelledError) as error:
            logger.warning(
                "Run %r is judged as if it had just begun, for its past can't be read: %s", self._state.run, error
            )
            stored = None
        return self._take_over(stored, at)

    def _take_over(self, stored: Stored | None, at: float) -> tuple[Event, ...]:
        told, self._told, self._past = self._told, (), None
        if stored is None:
            events = tuple(resolved(event, at, RESTARTED) for event in told)
        else:
            self._state, events = settle(stored.state, told, at, NOT_HELD)
            self._unclosed = stored.unclosed
            self.arrivals = self.arrivals.after(stored.arrivals)
        waiting, self._waiting = self._waiting, deque(maxlen=MAX_OPEN)
        return (*events, *(event for step in waiting for event in self._judge(step)))
