"""The history that a dashboard looks at while it is measured: one stored run after another, whole or up to a step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from satwatch.types import BatchRecord, EngineRecord, Event, History, RunRecord, StepPoint, VersionRecord


class Stage:
    """A history whose content is chosen from outside, between the questions of several threads.

    Args:
        history: what is shown first, of one life.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._last: int | None = None
        self._asked_at: float | None = None
        self.is_open = False

    def show(self, history: History, last: int | None = None, *, is_open: bool = False) -> None:
        """Show another run.

        Args:
            history: of one life.
            last: the newest step that it seems to have; None: its own.
            is_open: whether a trainer seems to be at it.
        """
        self._history, self._last, self._asked_at, self.is_open = history, last, None, is_open

    def grow(self) -> int:
        """Let a step more be seen of a run shown up to one; return which, and forget when steps were asked for."""
        self._last, self._asked_at = (self._last or 0) + 1, None
        return self._last

    @property
    def asked_at(self) -> float | None:
        """Unix time in seconds at which steps were first asked for since the run was shown or grew; None: not yet."""
        return self._asked_at

    def seems_open(self, record: RunRecord) -> bool:
        """Tell whether a trainer seems to be at the life shown."""
        return self.is_open

    def runs(self) -> Sequence[RunRecord]:
        """Return the life shown, as long as it seems."""
        lives = self._history.runs()
        return lives if self._last is None else [replace(life, last_step=self._last) for life in lives]

    def steps(
        self,
        run: str,
        *,
        life: int = 0,
        first_step: int | None = None,
        last_step: int | None = None,
        max_points: int = 500,
    ) -> Sequence[StepPoint]:
        """Return steps, none beyond the newest one shown."""
        newest = self._last
        if self._asked_at is None:
            self._asked_at = time.time()
        ends = [step for step in (last_step, newest) if step is not None]
        return self._history.steps(
            run, life=life, first_step=first_step, last_step=min(ends, default=None), max_points=max_points
        )

    def batches(self, run: str, step: int, *, life: int = 0) -> Sequence[BatchRecord]:
        """Return the batches of a step."""
        return self._history.batches(run, step, life=life)

    def versions(self, run: str, *, life: int = 0, limit: int = 1000) -> Sequence[VersionRecord]:
        """Return the versions published."""
        return self._history.versions(run, life=life, limit=limit)

    def events(
        self, run: str = "", *, life: int = 0, after: int = 0, only_active: bool = False, limit: int = 1000
    ) -> Sequence[Event]:
        """Return the alerts."""
        return self._history.events(run, life=life, after=after, only_active=only_active, limit=limit)

    def engines(
        self, run: str = "", *, since: float = 0.0, until: float | None = None, limit: int = 10_000
    ) -> Sequence[EngineRecord]:
        """Return what was known of the engines."""
        return self._history.engines(run, since=since, until=until, limit=limit)
