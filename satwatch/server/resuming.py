"""Where stored lives stand, so that a run whose trainer outlived the sidecar goes on in the same life.

A start reads little of each life. The steps that its judge needs are read when the run is back, by a thread of their
own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from satwatch.alerts import JudgeState, replay
from satwatch.errors import SatwatchError
from satwatch.server.arrivals import Arrivals
from satwatch.server.judging import Stored
from satwatch.server.niceness import step_back
from satwatch.server.steps import MAX_OPEN
from satwatch.types import MAX_EVENTS, Event, History, RunRecord

logger = logging.getLogger(__name__)

# Runs that a sidecar of before had open: more than those that were heard of last don't come back.
_LIVES: Final = 100
# The newest steps of a life that its judge sees again.
REPLAYED_STEPS: Final = 512


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a stored life stands.

    Attributes:
        next_arrival: the number of its next batch, if its batches come without steps.
        open_steps: the steps that had not closed: number, and Unix time of the last message, of each.
        active: its alerts that were raised and not resolved.
        life: its number in the history.
    """

    next_arrival: int = 0
    open_steps: tuple[tuple[int, float], ...] = ()
    active: tuple[Event, ...] = ()
    life: int = 0


def resumed_lives(history: History) -> Mapping[tuple[str, str], Resumed]:
    """Return where the named lives heard of last stand, by run and incarnation.

    A life that can't be read is left out: its run goes on without.

    Raises:
        UnavailableError: the history can't be read at all.
    """
    named: dict[tuple[str, str], RunRecord] = {}
    for record in history.runs():
        if record.incarnation and len(named) < _LIVES:
            named.setdefault((record.run, record.incarnation), record)
    lives = {}
    for key, record in named.items():
        try:
            lives[key] = _resumed(history, record)
        except SatwatchError as error:
            logger.warning("Run %r goes on without what the history has of its last steps: %s", record.run, error)
    return lives


def _resumed(history: History, record: RunRecord) -> Resumed:
    events = history.events(record.run, life=record.life, only_active=True, limit=MAX_EVENTS)
    active = tuple(event for event in events if event.life is not None)
    if record.last_step is None:
        return Resumed(active=active, life=record.life)
    points = history.steps(
        record.run, life=record.life, first_step=record.last_step - MAX_OPEN + 1, max_points=MAX_OPEN
    )
    still_open = tuple((point.first_step, point.at) for point in points if not point.is_closed)
    return Resumed(record.last_step + 1, still_open, active, record.life)


class Past:
    """Reads the past of lives that go on, one after another."""

    def __init__(self, history: History) -> None:
        """Start the thread."""
        self._history = history
        self._thread = ThreadPoolExecutor(1, "satwatch-past", initializer=step_back)

    def read(self, run: str, resumed: Resumed) -> Future[Stored]:
        """Return what the history has of a life, once it is read; a SatwatchError where it can't be."""
        return self._thread.submit(stored_past, self._history, run, resumed)

    def close(self) -> None:
        """End the thread; what has not been begun is not read."""
        self._thread.shutdown(cancel_futures=True)


def stored_past(history: History, run: str, resumed: Resumed) -> Stored:
    """Return what a history has of a life, for its judge to go on.

    Raises:
        UnknownRunError: the life isn't kept any more.
        UnavailableError: the history can't be read.
    """
    last = resumed.next_arrival - 1  # what came since is judged as it comes
    first = last - REPLAYED_STEPS + 1
    points = history.steps(run, life=resumed.life, first_step=first, last_step=last, max_points=REPLAYED_STEPS)
    alone = [point for point in points if point.steps == 1]
    arrivals = Arrivals()
    for point in alone:
        arrivals = arrivals.hear(point.at, point.last_step)
    unclosed = {point.last_step: point for point in alone if not point.is_closed}
    return Stored(replay(JudgeState(run), alone), arrivals, unclosed)


def engine_alerts(history: History) -> Sequence[Event]:
    """Return the active alerts of engines."""
    return [event for event in history.events(only_active=True, limit=MAX_EVENTS) if _is_engines(event)]


def orphaned_alerts(history: History, resumed: Mapping[tuple[str, str], Resumed]) -> Sequence[Event]:
    """Return the active alerts that neither a resumed life nor an engine that is looked at again will resolve."""
    awaited = {event.id for life in resumed.values() for event in life.active}
    active = history.events(only_active=True, limit=MAX_EVENTS)
    return [event for event in active if event.id not in awaited and not _is_engines(event)]


def _is_engines(event: Event) -> bool:
    return event.life is None and bool(event.engine)
