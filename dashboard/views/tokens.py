"""The page *Tokens*: the tokens of a step that moved furthest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import streamlit as st

from satwatch._dashboard import banner, download, empty
from satwatch._dashboard.chart import chart
from satwatch._dashboard.figures import worst_tokens
from satwatch._dashboard.sidebar import keep, kept
from satwatch._dashboard.view import View
from satwatch._dashboard.wording import count, number
from satwatch.types import BatchRecord, StepPoint, WorstToken

BY: Final = ("version", "engine", "rank")


def draw(view: View) -> None:
    """Draw the page."""
    banner.title(view, "Tokens")
    if not view.points:
        empty.note(empty.NO_STEPS if view.record.steps else empty.NOT_A_STEP)
        return
    step = _choose_step(view)
    batches = view.batches(step)
    if not batches:
        empty.note(empty.NO_TOKENS)
        return
    rows = worst_rows(batches)
    left, middle, right = st.columns(3)
    left.metric("Batches", count(len(batches)), border=True)
    middle.metric("Tokens", count(sum(batch.values.get("tokens", 0.0) for batch in batches)), border=True)
    right.metric("Worst |d|", f"{number(_worst(batches))} nats", border=True)
    if not rows:
        empty.note(empty.NO_TOKENS)
        return
    by = st.segmented_control("Colour by", BY, default=BY[0], key="colour by") or BY[0]
    chart(
        worst_tokens(batches, by=by, q=_reference(batches)),
        "worst tokens",
        "One version, engine or position that holds most of the points is where to look. Points that are spread evenly "
        "are ordinary sampling.",
    )
    st.dataframe(rows, hide_index=True, height=420, column_config=_columns())
    st.caption("What a row lacks was not sent, or is no number. NaN comes first of all; d = log π - log μ.")
    download.buttons(f"tokens step {step}", lambda: [*rows], lambda: batches)


def worst_rows(batches: Sequence[BatchRecord]) -> list[dict[str, object]]:
    """Return the worst tokens of all batches, worst first: NaN, then by magnitude."""
    found = [(batch, token) for batch in batches for token in batch.worst]
    found.sort(key=lambda pair: (pair[1].log_ratio == pair[1].log_ratio, -abs(pair[1].log_ratio)))
    return [
        {
            "d": number(token.log_ratio, 5),
            "position": token.position,
            "response": token.sequence,
            "log μ": token.behavior_logprob,
            "log π": token.policy_logprob,
            "log π(l)": token.reference_logprob,
            "advantage": token.advantage,
            "version": token.version,
            "lag": _lag(batch, token),
            "engine": token.engine,
            "rank": batch.rank,
            "microbatch": batch.microbatch,
        }
        for batch, token in found
    ]


def _lag(batch: BatchRecord, token: WorstToken) -> int | None:
    if batch.policy_version is None or token.version is None:
        return None
    return batch.policy_version - token.version


def worst_step(points: Sequence[StepPoint]) -> int:
    """Return the step whose largest mismatch is the largest of all shown; of merged ones, the last."""
    return max(points, key=lambda point: (point.values.get("log_ratio_abs_max", -1.0), point.last_step)).last_step


def _choose_step(view: View) -> int:
    """Ask for the step; the link's, or else the worst one shown, stands there first."""
    state = st.session_state
    if "step" not in state:
        linked = kept("step")
        state["step"] = worst_step(view.points) if linked is None else linked
    asked, worst, newest = st.columns([2, 1, 1], vertical_alignment="bottom")
    if worst.button("Worst step shown", icon=":material/vertical_align_top:"):
        state["step"] = worst_step(view.points)
    if newest.button("Newest step", icon=":material/last_page:"):
        state["step"] = view.points[-1].last_step
    step = int(asked.number_input("Step", step=1, key="step"))
    keep("step", step)
    return step


def _worst(batches: Sequence[BatchRecord]) -> float | None:
    values = [batch.values["log_ratio_abs_max"] for batch in batches if "log_ratio_abs_max" in batch.values]
    return max(values, default=None)


def _reference(batches: Sequence[BatchRecord]) -> float | None:
    """Return the quantile reference that the batches share, None where each has its own."""
    known = {batch.values.get("quantile_reference") for batch in batches}
    return known.pop() if len(known) == 1 else None


def _columns() -> dict[str, Any]:
    nats = {name: st.column_config.NumberColumn(name, format="%.4f") for name in ("log μ", "log π", "log π(l)")}
    return {
        **nats,
        "d": st.column_config.TextColumn("d", help="log-ratio, nats", width="small"),
        "position": st.column_config.NumberColumn("position", help="active token of its response, from 0"),
        "response": st.column_config.NumberColumn("response", help="of the batch, from 0"),
        "advantage": st.column_config.NumberColumn("advantage", format="%.3f"),
        "lag": st.column_config.NumberColumn("lag", help="policy version - its version"),
    }
