"""The page *Compare*: two runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final, TypeAlias

import streamlit as st

from satwatch._dashboard import banner, download, empty
from satwatch._dashboard.chart import chart
from satwatch._dashboard.drawn import drawn
from satwatch._dashboard.figures import COMPARED, compare, tail_heat_map, tail_view
from satwatch._dashboard.sidebar import keep, kept
from satwatch._dashboard.tiles import known
from satwatch._dashboard.view import View
from satwatch._dashboard.wording import moment, number, share
from satwatch.types import RunRecord, StepPoint

Row: TypeAlias = dict[str, str]

SHOWN_FIRST: Final = (
    "log_ratio_abs_mean",
    "log_ratio_abs_q0.99",
    "ess_ratio",
    "version_lag_mean",
    "reward_mean",
    "clip_fraction",
)


def draw(view: View) -> None:
    """Draw the page."""
    banner.title(view, "Compare")
    others = [life for life in view.lives if life.life != view.record.life]
    if not others:
        empty.note("There is one run here: two are needed. Another run, or a restart of this one, shows up by itself.")
        return
    other = view.of_run(_choose(others, view.record))
    if not view.points or not other.points:
        empty.note(empty.NO_STEPS)
        return
    names = name_of(view.record, other.record), name_of(other.record, view.record)
    runs = {names[0]: view.points, names[1]: other.points}
    shown = st.pills(
        "Show",
        list(COMPARED),
        selection_mode="multi",
        default=SHOWN_FIRST,
        format_func=lambda name: COMPARED[name][0],
        key="compared",
    )
    is_aligned = st.toggle("Align at the first step shown", value=True, key="aligned")
    rows = compared_rows(names, view.points, other.points)
    st.dataframe(rows, hide_index=True, height=35 * (1 + len(rows)) + 2)
    st.caption("Median over the steps shown. The last column is the second run's over the first's.")
    columns = st.columns(2)
    for i, name in enumerate(shown):
        with columns[i % 2]:
            chart(drawn(compare, runs, name, aligned=is_aligned), f"compare {name}")
    shared = tail_view(view.points, other.points)
    for column, (label, side) in zip(st.columns(2), ((names[0], view), (names[1], other)), strict=True):
        with column:
            chart(
                drawn(
                    tail_heat_map,
                    side.points,
                    versions=side.versions,
                    height=340,
                    title=f"The tail of {label}",
                    view=shared,
                ),
                f"compare tail {side.record.life}",
            )
    download.buttons(
        view.record,
        "compare",
        lambda: [{"run": name, **row} for name, points in runs.items() for row in download.step_rows(points)],
        lambda: [{"run": name, "steps": points} for name, points in runs.items()],
    )


def compared_rows(names: Sequence[str], first: Sequence[StepPoint], second: Sequence[StepPoint]) -> list[Row]:
    """Return a row a diagnostic that either run has: both medians, and one over the other."""
    rows: list[Row] = []
    for name, (title, unit) in COMPARED.items():
        a, b = (median(values) if values else None for values in (known(first, name), known(second, name)))
        if a is None and b is None:
            continue
        # Of a loss, which may be negative, it says nothing.
        ratio = "" if a is None or b is None or a <= 0 or b < 0 else f"{b / a:.2f}"
        write = share if name == "ess_ratio" or unit.startswith("share") else number
        rows.append({"diagnostic": title, "unit": unit, names[0]: write(a), names[1]: write(b), "ratio": ratio})
    return rows


def name_of(record: RunRecord, other: RunRecord) -> str:
    """Return what a run is called beside another: with its life where both are one run's."""
    return record.run if record.run != other.run else f"{record.run} (life {record.life})"


def _choose(others: Sequence[RunRecord], record: RunRecord) -> RunRecord:
    """Ask which run to compare with; another run is proposed before another life of this one."""
    by_life = {life.life: life for life in others}
    if st.session_state.get("other") not in by_life:
        proposed = next((life.life for life in others if life.run != record.run), others[0].life)
        st.session_state["other"] = kept("other") if kept("other") in by_life else proposed
    chosen = st.selectbox(
        "Compare with",
        list(by_life),
        format_func=lambda life: f"{by_life[life].run}, life {life}, from {moment(by_life[life].opened_at)}",
        key="other",
    )
    keep("other", chosen)
    return by_life[chosen]
