"""The history that a dashboard looks at while it is measured: one stored run after another, whole or up to a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from satwatch.types import (
    BatchRecord,
    EngineRecord,
    Event,
    History,
    Query,
    RunRecord,
    RunsQuery,
    Stamped,
    StampedHistory,
    StepPoint,
    StepsQuery,
    VersionRecord,
)

T = TypeVar("T")


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
        lives, last = self._history.runs(), self._last
        return lives if last is None else [replace(life, last_step=last) for life in lives]

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
        last_step = self._asked_until(last_step)
        return self._history.steps(run, life=life, first_step=first_step, last_step=last_step, max_points=max_points)

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

    def stamped(self, query: Query[T]) -> Sequence[Stamped[T]]:
        """Return what the query's own method returns, unread; the history shown has to have stamps."""
        history: Any = self._history
        assert isinstance(history, StampedHistory)
        if isinstance(query, StepsQuery):
            asked: Any = replace(query, last_step=self._asked_until(query.last_step))
            return history.stamped(asked)
        found, last = history.stamped(query), self._last
        if last is None or not isinstance(query, RunsQuery):
            return found
        # The lowest bit is for who tells open lives from others.
        return [Stamped(each.stamp ^ last << 1, partial(_up_to, each.read, last)) for each in found]

    def _asked_until(self, last_step: int | None) -> int | None:
        """Note that steps are asked for up to one, or to the end; return how far they may be seen."""
        if self._asked_at is None:
            self._asked_at = time.time()
        return min((step for step in (last_step, self._last) if step is not None), default=None)


def _up_to(read: Callable[[], Any], last: int) -> Any:  # noqa: ANN401 - a query's records are of any type
    return replace(read(), last_step=last)
