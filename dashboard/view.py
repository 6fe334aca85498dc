"""What a page shows, read when it is needed and once a refresh."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final, Literal, Self, TypeAlias

from satwatch._dashboard import source
from satwatch._dashboard.ending import active_at_end
from satwatch._dashboard.selection import Selection, find
from satwatch.alerts import Verdict, verdict
from satwatch.errors import UnknownRunError, required
from satwatch.types import BatchRecord, EngineRecord, Event, History, RunRecord, StepPoint, VersionRecord

Part: TypeAlias = Literal["points", "last", "versions", "events", "active", "engines"]

MAX_POINTS: Final = 500
# As many as a line has points. The newest, where engines have more.
MAX_ENGINE_RECORDS: Final = 2000
# Engines are looked at over the time that the steps shown took, and a little before it.
_BEFORE: Final = 120.0


class View:
    """One look at a run. Each part is asked for when a page first wants it.

    Args:
        history: what is kept.
        selection: what is looked at.
        lives: all lives kept, the one heard of last first.

    Raises:
        UnknownRunError: the run is not kept any more.
    """

    def __init__(self, history: History, selection: Selection, lives: Sequence[RunRecord]) -> None:
        record = find(lives, selection.run, selection.life)
        if record is None:
            raise UnknownRunError(required("run", repr(selection.run), "a run that is kept here still"))
        self.history, self.selection, self.lives, self.record = history, selection, lives, record
        self.now = source.now()
        self._batches: dict[int, Sequence[BatchRecord]] = {}
        self._others: dict[int, View] = {}

    def read(self, parts: Sequence[Part]) -> Self:
        """Ask for parts now."""
        for part in parts:
            getattr(self, part)
        return self

    @classmethod
    def of(cls, history: History, selection: Selection) -> View:
        """Look now."""
        return cls(history, selection, history.runs())

    @cached_property
    def points(self) -> Sequence[StepPoint]:
        """The steps of the range, ascending, at most ``MAX_POINTS`` of them."""
        first, last = self.selection.steps(self.record)
        return self._steps(first, last, MAX_POINTS)

    @cached_property
    def last(self) -> StepPoint | None:
        """The newest step of the range that is closed, alone; the newest one if none is."""
        alone = [point for point in self.points if point.steps == 1]
        closed = [point for point in alone if point.is_closed and point.batches]
        shown = closed or alone
        if shown:
            return shown[-1]
        if not self.points:
            return None
        # All that is shown is merged neighbours: ask for the end of the range by itself.
        end = self._steps(self.points[-1].last_step, self.points[-1].last_step, 1)
        return end[-1] if end else self.points[-1]

    @cached_property
    def versions(self) -> Sequence[VersionRecord]:
        """The versions that the run published."""
        return self.history.versions(self.record.run, life=self.record.life)

    @cached_property
    def events(self) -> Sequence[Event]:
        """Alerts of this life and of the engines, oldest first."""
        return self.history.events(self.record.run, life=self.record.life)

    @cached_property
    def active(self) -> Sequence[Event]:
        """Alerts raised and not resolved; of a run that has ended, those that were active then."""
        active = self.history.events(self.record.run, life=self.record.life, only_active=True)
        return active if self.record.is_open else active_at_end(active, self.events, self.record.last_at)

    @cached_property
    def worst(self) -> Event | None:
        """What the verdict is about; None where nothing is amiss, or nothing but that batches have ceased to come."""
        serious = (event for event in self.verdict.alerts if event.severity != "info" and event.alert != "NoBatches")
        return next(serious, None)

    @property
    def until(self) -> float:
        """Until when this life went on, Unix time in seconds."""
        return self.now if self.record.is_open else self.record.last_at

    @cached_property
    def engines(self) -> Sequence[EngineRecord]:
        """What was known of the engines while the steps shown were made, oldest first."""
        since = self.points[0].at - _BEFORE if self.points else self.record.opened_at
        until = None if self.record.is_open or not self.points else self.points[-1].at + _BEFORE
        return self.history.engines(self.record.run, since=max(0.0, since), until=until, limit=MAX_ENGINE_RECORDS)

    @cached_property
    def verdict(self) -> Verdict:
        """The judgement of the alert rules."""
        return verdict(self.record, self.active, self.last, self.now)

    def batches(self, step: int) -> Sequence[BatchRecord]:
        """Return the batches kept of a step."""
        if step not in self._batches:
            self._batches[step] = self.history.batches(self.record.run, step, life=self.record.life)
        return self._batches[step]

    def of_run(self, record: RunRecord) -> View:
        """Return the same look at another run, or at another of its lives."""
        if record.life not in self._others:
            self._others[record.life] = self._of_run(record)
        return self._others[record.life]

    def _of_run(self, record: RunRecord) -> View:
        chosen = Selection(record.run, record.life, self.selection.span, self.selection.first, self.selection.last)
        return View(self.history, chosen, self.lives)

    def _steps(self, first: int | None, last: int | None, most: int) -> Sequence[StepPoint]:
        return self.history.steps(
            self.record.run, life=self.record.life, first_step=first, last_step=last, max_points=most
        )
