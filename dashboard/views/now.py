"""The page *Now*: is this run healthy, and if not, since when?"""

from __future__ import annotations

from typing import Final

import streamlit as st

from satwatch._dashboard import banner, download, empty, paging, tiles
from satwatch._dashboard.chart import chart
from satwatch._dashboard.drawn import drawn
from satwatch._dashboard.figures import coverage_strip, ess, loss, mismatch, reward, tail_heat_map
from satwatch._dashboard.place import place
from satwatch._dashboard.tiles import Tile
from satwatch._dashboard.view import View
from satwatch._dashboard.wording import number, share

TILES: Final = (
    Tile(
        "Mismatch d̄",
        "log_ratio_abs_mean",
        "Mean |d| over all tokens, nats. 0.006 to 0.011 in the paper's healthy runs, above 0.03 in its spikes.",
        unit="nats",
    ),
    Tile(
        "Tail, 99%",
        "log_ratio_abs_q0.99",
        "99% of the tokens have |d| of at most this. It moves before the mean does.",
        unit="nats",
    ),
    Tile(
        "ESS",
        "ess_ratio",
        "The share of the tokens that importance weights leave effective. People warn below 30% and stop below 10%.",
        share,
        "high",
    ),
    Tile(
        "Version lag",
        "version_lag_mean",
        "Versions between the policy that sampled a token and the one that learns from it, mean over tokens. Unknown "
        "without behavior_version and policy_version.",
        unit="versions",
    ),
    Tile("Reward", "reward_mean", "Mean reward, as client.report(step, reward=...) told it.", number, "high"),
)


def draw(view: View) -> None:
    """Draw the page."""
    banner.title(view, "Now")
    banner.show(view)
    _ways_on(view)
    points = view.points
    if not points:
        empty.no_steps(view.record)
        return
    tiles.show(TILES, points, view.last)
    chart(
        drawn(tail_heat_map, points, versions=view.versions),
        "tail",
        "Every token of every step, by how far it has moved from the policy that sampled it. A healthy run is a level "
        "band. Staleness lifts the upper edge, a bad engine lifts all of it, bad data is a haze of single tokens far "
        "above. Above the plot: published versions.",
    )
    with place():
        if not any(tiles.known(points, name) for name in ("delta_impl_abs_mean", "log_ratio_abs_mean_lag0")):
            empty.note(empty.NO_FLOOR)
    _floor_and_ess(view)
    _outcome(view)
    chart(
        drawn(coverage_strip, points),
        "coverage",
        "Grey is unknown. Unknown is not zero: nothing is concluded from it. Red in the last row: some token is NaN or "
        "infinite.",
    )
    download.buttons(view.record, "steps", lambda: download.step_rows(points), lambda: points)


def _ways_on(view: View) -> None:
    """Offer what to look at next."""
    worst = view.worst
    with st.container(horizontal=True):
        if worst is not None and worst.engine:
            paging.engine_page(worst.engine, "first engine")
        if worst is not None and worst.step is not None:
            paging.tokens_of(worst.step, "first tokens")
        if view.events:
            paging.alerts_page(len(view.verdict.alerts), "alerts", is_over=not view.record.is_open)


def _floor_and_ess(view: View) -> None:
    left, right = st.columns(2)
    with left:
        chart(
            drawn(mismatch, view.points, versions=view.versions, engines=view.engines),
            "mismatch",
            "What lies above the floor is policy drift: less lag lowers it. The floor itself is engine noise, which no "
            "schedule lowers; an engine with wrong weights lifts it.",
        )
    with right:
        chart(drawn(ess, view.points, versions=view.versions), "ess", "Falling: a few tokens carry the whole update.")


def _outcome(view: View) -> None:
    """Show reward and loss, as far as the trainer reports them."""
    points = view.points
    has_reward, has_loss = (bool(tiles.known(points, name)) for name in ("reward_mean", "loss_mean"))
    with place():
        if not has_reward:
            empty.note(empty.NO_REWARD)
    shown = [
        (reward, "reward", "Does the run learn? Beside the tail it tells harmless staleness from harmful."),
        (loss, "loss", "As the trainer reports it."),
    ]
    shown = [figure for figure, is_known in zip(shown, (has_reward, has_loss), strict=True) if is_known]
    for column, (figure, key, says) in zip(st.columns(len(shown) or 1), shown, strict=False):
        with column:
            chart(drawn(figure, points, versions=view.versions), key, says)
