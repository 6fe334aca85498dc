"""Steps as coordinates: lines with gaps where nothing is known, and columns of a heat map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from satwatch._dashboard.figures.palette import faint
from satwatch.types import StepPoint

Floats: TypeAlias = npt.NDArray[np.float64]

MOST_LINE_POINTS: Final = 2000
MOST_COLUMNS: Final = 500
# Steps further apart than so many usual distances have something missing between them.
_GAP: Final = 1.5


@dataclass(frozen=True, slots=True)
class Line:
    """A diagnostic over steps.

    Attributes:
        x: the middle of the steps merged, ascending.
        y: the values; NaN where there is none.
    """

    x: Floats
    y: Floats

    @property
    def is_known(self) -> bool:
        """Whether there is a value."""
        return bool(np.isfinite(self.y).any())


@dataclass(frozen=True, slots=True)
class Columns:
    """Steps as columns that touch.

    Attributes:
        edges: of the columns, one more than there are.
        groups: the points of each column; none where steps are missing.
    """

    edges: Floats
    groups: tuple[tuple[StepPoint, ...], ...]


def line(points: Sequence[StepPoint], name: str) -> Line:
    """Return a diagnostic of each step that has it, thinned to ``MOST_LINE_POINTS``."""
    return line_of(points, lambda point: point.values.get(name))


def line_of(points: Sequence[StepPoint], value: Callable[[StepPoint], float | None]) -> Line:
    """Return a value of each step, NaN where it has none and where steps are missing; thinned likewise."""
    laid = _lay(points)
    x = np.array([at for at, _ in laid], np.float64)
    y = np.array([_number(None if point is None else value(point)) for _, point in laid], np.float64)
    kept = _kept(y)
    return Line(x[kept], y[kept])


def stack_of(points: Sequence[StepPoint], values: Callable[[StepPoint], Sequence[float] | None]) -> list[Line]:
    """Return several values of each step that are drawn on top of each other: all of them known, or none.

    Args:
        points: the steps.
        values: of a step, always as many; None where one is unknown.

    Returns:
        A line a value, all at the same steps.
    """
    laid = _lay(points)
    rows = [None if point is None else values(point) for _, point in laid]
    width = max((len(row) for row in rows if row is not None), default=0)
    parts = np.array([[np.nan] * width if row is None else row for row in rows], np.float64).reshape(len(rows), width)
    kept = _kept(parts.sum(axis=1))
    x = np.array([at for at, _ in laid], np.float64)[kept]
    return [Line(x, parts[kept, i]) for i in range(width)]


def _lay(points: Sequence[StepPoint]) -> list[tuple[float, StepPoint | None]]:
    """Return the points where they stand, and None between those that miss something."""
    laid: list[tuple[float, StepPoint | None]] = []
    before: StepPoint | None = None
    usual = _usual_distance(points)
    for point in points:
        if before is not None and point.first_step - before.last_step > _GAP * usual:
            laid.append(((before.last_step + point.first_step) / 2, None))
        laid.append((middle(point), point))
        before = point
    return laid


def _number(value: float | None) -> float:
    return float(value) if value is not None and np.isfinite(value) else np.nan


def middle(point: StepPoint) -> float:
    """Return where a point stands on the axis of steps."""
    return (point.first_step + point.last_step) / 2


def columns(points: Sequence[StepPoint]) -> Columns:
    """Lay points out as columns, ``MOST_COLUMNS`` at most beside those for missing steps."""
    size = -(-len(points) // MOST_COLUMNS) if points else 1
    usual = _usual_distance(points)
    edges: list[float] = []
    groups: list[tuple[StepPoint, ...]] = []
    for start in range(0, len(points), size):
        group = tuple(points[start : start + size])
        left, right = group[0].first_step - usual / 2, group[-1].last_step + usual / 2
        if not edges:
            edges.append(left)
        elif left - edges[-1] > (_GAP - 1) * usual and len(groups) < 2 * MOST_COLUMNS:
            edges.append(left)
            groups.append(())
        edges.append(max(right, edges[-1]))
        groups.append(group)
    return Columns(np.array(edges, np.float64), tuple(groups))


def _usual_distance(points: Sequence[StepPoint]) -> float:
    if len(points) < 2:
        return 1.0
    apart = [b.first_step - a.last_step for a, b in pairwise(points)]
    return max(1.0, float(np.median(apart)))


def _kept(y: Floats) -> npt.NDArray[np.int64]:
    """Return which points are drawn: of each stretch the least and the greatest.

    A spike survives, and so does a gap that fills a stretch.
    """
    if len(y) <= MOST_LINE_POINTS:
        return np.arange(len(y))
    kept: set[int] = set()
    for stretch in np.array_split(np.arange(len(y)), MOST_LINE_POINTS // 2):
        values = y[stretch]
        if np.isfinite(values).any():
            kept |= {int(stretch[np.nanargmin(values)]), int(stretch[np.nanargmax(values)])}
        else:
            kept.add(int(stretch[0]))
    return np.array(sorted(kept), np.int64)


def add_line(
    figure: go.Figure,
    drawn: Line,
    name: str,
    colour: str,
    *,
    dash: str = "solid",
    width: float = 1.8,
    unit: str = "",
    form: str = ".4g",
) -> None:
    """Add a line to a figure, with its unit where the pointer is; a value alone between gaps is a dot.

    Args:
        figure: where.
        drawn: the line.
        name: in the legend.
        colour: of the form #rrggbb.
        dash: plotly's word for the stroke.
        width: in pixels.
        unit: of the values.
        form: how a value is written, as d3 has it.
    """
    unit = f" {unit}" if unit else ""
    alone = _alone(drawn.y)
    figure.add_trace(
        go.Scatter(
            x=drawn.x,
            y=drawn.y,
            name=name,
            mode="lines+markers" if alone.any() else "lines",
            line={"color": colour, "width": width, "dash": dash},
            marker={"size": np.where(alone, 5.0, 0.0), "color": colour, "opacity": 1} if alone.any() else None,
            connectgaps=False,
            hovertemplate=f"%{{y:{form}}}{unit}",
        )
    )


def _alone(y: Floats) -> npt.NDArray[np.bool_]:
    known = np.concatenate([[False], np.isfinite(y), [False]])
    alone: npt.NDArray[np.bool_] = known[1:-1] & ~known[:-2] & ~known[2:]
    return alone


@dataclass(frozen=True, slots=True)
class Area:
    """How one part of a stack looks.

    Attributes:
        name: in the legend.
        colour: of the form #rrggbb.
        unit: what follows the number where the pointer is.
        form: how the number is written, as d3 has it.
        hatched: filled with strokes.
    """

    name: str
    colour: str
    unit: str
    form: str
    hatched: bool = False


def add_stack(figure: go.Figure, parts: Sequence[Line], areas: Sequence[Area]) -> None:
    """Add areas on top of each other, open where the values are unknown.

    Plotly's own stacks draw a zero or a bridge where a value is missing: here each stretch is a polygon of its own.

    Args:
        figure: where.
        parts: from :func:`stack_of`, lowest first.
        areas: one a part.
    """
    lower = np.zeros_like(parts[0].y) if parts else np.empty(0)
    for part, area in zip(parts, areas, strict=True):
        upper = lower + part.y
        x, y = _polygons(part.x, lower, upper)
        pattern = {"shape": "/", "fgcolor": area.colour, "size": 6, "solidity": 0.3} if area.hatched else None
        figure.add_trace(
            go.Scatter(
                x=x,
                y=y,
                fill="toself",
                mode="lines",
                line={"width": 0, "color": area.colour},
                fillcolor=faint(area.colour, 0.15 if area.hatched else 0.4),
                fillpattern=pattern,
                legendgroup=area.name,
                name=area.name,
                hoverinfo="skip",
            )
        )
        add_line(figure, Line(part.x, upper), area.name, area.colour, width=1.2)
        hover = f"%{{customdata:{area.form}}}{area.unit}"
        figure.data[-1].update(legendgroup=area.name, showlegend=False, customdata=part.y, hovertemplate=hover)
        lower = upper


def _polygons(x: Floats, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Return the outlines of each known stretch, with NaN between them."""
    known = np.concatenate([[False], np.isfinite(upper), [False]])
    starts, ends = np.flatnonzero(known[1:] & ~known[:-1]), np.flatnonzero(known[:-1] & ~known[1:])
    xs: list[Floats] = []
    ys: list[Floats] = []
    for a, b in zip(starts.tolist(), ends.tolist(), strict=True):
        xs += [x[a:b], x[a:b][::-1], np.array([np.nan])]
        ys += [upper[a:b], lower[a:b][::-1], np.array([np.nan])]
    return np.concatenate([np.empty(0), *xs[:-1]]), np.concatenate([np.empty(0), *ys[:-1]])
