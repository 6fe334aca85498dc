"""The page *Routing*: do engine and trainer send the tokens to the same experts?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import streamlit as st

from satwatch._dashboard import banner, download, empty, tiles
from satwatch._dashboard.chart import chart
from satwatch._dashboard.drawn import drawn
from satwatch._dashboard.figures import flip_rate_heat_map, flip_rates
from satwatch._dashboard.tiles import Tile
from satwatch._dashboard.view import View
from satwatch._dashboard.wording import number, share
from satwatch.types import StepPoint

TILES: Final = (
    Tile(
        "Flip rate",
        "router_flip_rate",
        "Share of (token, layer) pairs whose expert sets differ. Published runs: 10% without replay; 0 with it.",
        share,
    ),
    Tile(
        "Tokens with a flip",
        "router_token_flip_rate",
        "Share of the tokens with at least one layer that differs. Published runs without replay have about 94%.",
        share,
    ),
    Tile("Experts that differ", "router_expert_disagreement", "Mean of 1 - intersection / K.", share),
    Tile(
        "Routes known", "router_coverage", "Share of the tokens that came with a route from both sides.", share, "high"
    ),
)


def draw(view: View) -> None:
    """Draw the page."""
    banner.title(view, "Routing")
    points = view.points
    if not points:
        empty.no_steps(view.record)
        return
    known = [point for point in points if point.layer_flip_rates]
    if not known:
        empty.note(empty.NO_ROUTES)
        return
    tiles.show(TILES, points, view.last)
    _say_replay(points)
    chart(
        drawn(flip_rate_heat_map, points, versions=view.versions),
        "flip rates by layer",
        "A row that stands out is one layer whose router is computed otherwise (precision, kernel). All rows at once, "
        "from one step on, is replay that ended.",
    )
    chart(drawn(flip_rates, points, versions=view.versions), "flip rates")
    rows = layer_rows(known[-1])
    with st.expander(f"Layers of step {known[-1].last_step}, in numbers"):
        st.dataframe(rows, hide_index=True)
    download.buttons(
        view.record, "routing", lambda: [layer for point in known for layer in layer_data(point)], lambda: known
    )


def layer_rows(point: StepPoint) -> list[dict[str, object]]:
    """Return a row a layer, the one that flips most first."""
    return [{**row, "flip_rate": number(row["flip_rate"], 5)} for row in layer_data(point)]


def layer_data(point: StepPoint) -> list[dict[str, float]]:
    """Return the same rows as they are kept, all digits included."""
    ordered = sorted(point.layer_flip_rates.items(), key=lambda item: (-item[1], item[0]))
    return [{"step": point.last_step, "layer": layer, "flip_rate": rate} for layer, rate in ordered]


def replay(points: Sequence[StepPoint]) -> tuple[bool, str]:
    """Tell whether expert sets agreed in every step shown, and say it in a sentence.

    Args:
        points: the steps; at least one has a flip rate.
    """
    name = "router_flip_rate"
    rates = [(point.last_step, point.values[name]) for point in points if name in point.values]
    flipped = [step for step, rate in rates if rate > 0]
    if not flipped:
        return True, f"Replay check: engine and trainer chose the same experts in all {len(rates)} steps shown."
    began = [step for step, rate in rates if rate == 0]
    since = f", first at step {flipped[0]}" if began and began[0] < flipped[0] else ""
    return False, (
        f"Replay check: expert sets differ in {len(flipped)} of {len(rates)} steps shown{since}; in the last one, in "
        f"{share(rates[-1][1])} of all (token, layer). That is ordinary without routing replay; with it, it is off."
    )


def _say_replay(points: Sequence[StepPoint]) -> None:
    agrees, text = replay(points)
    if agrees:
        st.success(text, icon=":material/check_circle:")
    else:
        st.warning(text, icon=":material/alt_route:")
