"""Two runs, or more, over the same steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import plotly.graph_objects as go

from satwatch._dashboard.figures.frame import empty, frame, step_title
from satwatch._dashboard.figures.palette import LINES
from satwatch._dashboard.figures.series import add_line, line
from satwatch.types import StepPoint

# What two runs are compared by, with the title and the unit of each.
COMPARED: Final[Mapping[str, tuple[str, str]]] = {
    "log_ratio_abs_mean": ("Mean mismatch", "mean |d| (nats)"),
    "log_ratio_abs_q0.99": ("Tail: 99% quantile", "|d| (nats)"),
    "quantile_reference": ("Quantile reference q", "|d| (nats)"),
    "ess_ratio": ("Effective sample size", "ESS / tokens"),
    "tail_index": ("Tail index", "tail index"),
    "version_lag_mean": ("Mean version lag", "versions"),
    "reward_mean": ("Reward", "mean reward"),
    "clip_fraction": ("Clipped tokens", "share of tokens"),
    "intercepted_fraction": ("Newly intercepted tokens", "share of tokens"),
    "delta_impl_abs_mean": ("Engine noise", "mean |δ impl| (nats)"),
    "delta_policy_abs_mean": ("Policy drift", "mean |δ policy| (nats)"),
    "router_flip_rate": ("Router flip rate", "share of (token, layer) pairs"),
    "response_length_mean": ("Response length", "tokens"),
    "loss_mean": ("Loss", "mean loss"),
}


def compare(runs: Mapping[str, Sequence[StepPoint]], name: str, *, aligned: bool = True) -> go.Figure:
    """Draw one diagnostic of several runs over each other.

    Args:
        runs: the steps of each, by what it is called in the legend.
        name: the diagnostic, of ``COMPARED`` or any other.
        aligned: each run's first step is drawn at 0.
    """
    title, unit = COMPARED.get(name, (name, name))
    placed = {label: align(points) if aligned else list(points) for label, points in runs.items()}
    drawn = {label: line(points, name) for label, points in placed.items()}
    known = {label: one for label, one in drawn.items() if one.is_known}
    if not known:
        return empty(title, "None of these runs has it.")
    axis = step_title([point for points in placed.values() for point in points])
    figure = frame(title, x=axis.replace("step", "step since the first shown", 1) if aligned else axis, y=unit)
    colours = dict(zip(drawn, LINES * (1 + len(drawn) // len(LINES)), strict=False))
    for label, one in known.items():
        add_line(figure, one, label, colours[label], form=".4g")
    missing = [label for label in drawn if label not in known]
    if missing:
        _say_missing(figure, missing)
    return figure


def align(points: Sequence[StepPoint]) -> list[StepPoint]:
    """Return the points with steps counted from the first one's."""
    if not points:
        return []
    first = points[0].first_step
    return [replace(p, first_step=p.first_step - first, last_step=p.last_step - first) for p in points]


def _say_missing(figure: go.Figure, labels: Sequence[str]) -> None:
    figure.add_annotation(
        text=f"unknown: {', '.join(labels)}",
        xref="paper",
        yref="paper",
        x=1,
        y=1,
        xanchor="right",
        yanchor="top",
        showarrow=False,
        font={"size": 11},
    )
