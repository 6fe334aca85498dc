"""What all figures share: title, axes, legend, what an empty one says, and marks of published versions.

The template is the page's: nothing here sets a colour of ground or text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from satwatch._dashboard.figures.palette import GREY, MARKER, UNKNOWN
from satwatch.types import StepPoint, VersionRecord

STEP_TITLE: Final = "optimizer step"
TIME_TITLE: Final = "time (UTC)"
MOST_MARKERS: Final = 30
MOST_MARKER_LABELS: Final = 5
_HEIGHT: Final = 320
_TOP: Final = 78
_BOTTOM: Final = 50
_DATE: Final = 16  # below the times
# An axis of more has its ticks at the powers of ten alone.
_FEW_DECADES: Final = 2.2

Item = TypeVar("Item")


def frame(title: str, *, x: str = STEP_TITLE, y: str = "", height: int = _HEIGHT, legend_rows: int = 1) -> go.Figure:
    """Return a figure without data.

    Args:
        title: what it shows, in a few words.
        x: the horizontal axis's title with its unit.
        y: the vertical axis's title with its unit.
        height: in pixels; the width is the page's.
        legend_rows: that the legend may need above the plot.
    """
    top = _TOP + 20 * (legend_rows - 1)
    is_time = x == TIME_TITLE
    bottom = _BOTTOM + (_DATE if is_time else 0)
    layout: dict[str, Any] = {
        "title": {"text": title, "x": 0, "xanchor": "left", "y": 0.98, "yanchor": "top", "font": {"size": 15}},
        "height": height,
        # The last time stands half beyond the plot.
        "margin": {"l": 64, "r": 32 if is_time else 16, "t": top, "b": bottom},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            # Between plot and legend is room for the numbers of the versions.
            "y": 1 + 14 / (height - top - bottom),
            "yanchor": "bottom",
        },
        "hovermode": "x unified",
        # Margins are given: to have them found is half of what a figure costs to draw.
        "xaxis": {"title": {"text": x, "standoff": 8}, "showgrid": False, "automargin": False},
        "yaxis": {"title": {"text": y}, "automargin": False},
    }
    if x.startswith(STEP_TITLE):
        layout["xaxis"]["hoverformat"] = ".0f"
    # All at once: each later update is checked anew, which is most of what a figure costs.
    return go.Figure(layout=layout)


def empty(title: str, said: str, *, height: int = _HEIGHT) -> go.Figure:
    """Return a figure that says why there is nothing to see."""
    figure = frame(title, x="", height=height)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_annotation(
        text=said, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font={"size": 14, "color": GREY}
    )
    return figure


def step_title(points: Sequence[StepPoint]) -> str:
    """Return the title of a step axis: it says when a point stands for several steps."""
    most = max((point.steps for point in points), default=1)
    return STEP_TITLE if most <= 1 else f"{STEP_TITLE} (up to {most} steps a point)"


def mark_versions(figure: go.Figure, points: Sequence[StepPoint], versions: Sequence[VersionRecord]) -> None:
    """Write published versions above the steps they followed, some of them, and draw a thin vertical line at each.

    More than ``MOST_MARKERS`` get no lines: there a version came at about every step, and a few lines would say that
    only those came.
    """
    if not points:
        return
    first, last = points[0].first_step, points[-1].last_step
    inside = [v for v in versions if v.step is not None and first <= v.step <= last]
    if not inside:
        return
    labels = [
        {
            "text": f"v{v.version}",
            "x": v.step,
            "y": 1,
            "yref": "paper",
            "xanchor": "center",
            "yanchor": "bottom",
            "showarrow": False,
            "font": {"size": 9, "color": GREY},
        }
        for v in pick(inside, MOST_MARKER_LABELS)
    ]
    # Not update_layout: where there are some already, it looks at each anew, which takes ten times as long.
    figure.layout.annotations = (*figure.layout.annotations, *labels)
    if len(inside) <= MOST_MARKERS:
        path = " ".join(f"M {v.step},0 L {v.step},1" for v in inside)
        lines = {"type": "path", "name": "versions", "path": path, "yref": "y domain", "layer": "above"}
        figure.add_shape(**lines, line={"color": MARKER, "width": 1})


def pick(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most so many of the items, evenly, the first and the last among them.

    >>> pick(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(items) <= most:
        return list(items)
    if most == 1:
        return [items[-1]]
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def log_axis(figure: go.Figure, values: npt.ArrayLike, *, most: float | None = None) -> float:
    """Make the vertical axis logarithmic, a decade high at least, so that nothing level looks like a mountain range.

    Args:
        figure: whose axis.
        values: what is drawn; those that are not finite and positive don't count.
        most: what is always in view.

    Returns:
        The lower end of the axis.
    """
    drawn = np.asarray(values, np.float64)
    drawn = drawn[np.isfinite(drawn) & (drawn > 0)]
    high = max([*drawn.max(initial=0.0, keepdims=True), most or 0.0]) or 1.0
    top = math.log10(high) + 0.05
    bottom = min(math.log10(drawn.min(initial=high)) - 0.05, top - 1.0)
    if top - bottom > _FEW_DECADES:
        powers = range(math.ceil(bottom), math.floor(top) + 1)
        values, texts = [10.0**power for power in powers], [power_of_ten(power) for power in powers]
    else:
        values, texts = fine_ticks(bottom, top)
    figure.update_yaxes(type="log", range=[bottom, top], tickvals=values, ticktext=texts)
    return float(10**bottom)


def power_of_ten(power: int) -> str:
    """Write a power of ten; near 1 as the number itself.

    >>> power_of_ten(-2), power_of_ten(-5)
    ('0.01', '10<sup>-5</sup>')
    """
    return f"{10.0**power:g}" if abs(power) < 4 else f"10<sup>{power}</sup>"


def fine_ticks(bottom: float, top: float) -> tuple[list[float], list[str]]:
    """Return ticks at 1, 2 and 5 of each decade between two powers of ten, for an axis that spans few of them.

    >>> fine_ticks(-2.0, -1.0)
    ([0.01, 0.02, 0.05, 0.1], ['0.01', '0.02', '0.05', '0.1'])
    """
    decades = range(math.floor(bottom), math.ceil(top) + 1)
    ticks = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    shown = [tick for tick in ticks if bottom - 1e-9 <= math.log10(tick) <= top + 1e-9]
    return shown, [f"{tick:.0e}" if tick < 1e-4 else f"{tick:g}" for tick in shown]


def threshold(figure: go.Figure, at: float, said: str, colour: str = GREY) -> None:
    """Draw a horizontal line with a few words on it."""
    # Not add_hline, which takes five times as long.
    line = {"color": colour, "width": 1, "dash": "dash"}
    figure.add_shape(type="line", x0=0, x1=1, xref="x domain", y0=at, y1=at, yref="y", line=line)
    place = {"x": 1, "xref": "x domain", "xanchor": "right", "y": at, "yref": "y", "yanchor": "bottom"}
    figure.add_annotation(text=said, showarrow=False, font={"size": 11, "color": colour}, **place)


def grey_columns(figure: go.Figure, edges: npt.NDArray[np.float64], unknown: npt.NDArray[np.bool_]) -> None:
    """Draw the columns of a heat map of which nothing is known, neighbouring ones as one grey band.

    Args:
        figure: the heat map's.
        edges: of the columns, one more than there are.
        unknown: which of them.
    """
    starts = np.flatnonzero(unknown & ~np.concatenate([[False], unknown[:-1]]))
    ends = np.flatnonzero(unknown & ~np.concatenate([unknown[1:], [False]]))
    bands = " ".join(
        f"M {edges[a]:.10g},0 L {edges[b + 1]:.10g},0 L {edges[b + 1]:.10g},1 L {edges[a]:.10g},1 Z"
        for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
    )
    if bands:
        shape = {"type": "path", "name": "unknown", "path": bands, "yref": "y domain", "layer": "below"}
        figure.add_shape(**shape, line={"width": 0}, fillcolor=UNKNOWN)
