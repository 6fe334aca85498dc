"""Whether a run is well: the mean mismatch against its floor, ESS, reward, and what is known at all."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import numpy as np
import plotly.graph_objects as go

from satwatch._dashboard.figures.frame import empty, frame, mark_versions, step_title, threshold
from satwatch._dashboard.figures.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, UNKNOWN, faint
from satwatch._dashboard.figures.series import Floats, add_line, columns, line, middle
from satwatch.types import EngineRecord, StepPoint, VersionRecord

# People warn below the first and stop below the second.
ESS_WARNING: Final = 0.3
ESS_STOP: Final = 0.1
# Each mark is an element of its own to the browser.
MOST_CANARIES: Final = 120

_FLOORS: Final = (
    ("floor, |δ impl|", "delta_impl_abs_mean", GREEN, "solid"),
    ("at lag 0", "log_ratio_abs_mean_lag0", ORANGE, "dot"),
)
_COVERAGE: Final = (
    ("versions", "version_coverage_ratio"),
    ("references", "reference_coverage_ratio"),
    ("routes", "router_coverage"),
    ("reward", "reward_mean"),
    ("finite", "nan_tokens"),
)
# Of a step that holds a token without a finite log-ratio: one is too many.
_NOT_FINITE: Final = 0.01


def mismatch(
    points: Sequence[StepPoint],
    *,
    versions: Sequence[VersionRecord] = (),
    engines: Sequence[EngineRecord] = (),
) -> go.Figure:
    """Draw the mean mismatch and what it can't fall below: engine noise, tokens of lag 0, and the engines' canaries.

    Args:
        points: the steps.
        versions: published versions, marked.
        engines: what was known of the engines; one with wrong weights tells nothing of a floor and is left out.
    """
    title = "Mean mismatch against its floor"
    mean = line(points, "log_ratio_abs_mean")
    if not mean.is_known:
        return empty(title, "No token in these steps has a log-ratio.")
    figure = frame(title, x=step_title(points), y="mean |d| (nats)")
    for name, value, colour, dash in _FLOORS:
        drawn = line(points, value)
        if drawn.is_known:
            add_line(figure, drawn, name, colour, dash=dash, unit="nats")
    _add_canaries(figure, points, engines)
    add_line(figure, mean, "d̄", BLUE, width=2.4, unit="nats")
    figure.update_yaxes(rangemode="tozero")
    mark_versions(figure, points, versions)
    return figure


def _add_canaries(figure: go.Figure, points: Sequence[StepPoint], engines: Sequence[EngineRecord]) -> None:
    """Mark the canary of the engine that is furthest off, step by step; of neighbouring steps the worst, if many."""
    times = [point.at for point in points]
    worst: dict[float, tuple[float, str]] = {}
    for record in engines:
        status = record.status
        if status.canary_log_ratio_abs_mean is None or status.state == "wrong_weights":
            continue
        after = bisect_left(times, record.at)
        if after < len(points):
            step = middle(points[after])
            worst[step] = max(worst.get(step, (0.0, "")), (status.canary_log_ratio_abs_mean, status.engine))
    if not worst:
        return
    steps = np.array(sorted(worst))
    stretches = np.array_split(steps, min(MOST_CANARIES, len(steps)))
    kept = [max(stretch.tolist(), key=worst.__getitem__) for stretch in stretches]
    figure.add_trace(
        go.Scatter(
            x=np.array(kept),
            y=np.array([worst[step][0] for step in kept]),
            text=[worst[step][1] for step in kept],
            name="canary",
            mode="markers",
            marker={"color": PURPLE, "size": 4, "symbol": "diamond"},
            hovertemplate="%{y:.4g} nats, %{text}",
        )
    )


def ess(points: Sequence[StepPoint], *, versions: Sequence[VersionRecord] = ()) -> go.Figure:
    """Draw the effective sample size as a share of the tokens, with the lines where people warn and stop."""
    title = "Effective sample size"
    drawn = line(points, "ess_ratio")
    if not drawn.is_known:
        return empty(title, "No token in these steps has a finite log-ratio.")
    figure = frame(title, x=step_title(points), y="ESS / tokens")
    add_line(figure, drawn, "ESS", BLUE, width=2.2)
    threshold(figure, ESS_WARNING, "warn", ORANGE)
    threshold(figure, ESS_STOP, "stop", RED)
    figure.update_yaxes(range=[0, 1.02])
    figure.update_layout(showlegend=False)
    mark_versions(figure, points, versions)
    return figure


def reward(points: Sequence[StepPoint], *, versions: Sequence[VersionRecord] = ()) -> go.Figure:
    """Draw the mean reward, as it came and over the steps around it."""
    title = "Reward"
    drawn = line(points, "reward_mean")
    if not drawn.is_known:
        return empty(title, "This run reports no reward: client.report(step, reward=...)")
    figure = frame(title, x=step_title(points), y="mean reward")
    width = len(drawn.x) // 50
    is_smoothed = width > 1
    add_line(figure, drawn, "reward", faint(GREEN, 0.6) if is_smoothed else GREEN, width=1.2 if is_smoothed else 2.0)
    if is_smoothed:
        smooth = type(drawn)(drawn.x, _median(drawn.y, width))
        add_line(figure, smooth, f"median of {2 * width + 1} steps around", GREEN, width=2.4)
    mark_versions(figure, points, versions)
    return figure


def _median(values: Floats, width: int) -> Floats:
    """Return the median of the known values within so many of each, NaN where the value itself is unknown."""
    out = np.full(len(values), np.nan)
    for i in np.flatnonzero(np.isfinite(values)).tolist():
        out[i] = np.nanmedian(values[max(0, i - width) : i + width + 1])
    return out


def coverage_strip(points: Sequence[StepPoint]) -> go.Figure:
    """Draw the share of tokens that came with versions, references and routes, whether a reward came, and any NaN.

    What no token came with is unknown, and grey, whether the trainer sent nothing or the share is 0.
    """
    title = "What is known"
    height = 236
    if not points:
        return empty(title, "No steps yet.", height=height)
    laid = columns(points)
    known = np.array([[_coverage(group, name) for group in laid.groups] for _, name in _COVERAGE])
    figure = frame(title, x=step_title(points), height=height)
    figure.add_trace(
        go.Heatmap(
            x=laid.edges,
            y=[name for name, _ in _COVERAGE],
            z=np.where(known > 0, known, -1.0).astype(np.float32),
            text=[
                [_told(name, share, group) for share, group in zip(row.tolist(), laid.groups, strict=True)]
                for (name, _), row in zip(_COVERAGE, known, strict=True)
            ],
            zmin=-1,
            zmax=1,
            colorscale=((0.0, UNKNOWN), (0.499, UNKNOWN), (0.5, RED), (0.95, ORANGE), (0.99, SKY), (1.0, BLUE)),
            showscale=False,
            ygap=4,
            hovertemplate="%{text}<extra></extra>",
        )
    )
    figure.update_yaxes(autorange="reversed", showgrid=False, zeroline=False)
    figure.update_layout(hovermode="closest", margin={"l": 84, "t": 40})
    return figure


def _coverage(group: tuple[StepPoint, ...], name: str) -> float:
    """Return the least share of a column's points; NaN where none is known."""
    shares = [point.values[name] for point in group if name in point.values]
    if not shares:
        return float("nan")
    if name == "nan_tokens":
        return _NOT_FINITE if _not_finite(group) else 1.0
    return 1.0 if name == "reward_mean" else min(shares)


def _not_finite(group: Sequence[StepPoint]) -> int:
    return int(sum(point.values.get(name, 0.0) for point in group for name in ("nan_tokens", "inf_tokens")))


def _told(name: str, share: float, group: Sequence[StepPoint]) -> str:
    if not share > 0:
        return f"{name}: unknown"
    if name == "finite":
        return f"NaN or infinite: {_not_finite(group):,} tokens"
    return "reward: reported" if name == "reward" else f"{name}: {share:.1%} of tokens"


def loss(points: Sequence[StepPoint], *, versions: Sequence[VersionRecord] = ()) -> go.Figure:
    """Draw the mean loss as the trainer reported it."""
    title = "Loss"
    drawn = line(points, "loss_mean")
    if not drawn.is_known:
        return empty(title, "This run reports no loss: client.report(step, loss=...)")
    figure = frame(title, x=step_title(points), y="mean loss")
    add_line(figure, drawn, "loss", GREY)
    mark_versions(figure, points, versions)
    return figure
