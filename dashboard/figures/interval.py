"""The clip interval as a picture: PPO's band, SAT's inside it, and the outward band that is newly intercepted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import plotly.graph_objects as go

from satwatch._dashboard.figures.frame import empty, frame
from satwatch._dashboard.figures.palette import BAND, BLUE, GREY, ORANGE, RED, faint
from satwatch._dashboard.figures.series import Floats
from satwatch.sat.interval import hill
from satwatch.types import Rule

_TITLE: Final = "The clip interval, by log-ratio"
_HEIGHT: Final = 420
_SIDE_POINTS: Final = 400


@dataclass(frozen=True, slots=True)
class Interval:
    """Clip bounds over scores.

    Attributes:
        score: what is judged, nats, ascending.
        low: the lower bound of the ratio.
        high: the upper one.
        intercepted: the ratio lies inside PPO's interval and outside this one.
    """

    score: Floats
    low: Floats
    high: Floats
    intercepted: np.typing.NDArray[np.bool_]


def interval(rule: Rule, q: float) -> Interval:
    """Compute the bounds of the scores around q, both sides of the jump at q among them.

    Args:
        rule: radii, exponent, and whether the rule is on.
        q: the quantile reference; NaN, 0 and infinity shut the gate.
    """
    gates = rule.enabled and 0 < q < math.inf
    reach = 1.25 * max(math.log1p(rule.eps_high), -math.log1p(-rule.eps_low), min(3 * q, 2.0) if gates else 0.0)
    side = np.linspace(0.0, reach, _SIDE_POINTS)
    if gates:
        # Just above q is where the contraction begins, with a jump to half the radius.
        side = np.unique(np.concatenate([side, [q, np.nextafter(q, math.inf)], np.geomspace(q, max(reach, 2 * q), 80)]))
    edges = [math.log1p(rule.eps_high), -math.log1p(-rule.eps_low)]
    side = np.unique(np.concatenate([side, edges]))
    factor = np.where(side > q, hill(side, q, rule.exponent), 1.0) if gates else np.ones_like(side)
    score = np.concatenate([-side[::-1], side[1:]])
    low = 1.0 - rule.eps_low * np.concatenate([factor[::-1], np.ones(len(side) - 1)])
    high = 1.0 + rule.eps_high * np.concatenate([np.ones(len(side)), factor[1:]])
    ratio = np.exp(score)
    inside = (ratio <= 1.0 + rule.eps_high) & (ratio >= 1.0 - rule.eps_low)
    return Interval(score, low, high, inside & ((ratio > high) | (ratio < low)))


def interval_picture(rule: Rule, q: float | None) -> go.Figure:
    """Draw the clip bounds against the log-ratio under a rule, at a quantile reference.

    Args:
        rule: radii, exponent, level, and whether the rule is on.
        q: of the step, nats; None where it is unknown.

    Returns:
        PPO's band dashed, the contracted one filled, the ratio exp(d) as a curve, and hatched what the contraction
        newly intercepts: ratios that PPO lets through and SAT does not.
    """
    if q is None or math.isnan(q):
        return empty(
            _TITLE, "No quantile reference in this step: PPO's interval holds for every token.", height=_HEIGHT
        )
    drawn = interval(rule, q)
    score = "d" if rule.level == "token" else "mean d of the response"
    figure = frame(_TITLE, x=f"{score} = log π - log μ (nats)", y="ratio r = exp(d)", height=_HEIGHT)
    _add_band(figure, drawn)
    _add_intercepted(figure, drawn, rule)
    for edge in (1.0 - rule.eps_low, 1.0 + rule.eps_high):
        figure.add_trace(_curve(drawn.score, np.full(len(drawn.score), edge), "PPO's interval", GREY, "dash"))
    figure.data[-1].showlegend = True
    figure.add_trace(_curve(drawn.score, np.exp(drawn.score), "ratio r = exp(d)", RED, "solid"))
    figure.data[-1].showlegend = True
    _say_inside(figure, rule, q)
    room = 0.35 * (rule.eps_low + rule.eps_high)
    figure.update_yaxes(range=[1.0 - rule.eps_low - room, 1.0 + rule.eps_high + room])
    figure.update_xaxes(range=[float(drawn.score[0]), float(drawn.score[-1])], hoverformat=".4f", zeroline=False)
    return figure


def _curve(x: Floats, y: Floats, name: str, colour: str, dash: str) -> go.Scatter:
    return go.Scatter(
        x=x,
        y=y,
        name=name,
        mode="lines",
        line={"color": colour, "width": 1.6, "dash": dash},
        showlegend=False,
        legendgroup=name,
        hovertemplate="%{y:.4f}",
    )


def _add_band(figure: go.Figure, drawn: Interval) -> None:
    low = _curve(drawn.score, drawn.low, "SAT's interval", BLUE, "solid")
    high = _curve(drawn.score, drawn.high, "SAT's interval", BLUE, "solid")
    high.update(fill="tonexty", fillcolor=faint(BLUE, 0.18), showlegend=True)
    figure.add_traces([low, high])


def _add_intercepted(figure: go.Figure, drawn: Interval, rule: Rule) -> None:
    """Hatch each side's band from SAT's bound to PPO's, over the log-ratios whose ratio lies between the two."""
    sides = (
        (drawn.intercepted & (drawn.score > 0), drawn.high, 1.0 + rule.eps_high, "A > 0"),
        (drawn.intercepted & (drawn.score < 0), drawn.low, 1.0 - rule.eps_low, "A < 0"),
    )
    shown = False
    for where, bound, edge, advantage in sides:
        if not where.any():
            continue
        x = drawn.score[where]
        figure.add_trace(
            go.Scatter(
                x=np.concatenate([x, x[::-1]]),
                y=np.concatenate([bound[where], np.full(len(x), edge)]),
                fill="toself",
                mode="lines",
                line={"width": 0, "color": ORANGE},
                fillcolor=faint(ORANGE, 0.12),
                fillpattern={"shape": "/", "fgcolor": ORANGE, "size": 7, "solidity": 0.25},
                name="newly intercepted outward band",
                legendgroup="intercepted",
                showlegend=not shown,
                hoverinfo="skip",
                meta={"advantage": advantage},
            )
        )
        shown = True


def _say_inside(figure: go.Figure, rule: Rule, q: float) -> None:
    """Mark the log-ratios up to q, which keep the nominal interval."""
    if not rule.enabled:
        said = "the rule is off: PPO's interval everywhere"
    elif not 0 < q < math.inf:
        said = f"q = {q:g}: the gate is shut, PPO's interval everywhere"
    else:
        said = f"{rule.quantile:.0%} of the {'tokens' if rule.level == 'token' else 'responses'}: |d| ≤ q = {q:.3g}"
        figure.add_vrect(x0=-q, x1=q, fillcolor=BAND, line_width=0, layer="below")
    font = {"size": 12, "color": GREY}
    figure.add_annotation(x=0, y=1, yref="paper", yanchor="bottom", text=said, showarrow=False, font=font)
