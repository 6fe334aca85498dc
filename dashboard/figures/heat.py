"""The tail as a heat map: abs(d) of all tokens, step by step.

Its vertical axis counts buckets of ``HEAT_EDGES``, which are half octaves and so all but a logarithm: a browser draws
cells of one size as one picture, and on a logarithmic axis each by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from satwatch._dashboard.figures.frame import (
    empty,
    fine_ticks,
    frame,
    grey_columns,
    mark_versions,
    power_of_ten,
    step_title,
)
from satwatch._dashboard.figures.palette import DENSITY, RED
from satwatch._dashboard.figures.series import Columns, Floats, Line, add_line, columns, line
from satwatch.types import HEAT_BUCKETS, HEAT_EDGES, StepPoint, VersionRecord

Measure: TypeAlias = Literal["share", "tokens"]
Counts: TypeAlias = npt.NDArray[np.int64]

# The outermost buckets have one edge only: they are drawn an octave and a half octave wide.
BUCKET_EDGES: Final = (HEAT_EDGES[0] / 2, *HEAT_EDGES, HEAT_EDGES[-1] * 1.5)
TITLE: Final = "The tail: how far tokens have moved"
AXIS: Final = "|d| = |log π - log μ| (nats)"
NOTHING: Final = "No token in these steps has a log-ratio."
# From one token in ten thousand to nearly a third of them, as powers of ten.
SHARES: Final = (-4.0, -0.5)
# A cell is a byte: 0 is empty, and has no colour.
CODES: Final = 255

_POWERS: Final = np.log10(BUCKET_EDGES)
# In pixels: the names of the quantiles, beside the plot, and the whole margin with the colour bar.
_NAMES: Final = 36
_NAME_PIXELS: Final = 13
_BAR: Final = 118
# Dark where the tokens are many and the ground is bright, bright in the tail.
_OVER: Final = {"0.5": ("#1b1033", "dot"), "0.9": ("#1b1033", "solid"), "0.99": ("#ff9d8a", "solid")}
_NO_COLOUR: Final = "rgba(0, 0, 0, 0)"


def tail_heat_map(
    points: Sequence[StepPoint],
    *,
    versions: Sequence[VersionRecord] = (),
    measure: Measure = "share",
    quantiles: bool = True,
    height: int = 420,
    title: str = TITLE,
    view: tuple[int, int] | None = None,
) -> go.Figure:
    """Draw the distribution of abs(d) by step, by buckets, coloured by the logarithm of each bucket's tokens.

    Args:
        points: the steps.
        versions: published versions, marked.
        measure: ``share`` of the step's tokens, on one scale whatever is shown, or ``tokens`` themselves.
        quantiles: draw q0.5, q0.9 and q0.99 over it.
        height: in pixels.
        title: what it says above.
        view: the buckets first in view, as :func:`tail_view` returns them; None: those of these steps.

    Returns:
        A heat map of at most ``HEAT_BUCKETS`` rows. An empty bucket has no colour; a step of which nothing is known is
        grey.
    """
    laid = columns(points)
    counts = heat_counts(laid)
    totals = counts.sum(axis=0)
    if not totals.any():
        return empty(title, NOTHING, height=height)
    figure = frame(title, x=step_title(points), y=AXIS, height=height)
    grey_columns(figure, laid.edges, totals == 0)
    figure.add_trace(_heat_trace(laid.edges, counts, totals, measure))
    low, high = view or shown_buckets(counts[:-1])
    if quantiles:
        _add_quantiles(figure, points, _NAME_PIXELS * (high - low) / _plot_pixels(figure))
    _add_beyond(figure, laid.edges, counts[-1], high)
    figure.update_layout(hovermode="closest", showlegend=bool(counts[-1].any()), margin={"r": _BAR})
    figure.update_yaxes(range=[low, high], **_ticks(low, high), showgrid=False, zeroline=False)
    mark_versions(figure, points, versions)
    return figure


def tail_view(*runs: Sequence[StepPoint]) -> tuple[int, int]:
    """Return the buckets that show the tails of several runs on one scale."""
    return shown_buckets(np.hstack([heat_counts(columns(points)) for points in runs])[:-1])


def shown_buckets(counts: Counts) -> tuple[int, int]:
    """Return the first view, as edges of buckets: all of the tail, and the body but its lowest hundredth."""
    rows = counts.sum(axis=1)
    lowest = min(int(np.searchsorted(np.cumsum(rows), 0.01 * rows.sum(), side="right")), len(rows) - 1)
    highest = int(np.flatnonzero(rows)[-1]) if rows.any() else len(rows) - 1
    return lowest, highest + 1


def heat_counts(laid: Columns) -> Counts:
    """Return tokens by bucket and column, int64 (``HEAT_BUCKETS``, columns)."""
    counts = np.zeros((HEAT_BUCKETS, len(laid.groups)), np.int64)
    for i, group in enumerate(laid.groups):
        for point in group:
            counts[:, i] += point.heat
    return counts


def height_of(values: npt.ArrayLike) -> Floats:
    """Return where values of abs(d) stand on the axis of buckets; NaN stays NaN, and 0 stands at the bottom.

    >>> height_of([2.0**-25, 2.0**-24, 0.0]).tolist()
    [1.0, 3.0, 0.0]
    """
    with np.errstate(divide="ignore"):
        placed: Floats = np.interp(np.log10(np.asarray(values, np.float64)), _POWERS, np.arange(HEAT_BUCKETS + 1.0))
    return placed


def _heat_trace(edges: Floats, counts: Counts, totals: Counts, measure: Measure) -> go.Heatmap:
    rows = np.flatnonzero(counts.any(axis=1))
    first, last = int(rows[0]), int(rows[-1]) + 1
    counts = counts[first:last]
    with np.errstate(divide="ignore", invalid="ignore"):
        shown = np.where(totals > 0, counts / totals, 0.0) if measure == "share" else counts.astype(np.float64)
        powers = np.log10(shown)
    least, most = SHARES if measure == "share" else (-1.0, max(1.0, float(powers.max())))
    codes = np.where(counts > 0, np.clip(1 + (CODES - 1) * (powers - least) / (most - least), 1, CODES), 0)
    said = "%{customdata:.3~%} of tokens" if measure == "share" else "%{customdata:,} tokens"
    return go.Heatmap(
        x=edges,
        y=np.arange(first, last + 1),
        z=np.rint(codes).astype(np.uint8),
        zmin=0,
        zmax=CODES,
        customdata=shown.astype(np.float32) if measure == "share" else counts.astype(np.int32),
        text=np.broadcast_to(_middles(first, last), counts.shape),
        colorscale=_colours(),
        name="tokens",
        hovertemplate=f"step %{{x:.0f}}, |d| about %{{text:.2~g}} nats: {said}<extra></extra>",
        colorbar=_colour_bar(least, most, measure),
        showlegend=False,
    )


def _middles(first: int, last: int) -> npt.NDArray[np.float32]:
    edges = np.asarray(BUCKET_EDGES)
    middles: npt.NDArray[np.float32] = np.sqrt(edges[first:last] * edges[first + 1 : last + 1]).astype(np.float32)
    return middles[:, None]


def _colours() -> list[tuple[float, str]]:
    edge = 0.5 / CODES
    return [(0.0, _NO_COLOUR), (edge, _NO_COLOUR), *((edge + (1 - edge) * at, colour) for at, colour in DENSITY)]


def _colour_bar(least: float, most: float, measure: Measure) -> dict[str, Any]:
    powers = range(math.ceil(least), math.floor(most) + 1)
    return {
        "title": {"text": "share of<br>tokens" if measure == "share" else "tokens", "side": "top"},
        "tickvals": [1 + (CODES - 1) * (power - least) / (most - least) for power in powers],
        "ticktext": [f"{100 * 10.0**power:g}%" if measure == "share" else f"{10.0**power:,g}" for power in powers],
        "thickness": 12,
        "len": 1.0,
        "x": 1.0,
        "xpad": _NAMES,
    }


def _ticks(low: int, high: int) -> dict[str, list[Any]]:
    """Return ticks at the powers of ten between two edges of buckets, or finer ones where there are few."""
    bottom, top = float(_POWERS[low]), float(_POWERS[high])
    powers = [*range(math.ceil(bottom), math.floor(top) + 1)]
    values, texts = [10.0**power for power in powers], [power_of_ten(power) for power in powers]
    if len(powers) < 2:
        values, texts = fine_ticks(bottom, top)
    return {"tickvals": height_of(values).tolist(), "ticktext": texts}


def _plot_pixels(figure: go.Figure) -> float:
    margin = figure.layout.margin
    return float(figure.layout.height - margin.t - margin.b)


def _add_quantiles(figure: go.Figure, points: Sequence[StepPoint], apart: float) -> None:
    """Draw the quantiles over the heat map, named where they end.

    Args:
        figure: the heat map's.
        points: the steps.
        apart: what two names need between them, in buckets.
    """
    ends: dict[str, float] = {}
    for name, (colour, dash) in _OVER.items():
        drawn = line(points, f"log_ratio_abs_q{name}")
        placed = height_of(drawn.y)
        if not drawn.is_known:
            continue
        add_line(figure, Line(drawn.x, placed), f"q{name}", colour, dash=dash, width=1.4)
        said = f"step %{{x:.0f}}: q{name} = %{{customdata:.3g}} nats<extra></extra>"
        figure.data[-1].update(showlegend=False, customdata=drawn.y, hovertemplate=said)
        ends[name] = float(placed[np.isfinite(placed)][-1])
    place = {"x": 1, "xref": "paper", "xanchor": "left", "yanchor": "middle"}
    for name, height in zip(ends, spread([*ends.values()], apart), strict=True):
        figure.add_annotation(text=f"q{name}", y=height, showarrow=False, font={"size": 11}, **place)


def spread(heights: Sequence[float], apart: float) -> list[float]:
    """Return where names stand that are to be so far apart: each where it belongs, or pushed up by the one below.

    Args:
        heights: where they belong, ascending.
        apart: the least distance, in the same unit.

    >>> spread([1.0, 1.5, 4.0], 1.0)
    [1.0, 2.0, 4.0]
    """
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + apart) if placed else height)
    return placed


def _add_beyond(figure: go.Figure, edges: Floats, counts: Counts, top: int) -> None:
    """Mark the columns that hold tokens above the last edge, infinite ones among them, at the upper edge."""
    index = np.flatnonzero(counts)
    if not len(index):
        return
    last = f"{HEAT_EDGES[-1]:g} nats"
    figure.add_trace(
        go.Scatter(
            x=(edges[index] + edges[index + 1]) / 2,
            y=np.full(len(index), top - 0.3),
            customdata=counts[index],
            mode="markers",
            cliponaxis=False,
            name=f"tokens above {last}, or infinite",
            marker={"symbol": "triangle-up", "size": 10, "color": RED, "line": {"width": 0}},
            hovertemplate=f"step %{{x:.0f}}: %{{customdata}} tokens above {last}, or infinite<extra></extra>",
        )
    )
