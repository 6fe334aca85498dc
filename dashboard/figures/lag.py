"""Version lag: its histogram, its two parts, by response length, against a forecast, and what it does to d."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import plotly.graph_objects as go

from satwatch._dashboard.figures.frame import empty, frame, grey_columns, mark_versions, step_title
from satwatch._dashboard.figures.palette import BLUE, DENSITY, GREY, ORANGE, RED
from satwatch._dashboard.figures.series import (
    MOST_LINE_POINTS,
    Area,
    Line,
    add_line,
    add_stack,
    columns,
    line,
    middle,
    stack_of,
)
from satwatch.types import LengthLag, StepPoint, VersionRecord

NO_VERSIONS: Final = "This run sends no versions: lag is unknown.<br>Pass behavior_version=... and policy_version=..."
NO_PARTS: Final = "Its parts are unknown: they need one version<br>a token, and the lengths of the responses."
NO_STEPS: Final = "No steps yet."
# Older tokens than this share the top row.
MOST_LAGS: Final = 64

# Names of lengths that have room below the bars.
_MOST_LENGTHS: Final = 8

_GENERATION: Final = "N_PQS, generated"
_QUEUE: Final = "N_IQS, waited"


def lag_heat_map(points: Sequence[StepPoint], *, versions: Sequence[VersionRecord] = ()) -> go.Figure:
    """Draw the histogram of version lag by step, coloured by the logarithm of its share of the tokens of known lag."""
    title = "Version lag of the tokens, step by step"
    laid = columns(points)
    oldest = min(MOST_LAGS, max((lag for point in points for lag in point.lags), default=-1))
    if oldest < 0:
        return empty(title, NO_VERSIONS if points else NO_STEPS, height=360)
    tokens = np.zeros((oldest + 1, len(laid.groups)), np.int64)
    for i, group in enumerate(laid.groups):
        for point in group:
            for lag, count in point.lags.items():
                tokens[min(lag, oldest), i] += count
    totals = tokens.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(tokens > 0, tokens / totals, np.nan)
    figure = frame(title, x=step_title(points), y="version lag N (versions)", height=360)
    grey_columns(figure, laid.edges, totals == 0)
    figure.add_trace(
        go.Heatmap(
            x=laid.edges,
            y=np.arange(oldest + 1),
            z=np.log10(share).astype(np.float32),
            customdata=share.astype(np.float32),
            zmin=-3,
            zmax=0,
            colorscale=DENSITY,
            hoverongaps=False,
            name="tokens",
            hovertemplate="step %{x:.0f}, lag %{y}: %{customdata:.2%} of tokens<extra></extra>",
            colorbar={
                "title": {"text": "share of<br>tokens", "side": "top"},
                "tickvals": [-3, -2, -1, 0],
                "ticktext": ["0.1%", "1%", "10%", "100%"],
                "thickness": 12,
                "len": 1.0,
            },
            showlegend=False,
        )
    )
    mean = line(points, "version_lag_mean")
    add_line(figure, mean, "mean lag", RED, width=1.6, unit="versions", form=".2f")
    figure.update_layout(hovermode="closest", showlegend=True)
    figure.update_yaxes(range=[-0.5, oldest + 0.5], dtick=-(-(oldest + 1) // 10), showgrid=False, zeroline=False)
    mark_versions(figure, points, versions)
    return figure


def lag_parts(
    points: Sequence[StepPoint], *, versions: Sequence[VersionRecord] = (), shares: bool = False
) -> go.Figure:
    """Draw N_PQS and N_IQS stacked.

    Args:
        points: the steps.
        versions: published versions, marked.
        shares: each as a share of N, not in versions; a step whose lag is 0 has no shares.
    """
    title = "Where the lag comes from" + (", in shares" if shares else "")
    parts = stack_of(points, _shares if shares else _means)
    if not any(part.is_known for part in parts):
        has_lag = any(point.lags for point in points)
        return empty(title, (NO_PARTS if has_lag else NO_VERSIONS) if points else NO_STEPS)
    figure = frame(title, x=step_title(points), y="share of the lag" if shares else "mean lag (versions)")
    unit, form = (" of the lag", ".1%") if shares else (" versions", ".2f")
    add_stack(figure, parts, (Area(_GENERATION, BLUE, unit, form), Area(_QUEUE, ORANGE, unit, form)))
    figure.update_yaxes(rangemode="tozero", tickformat=".0%" if shares else None)
    mark_versions(figure, points, versions)
    return figure


def _means(point: StepPoint) -> tuple[float, float] | None:
    """Return mean N_PQS and mean N_IQS."""
    generation, queue = _part(point.generation_lags), _part(point.queue_lags)
    return None if generation is None or queue is None else (generation, queue)


def _shares(point: StepPoint) -> tuple[float, float] | None:
    """Return both as shares of their sum; a lag of 0 has none."""
    means = _means(point)
    total = sum(means or ())
    return (means[0] / total, means[1] / total) if means and total else None


def _part(tokens_by_lag: Mapping[int, int]) -> float | None:
    """Return the mean lag of tokens counted by lag."""
    tokens = sum(tokens_by_lag.values())
    return sum(lag * count for lag, count in tokens_by_lag.items()) / tokens if tokens else None


def merged_lengths(points: Sequence[StepPoint]) -> tuple[LengthLag, ...]:
    """Return version lag by response length over all the points, shortest first."""
    found: dict[int, LengthLag] = {}
    for point in points:
        for row in point.length_lags:
            found[row.longest] = found[row.longest].merge(row) if row.longest in found else row
    return tuple(found[longest] for longest in sorted(found))


def lag_by_length(points: Sequence[StepPoint]) -> go.Figure:
    """Draw the two parts of the lag as stacked bars by response length: long responses see more versions pass."""
    title = "Lag by response length"
    rows = [row for row in merged_lengths(points) if row.tokens]
    if not rows:
        return empty(title, f"{NO_VERSIONS}<br>Pass sequence_lengths=... too.")
    figure = frame(title, x="response length (tokens)", y="mean lag (versions)")
    names = [f"{row.longest // 2 + 1:,}-{row.longest:,}" if row.longest > 1 else "1" for row in rows]
    told = [f"{row.responses:,} responses, {row.tokens:,} tokens of known lag" for row in rows]
    split = [row.split_tokens for row in rows]
    for name, colour, sums in (
        (_GENERATION, BLUE, [row.generation_lag for row in rows]),
        (_QUEUE, ORANGE, [row.queue_lag for row in rows]),
    ):
        means = [total / tokens if tokens else None for total, tokens in zip(sums, split, strict=True)]
        figure.add_trace(go.Bar(x=names, y=means, name=name, marker_color=colour, hovertemplate="%{y:.2f} versions"))
    means = [row.lag / row.tokens for row in rows]
    figure.add_trace(
        go.Scatter(
            x=names,
            y=means,
            name="N",
            mode="markers",
            marker={"color": GREY, "symbol": "line-ew-open", "size": 18, "line": {"width": 2, "color": GREY}},
            text=told,
            hovertemplate="%{y:.2f} versions; %{text}",
        )
    )
    figure.update_layout(barmode="stack")
    shown = rows[:: -(-len(rows) // _MOST_LENGTHS)]
    ticks = [names[rows.index(row)] for row in shown]
    texts = [f"≤{_short(row.longest)}" for row in shown]
    figure.update_xaxes(type="category", hoverformat=None, tickvals=ticks, ticktext=texts, tickangle=0)
    return figure


def _short(tokens: int) -> str:
    """Write a power of two in few letters.

    >>> _short(512), _short(32768)
    ('512', '32k')
    """
    return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)


def lag_against_forecast(
    points: Sequence[StepPoint],
    *,
    generation: float | None = None,
    queue: float | None = None,
    versions: Sequence[VersionRecord] = (),
) -> go.Figure:
    """Draw the mean lag and its parts as seen, and what a forecast expects of them.

    Args:
        points: the steps.
        generation: N_PQS expected, mean over tokens, versions; None where nothing is expected.
        queue: N_IQS expected, likewise; with both, N is expected to be their sum.
        versions: published versions, marked.
    """
    title = "Lag, seen and expected"
    drawn = line(points, "version_lag_mean")
    if not drawn.is_known:
        return empty(title, NO_VERSIONS)
    figure = frame(title, x=step_title(points), y="mean lag (versions)", height=340, legend_rows=2)
    add_line(figure, drawn, "N", GREY, width=2.2, unit="versions", form=".2f")
    parts: tuple[tuple[str, str, str, float | None], ...] = (
        ("N_PQS", "version_lag_generation_mean", BLUE, generation),
        ("N_IQS", "version_lag_queue_mean", ORANGE, queue),
    )
    for name, value, colour, expected in parts:
        part = line(points, value)
        if part.is_known:
            add_line(figure, part, name, colour, unit="versions", form=".2f")
        if expected is not None:
            _expect(figure, points, name, expected, colour)
    if generation is not None and queue is not None:
        _expect(figure, points, "N", generation + queue, GREY)
    figure.update_yaxes(rangemode="tozero")
    mark_versions(figure, points, versions)
    return figure


def _expect(figure: go.Figure, points: Sequence[StepPoint], name: str, value: float, colour: str) -> None:
    ends = np.array([points[0].first_step, points[-1].last_step], np.float64)
    add_line(figure, Line(ends, np.full(2, value)), f"{name} expected {value:.2f}", colour, dash="dash", width=1.2)
    figure.data[-1].update(hoverinfo="skip", hovertemplate=None)


def mismatch_by_lag(points: Sequence[StepPoint]) -> go.Figure:
    """Draw each step's mean mismatch against its mean lag, coloured by step: the same lag can give different d."""
    title = "Does the lag explain the mismatch?"
    names = ("version_lag_mean", "log_ratio_abs_mean")
    known = [point for point in points if all(name in point.values for name in names)][-MOST_LINE_POINTS:]
    if not known:
        return empty(title, NO_VERSIONS if points else NO_STEPS)
    figure = frame(title, x="mean version lag N (versions)", y="mean |d| (nats)")
    seen = Line(*(np.array([point.values[name] for point in known]) for name in names))
    figure.add_trace(
        go.Scatter(
            x=seen.x,
            y=seen.y,
            mode="markers",
            name="steps",
            cliponaxis=False,
            customdata=np.array([middle(point) for point in known]),
            marker={
                "size": 6,
                "color": np.array([middle(point) for point in known]),
                "colorscale": DENSITY,
                "opacity": 0.85,
                "colorbar": {"title": {"text": "step"}, "thickness": 12, "len": 0.9, "tickformat": "d"},
            },
            hovertemplate="step %{customdata:.0f}<br>lag %{x:.2f} versions<br>mean |d| %{y:.4g} nats<extra></extra>",
        )
    )
    figure.update_layout(hovermode="closest", showlegend=False)
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    return figure
