"""What the dashboard's heaviest page costs its server: its questions over gRPC, and its figures as JSON.

Opened by a visitor who comes first, and refreshed by one who follows a run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from satwatch.bench.stage import Stage
from satwatch.bench.stored_run import RUN
from satwatch.bench.timing import Timing
from satwatch.types import EngineRecord, History, StepPoint, VersionRecord

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

POINTS: Final = 500


@dataclass(frozen=True, slots=True)
class PageCost:
    """The page *Now* of a stored run.

    Attributes:
        steps: steps stored.
        store_bytes: what they take on disk.
        shown: steps shown, the newest ones.
        points: as so many points; more than ``POINTS`` steps come merged.
        questions: all that the page asks for, answered over gRPC.
        figures: its figures, built and made into JSON.
        page: both, one after the other: what a refresh costs the server.
        json_bytes: what goes to the browser.
    """

    steps: int
    store_bytes: int
    shown: int
    points: int
    questions: Timing
    figures: Timing
    page: Timing
    json_bytes: int


@dataclass(frozen=True, slots=True)
class RefreshCost:
    """A refresh of the page *Now*, asked by a client that keeps what it was answered.

    Attributes:
        shown: steps shown, the newest ones.
        step: all that the page asks for, a step having come; its figures cost what they cost when it is opened.
        nothing: the same, nothing having come; no figure is drawn then.
    """

    shown: int
    step: Timing
    nothing: Timing


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page asks for."""

    points: Sequence[StepPoint]
    versions: Sequence[VersionRecord]
    engines: Sequence[EngineRecord]


@dataclass
class Page:
    """A page that is opened again and again.

    Attributes:
        history: asked over gRPC.
        steps: steps stored.
        store_bytes: what they take.
        shown: steps shown, the newest.
        questions: seconds that asking took, each time.
        figures: seconds that drawing took.
        points: points shown the last time.
        json_bytes: bytes of the figures then.
    """

    history: History
    steps: int
    store_bytes: int
    shown: int
    questions: list[float] = field(default_factory=list)
    figures: list[float] = field(default_factory=list)
    points: int = 0
    json_bytes: int = 0

    def open(self, points: int, *, counts: bool) -> None:
        """Ask and draw, and remember how long it took if that counts."""
        from satwatch._dashboard.chart.payload import payload

        began = time.perf_counter()
        seen = ask(self.history, self.shown, points)
        between = time.perf_counter()
        figures = [payload(figure, "") for figure in draw(seen)]
        ended = time.perf_counter()
        self.points, self.json_bytes = len(seen.points), sum(map(len, figures))
        if counts:
            self.questions.append(between - began)
            self.figures.append(ended - between)

    def cost(self) -> PageCost:
        """Sum what counted up."""
        both = [asked + drawn for asked, drawn in zip(self.questions, self.figures, strict=True)]
        timings = (Timing.of(self.questions), Timing.of(self.figures), Timing.of(both))
        return PageCost(self.steps, self.store_bytes, self.shown, self.points, *timings, self.json_bytes)


def measure_refresh(history: History, stage: Stage, shown: int, points: int, *, repeats: int) -> RefreshCost:
    """Refresh a page of a run that grows, in turns with a step and without; the first two refreshes don't count.

    Args:
        history: of the stage, asked over gRPC by a client that keeps what it was answered.
        stage: shows a run that has more steps than refreshes that are to count.
        shown: steps shown, the newest.
        points: the most points shown.
        repeats: refreshes of each kind.
    """
    ask(history, shown, points)
    took: list[tuple[float, float]] = []
    for _ in range(1 + repeats):
        stage.grow()
        began = time.perf_counter()
        ask(history, shown, points)
        between = time.perf_counter()
        ask(history, shown, points)
        took.append((between - began, time.perf_counter() - between))
    step, nothing = zip(*took[1:], strict=True)
    return RefreshCost(shown, Timing.of(step), Timing.of(nothing))


def ask(history: History, shown: int, points: int = POINTS) -> Seen:
    """Ask for what the page shows: the run, its newest steps, its versions and alerts, and the engines meanwhile.

    Args:
        history: of one run.
        shown: steps wanted, the newest.
        points: the most points they come as.
    """
    from satwatch._dashboard.view import MAX_ENGINE_RECORDS

    (life,) = history.runs()
    first = None if life.last_step is None else life.last_step - shown + 1
    found = history.steps(RUN, life=life.life, first_step=first, max_points=points)
    history.events(RUN, life=life.life)
    history.events(RUN, life=life.life, only_active=True)
    engines = history.engines(RUN, since=found[0].at, until=found[-1].at, limit=MAX_ENGINE_RECORDS)
    return Seen(found, history.versions(RUN, life=life.life), engines)


def draw(seen: Seen) -> list[Figure]:
    """Draw the page's figures."""
    from satwatch._dashboard.figures import coverage_strip, ess, mismatch, reward, tail_heat_map

    points, versions = seen.points, seen.versions
    return [
        tail_heat_map(points, versions=versions),
        mismatch(points, versions=versions, engines=seen.engines),
        ess(points, versions=versions),
        reward(points, versions=versions),
        coverage_strip(points),
    ]
