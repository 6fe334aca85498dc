"""What the history is told of the engines, and the alerts that they raise; for one thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from satwatch.alerts import JudgeState, adopt, observe_engines
from satwatch.alerts.standing import resolved
from satwatch.history import EngineSeen, EventSeen, Record
from satwatch.server.engines import FORGET_SECONDS
from satwatch.types import EngineRecord, EngineStatus, Event

# Alerts that a change raises are judged with it; those that time raises or resolves need no more than this.
JUDGE_SECONDS: Final = 5.0
NOT_BACK: Final = "nobody has looked at it since the sidecar started again"


class EngineRecording:
    """Tells of engines when something about them has changed."""

    def __init__(
        self,
        put: Callable[[Record], None],
        newest_step: Callable[[str], int | None] = lambda run: None,
        told: Iterable[Event] = (),
        *,
        is_shared: bool = False,
    ) -> None:
        """Know of no engine.

        Args:
            put: takes a record; never waits and never fails.
            newest_step: tells the newest step of the run that engines generate for; None: not known.
            told: alerts of engines that a sidecar of before has raised and not resolved.
            is_shared: other sidecars write to the history too, and may look at engines that this one never sees.
        """
        self._put = put
        self._newest_step = newest_step
        self._is_shared = is_shared
        self._began: float | None = None
        self._left: dict[tuple[str, str], list[Event]] = defaultdict(list)
        for event in told:
            self._left[event.run, event.engine].append(event)
        self._told: dict[str, tuple[str, EngineStatus]] = {}
        self._judges: dict[str, tuple[JudgeState, float]] = {}  # by run, with when it was last asked

    def observe(self, engines: Iterable[tuple[str, EngineStatus]], at: float) -> None:
        """Tell of what has changed since the last call.

        Args:
            engines: all that is known, each with the run that it generates for; empty: not known.
            at: Unix time in seconds.
        """
        seen: dict[str, tuple[str, EngineStatus]] = {}
        by_run: dict[str, list[EngineStatus]] = defaultdict(list)
        changed: set[str] = set()
        for run, status in engines:
            seen[status.engine] = (run, status)
            by_run[run].append(status)
            if self._told.get(status.engine) != (run, status):
                self._put(EngineSeen(EngineRecord(at, status, run)))
                changed.add(run)
        changed.update(run for engine, (run, _) in self._told.items() if engine not in seen or seen[engine][0] != run)
        self._told = seen
        # Of a run whose engines are gone, once more: their alerts are over.
        for run in {**by_run, **self._judges}:
            state, judged_at = self._judges.get(run, (JudgeState(run), at))
            # Also after a clock that was set back.
            if run in changed or abs(at - judged_at) >= JUDGE_SECONDS:
                self._judge(state, run, by_run.get(run, []), at)
        self._began = at if self._began is None else self._began
        if self._left and not self._is_shared and at - self._began >= FORGET_SECONDS:
            self._give_up(at)

    def _judge(self, state: JudgeState, run: str, statuses: list[EngineStatus], at: float) -> None:
        if self._left:
            state = adopt(state, [e for status in statuses for e in self._left.pop((run, status.engine), ())])
        state, events = observe_engines(state, statuses, at, step=self._newest_step(run))
        for event in events:
            self._put(EventSeen(None, replace(event, run=run)))
        if statuses:
            self._judges[run] = state, at
        else:
            self._judges.pop(run, None)

    def _give_up(self, at: float) -> None:
        """Resolve the alerts of engines that nobody has looked at again."""
        for events in self._left.values():
            for event in events:
                self._put(EventSeen(None, resolved(event, at, NOT_BACK)))
        self._left.clear()
