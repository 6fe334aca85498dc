"""The page *Lag*: how old the tokens are, where they grew old, and whether that was to be expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import streamlit as st

from satwatch._dashboard import banner, download, empty, proven, tiles
from satwatch._dashboard.chart import chart
from satwatch._dashboard.drawn import drawn
from satwatch._dashboard.expected_lag import ask_forecast
from satwatch._dashboard.figures import (
    lag_against_forecast,
    lag_by_length,
    lag_heat_map,
    lag_parts,
    merged_lengths,
    mismatch_by_lag,
)
from satwatch._dashboard.place import place
from satwatch._dashboard.tiles import Tile
from satwatch._dashboard.view import View
from satwatch._dashboard.wording import count, literal, number, plural, share
from satwatch.types import StepPoint

TILES: Final = (
    Tile(
        "Lag N",
        "version_lag_mean",
        "Its policy's version minus a token's, mean over tokens.",
        unit="versions",
    ),
    Tile("Oldest", "version_lag_max", "The largest lag of a token of the step.", count, unit="versions"),
    Tile(
        "Generated",
        "version_lag_generation_mean",
        "N_PQS: versions published from a token to the end of its response, mean. Long responses raise it.",
        unit="versions",
    ),
    Tile(
        "Waited",
        "version_lag_queue_mean",
        "N_IQS: versions between the one that the response ended with and the one of its step. A long queue raises it, "
        "and so does an engine that is behind.",
        unit="versions",
    ),
    Tile(
        "Versions known",
        "version_coverage_ratio",
        "Share of the tokens that came with the version that sampled them. Below 100%, the lag of the rest is unknown.",
        share,
        "high",
    ),
)


def draw(view: View) -> None:
    """Draw the page."""
    banner.title(view, "Lag")
    points = view.points
    if not points:
        empty.no_steps(view.record)
        return
    if not any(point.lags for point in points):
        empty.note(empty.NO_VERSIONS)
        return
    tiles.show(TILES, points, view.last)
    with place():
        _say_negative(points)
        _say_doubtful(view)
        if not any(point.generation_lags for point in points):
            empty.note(empty.NO_SPLIT)
    chart(
        drawn(lag_heat_map, points, versions=view.versions),
        "lag heat",
        "A healthy run keeps to a few rows. One that climbs with the steps is an engine or a queue at a halt.",
    )
    _by_part(view)
    _explained(view)
    rows = length_rows(points)
    if rows:
        with st.expander("Lag by response length, in numbers"):
            st.dataframe(rows, hide_index=True)
    download.buttons(
        view.record, "lag", lambda: [download.fields_of(row) for row in merged_lengths(points)], lambda: points
    )


def length_rows(points: Sequence[StepPoint]) -> list[dict[str, object]]:
    """Return a row for responses of like length, shortest first."""
    return [
        {
            "longest": row.longest,
            "responses": row.responses,
            "tokens": row.length,
            "lag": number(row.lag / row.tokens if row.tokens else None),
            "N_PQS": number(row.generation_lag / row.split_tokens if row.split_tokens else None),
            "N_IQS": number(row.queue_lag / row.split_tokens if row.split_tokens else None),
        }
        for row in merged_lengths(points)
    ]


def _say_negative(points: Sequence[StepPoint]) -> None:
    found = [point for point in points if point.values.get("negative_lag_tokens", 0.0) > 0]
    if found:
        negative = sum(point.values["negative_lag_tokens"] for point in found)
        st.error(
            f"A negative lag ({plural(negative, 'token')}, first at step {found[0].first_step}): a version newer than "
            "the policy that consumed it. Such tokens are in no figure below. Is `policy_version` passed before it is "
            "raised?",
            icon=":material/history_toggle_off:",
        )


def _say_doubtful(view: View) -> None:
    """Say where a canary shows that the versions which the lag is counted from are not those of the weights."""
    newest = {record.status.engine: record.status for record in view.engines}
    for status in newest.values():
        if proven.is_contradicted(status):
            behind = proven.lag(status)
            by = "other weights than it says" if behind is None else f"weights {plural(behind, 'version')} old"
            st.warning(
                f"The lag below is what responses name. By its canary, {literal(status.engine)} serves {by}: its "
                "tokens are older than they say.",
                icon=":material/gpp_maybe:",
            )


def _by_part(view: View) -> None:
    left, right = st.columns(2)
    with left:
        chart(
            drawn(lag_parts, view.points, versions=view.versions),
            "lag parts",
            "Blue: versions published while a response was made; orange: while it waited, or while its engine was "
            "behind.",
        )
    with right:
        chart(
            drawn(lag_by_length, view.points),
            "lag by length",
            "Blue that rises with length is a long tail of responses; even orange is the queue, or an engine that is "
            "behind.",
        )


def _explained(view: View) -> None:
    forecast = ask_forecast(view)
    left, right = st.columns(2)
    with left:
        chart(
            drawn(
                lag_against_forecast,
                view.points,
                generation=forecast.generation,
                queue=forecast.queue,
                versions=view.versions,
            ),
            "lag forecast",
            forecast.says,
        )
    with right:
        chart(
            drawn(mismatch_by_lag, view.points),
            "mismatch by lag",
            "Lag is not staleness: mismatch that rises without lag points to an engine.",
        )
