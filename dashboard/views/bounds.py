"""The page *Bounds*: what the rule does to the clip interval, and to which tokens."""

from __future__ import annotations

import math
from typing import Final

import streamlit as st

from satwatch._dashboard import banner, download, empty, tiles
from satwatch._dashboard.chart import chart
from satwatch._dashboard.drawn import drawn
from satwatch._dashboard.figures import (
    clip_fractions,
    contraction,
    divergence,
    interval,
    interval_picture,
    radii,
    reference,
    tail_index,
    tail_quantiles,
)
from satwatch._dashboard.tiles import Tile
from satwatch._dashboard.view import View
from satwatch._dashboard.wording import share
from satwatch.types import Rule

TILES: Final = (
    Tile(
        "q",
        "quantile_reference",
        "The quantile reference: where the tail begins. It grows when the whole batch is stale; the gate, which is "
        "relative to it, does not show that.",
        better="low",
        unit="nats",
    ),
    Tile(
        "Radius low",
        "clip_radius_low_mean",
        "Mean lower clip radius over all tokens; the nominal one if nothing is contracted.",
        better="neither",
    ),
    Tile(
        "Radius high",
        "clip_radius_high_mean",
        "Mean upper clip radius over all tokens; the nominal one if nothing is contracted.",
        better="neither",
    ),
    Tile(
        "Smallest factor",
        "contraction_min",
        "The strongest contraction of any token: near 0 where the tail reaches far beyond q.",
        better="neither",
    ),
    Tile(
        "Intercepted",
        "intercepted_fraction",
        "Share of the tokens whose gradient SAT stops and PPO would not. Unknown without advantage=.",
        share,
        "neither",
    ),
)


def draw(view: View) -> None:
    """Draw the page."""
    banner.title(view, "Bounds")
    points, last, rule = view.points, view.last, view.record.rule
    if not points or last is None:
        empty.no_steps(view.record)
        return
    if not rule.enabled:
        st.info(
            "The rule is off in this run (`enabled=False`): every token keeps PPO's interval, and q is watched only.",
            icon=":material/toggle_off:",
        )
    tiles.show(TILES, points, last)
    q = last.values.get("quantile_reference")
    chart(
        interval_picture(rule, q),
        "interval",
        f"Step {last.last_step}: quantile {rule.quantile:g}, radii {rule.eps_low:g} and {rule.eps_high:g}, exponent "
        f"{rule.exponent:g}, {rule.level} level, q over the {rule.scope}. A token beyond q keeps less room on the side "
        f"that it has moved to; {_hatched(rule, q)}",
    )
    _reference_and_radii(view)
    _work(view)
    _tail(view)
    chart(
        drawn(divergence, points, versions=view.versions),
        "divergence",
        "Estimates from the sampled tokens, which agree while d is small.",
    )
    download.buttons(view.record, "bounds", lambda: download.step_rows(points), lambda: points)


def _hatched(rule: Rule, q: float | None) -> str:
    """Say what the picture hatches, or why it does not."""
    if rule.enabled and q is not None and 0 < q < math.inf and not interval(rule, q).intercepted.any():
        return "q lies beyond PPO's own bounds, so nothing more is intercepted: the whole batch has moved far."
    return "hatched is what PPO would have let through."


def _reference_and_radii(view: View) -> None:
    left, right = st.columns(2)
    with left:
        chart(
            drawn(reference, view.points, versions=view.versions),
            "reference",
            "Rising with the mean: the whole batch is stale, and the gate, relative to q, does not tell.",
        )
    with right:
        chart(
            drawn(radii, view.points, view.record.rule, versions=view.versions),
            "radii",
            "Never above the nominal line: the bounds are never looser than PPO's.",
        )


def _work(view: View) -> None:
    """Show what the rule does to the tokens."""
    left, right = st.columns(2)
    with left:
        chart(
            drawn(clip_fractions, view.points, versions=view.versions),
            "clip fractions",
            "The hatched band is SAT's own work. If it vanishes while q grows, the whole batch is stale.",
        )
    with right:
        chart(
            drawn(contraction, view.points, versions=view.versions),
            "contraction",
            "Of the token furthest beyond q: near 0, it has no room left on its side.",
        )


def _tail(view: View) -> None:
    """Show what the rule answers to."""
    left, right = st.columns(2)
    with left:
        chart(
            drawn(tail_quantiles, view.points, versions=view.versions),
            "tail quantiles",
            "The upper lines alone rising: a tail. All of them: the whole batch.",
        )
    with right:
        chart(
            drawn(tail_index, view.points, versions=view.versions),
            "tail index",
            "Above 1 at a mismatch above 0.01 nats: a few tokens far out, no stale batch.",
        )
