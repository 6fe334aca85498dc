"""What the rule does to a run: q, radii, contraction, and the tokens it intercepts beyond PPO."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from satwatch._dashboard.figures.frame import empty, frame, log_axis, mark_versions, step_title, threshold
from satwatch._dashboard.figures.palette import BLUE, GREY, ORANGE, PURPLE, SKY
from satwatch._dashboard.figures.series import Area, Line, add_line, add_stack, line, stack_of
from satwatch.types import Rule, StepPoint, VersionRecord


def reference(points: Sequence[StepPoint], *, versions: Sequence[VersionRecord] = ()) -> go.Figure:
    """Draw the quantile reference q, and the mean mismatch beside it."""
    title = "Quantile reference q: where the tail begins"
    q = line(points, "quantile_reference")
    if not q.is_known:
        return empty(title, "No step shown has a quantile reference.")
    figure = frame(title, x=step_title(points), y="|d| (nats)")
    add_line(figure, q, "q", BLUE, width=2.2, unit="nats")
    mean = line(points, "log_ratio_abs_mean")
    if mean.is_known:
        add_line(figure, mean, "mean |d|", GREY, dash="dot", unit="nats")
    figure.update_yaxes(rangemode="tozero")
    mark_versions(figure, points, versions)
    return figure


def radii(points: Sequence[StepPoint], rule: Rule, *, versions: Sequence[VersionRecord] = ()) -> go.Figure:
    """Draw the mean clip radii, low and high, under the nominal ones of the rule."""
    title = "Clip radii: how much of PPO's room is left"
    low, high = line(points, "clip_radius_low_mean"), line(points, "clip_radius_high_mean")
    if not (low.is_known or high.is_known):
        return empty(title, "No step shown has a token.")
    figure = frame(title, x=step_title(points), y="mean clip radius")
    add_line(figure, high, "high", ORANGE)
    add_line(figure, low, "low", BLUE)
    nominal = sorted({rule.eps_low, rule.eps_high})
    for radius in nominal:
        side = "" if len(nominal) == 1 else ("low " if radius == rule.eps_low else "high ")
        threshold(figure, radius, f"nominal {side}{radius:g}")
    mark_versions(figure, points, versions)
    return figure


def contraction(points: Sequence[StepPoint], *, versions: Sequence[VersionRecord] = ()) -> go.Figure:
    """Draw the strongest contraction of each step, on a log axis: 1 is untouched, 0, at the lower end, is closed."""
    title = "Strongest contraction"
    least = line(points, "contraction_min")
    if not least.is_known:
        return empty(title, "No step shown has a token.")
    figure = frame(title, x=step_title(points), y="smallest factor c")
    bottom = log_axis(figure, least.y, most=1.0)
    add_line(figure, Line(least.x, np.maximum(least.y, bottom)), "smallest c", BLUE)
    figure.data[-1].update(customdata=least.y, hovertemplate="%{customdata:.3g}")
    figure.update_layout(showlegend=False)
    mark_versions(figure, points, versions)
    return figure


def tail_index(points: Sequence[StepPoint], *, versions: Sequence[VersionRecord] = ()) -> go.Figure:
    """Draw Hill's estimator of the tail: the mean of log(abs(score) / q) over the gated tokens."""
    title = "Tail index: how heavy the tail is beyond q"
    index = line(points, "tail_index")
    if not index.is_known:
        return empty(title, "No step shown has a gated token.")
    figure = frame(title, x=step_title(points), y="mean log(|d| / q)")
    add_line(figure, index, "tail index", PURPLE, form=".3f")
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=False)
    mark_versions(figure, points, versions)
    return figure


def clip_fractions(points: Sequence[StepPoint], *, versions: Sequence[VersionRecord] = ()) -> go.Figure:
    """Draw the share of tokens without a gradient: what PPO clips, and on top what the contracted bounds intercept."""
    title = "Clipped tokens, and the outward band newly intercepted"
    parts = stack_of(points, _clipped)
    if not any(part.is_known for part in parts):
        return empty(title, "This run sends no advantages: clip fractions are unknown.<br>Pass advantage=...")
    figure = frame(title, x=step_title(points), y="share of tokens")
    areas = (
        Area("clipped by PPO too", BLUE, " of tokens", ".3%"),
        Area("newly intercepted", ORANGE, " of tokens", ".3%", hatched=True),
    )
    add_stack(figure, parts, areas)
    figure.update_yaxes(tickformat=".1~%", rangemode="tozero")
    mark_versions(figure, points, versions)
    return figure


def _clipped(point: StepPoint) -> tuple[float, float] | None:
    ppo, extra = point.values.get("clip_fraction_ppo"), point.values.get("intercepted_fraction")
    return None if ppo is None or extra is None else (ppo, extra)


def divergence(points: Sequence[StepPoint], *, versions: Sequence[VersionRecord] = ()) -> go.Figure:
    """Draw the usual estimates of how far policy and rollout are apart: KL (k1 to k3) and total variation."""
    title = "KL and total variation, sampled"
    names = (("KL, k1", "kl_k1"), ("KL, k2", "kl_k2"), ("KL, k3", "kl_k3"), ("total variation", "tv_sampled"))
    drawn = [(name, line(points, value)) for name, value in names]
    if not any(one.is_known for _, one in drawn):
        return empty(title, "No token in these steps has a finite log-ratio.")
    figure = frame(title, x=step_title(points), y="KL (nats), TV")
    for (name, one), colour in zip(drawn, (GREY, SKY, BLUE, PURPLE), strict=True):
        if one.is_known:
            add_line(figure, one, name, colour, unit="nats" if name.startswith("KL") else "")
    mark_versions(figure, points, versions)
    return figure
