"""The page *Tokens*: the tokens of a step that moved furthest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import streamlit as st

from satwatch._dashboard import banner, download, empty
from satwatch._dashboard.chart import chart
from satwatch._dashboard.figures import worst_tokens
from satwatch._dashboard.sidebar import keep, kept
from satwatch._dashboard.view import View
from satwatch._dashboard.wording import UNKNOWN, count, literal, number
from satwatch.types import BatchRecord, StepPoint, WorstToken

BY: Final = ("version", "engine", "rank")
_LOGPROBS: Final = {
    "log μ": "the rollout engine's log-prob, nats",
    "log π": "the trainer's log-prob, nats",
    "log π(l)": "the trainer's log-prob at the weights of the token's version, nats",
}
# Rows that are in view at once; more are scrolled to.
_MOST_ROWS: Final = 11
_ROW_PIXELS: Final = 35


def draw(view: View) -> None:
    """Draw the page."""
    banner.title(view, "Tokens")
    if not view.points:
        empty.no_steps(view.record)
        return
    step = _choose_step(view)
    batches = view.batches(step)
    if not batches:
        empty.note(empty.NO_TOKENS)
        return
    rows = worst_rows(batches)
    _tiles(batches)
    if not rows:
        empty.note(empty.NO_TOKENS)
        return
    by = st.segmented_control("Colour by", BY, default=BY[0], key="colour by") or BY[0]
    chart(
        worst_tokens(batches, by=by, q=_reference(batches)),
        "worst tokens",
        "One version, engine or position that holds most of the points is where to look. Points that are spread evenly "
        f"are ordinary sampling. {_band(batches)}",
    )
    _table(rows)
    download.buttons(view.record, f"tokens step {step}", lambda: token_data(batches), lambda: batches)


def worst_rows(batches: Sequence[BatchRecord]) -> list[dict[str, object]]:
    """Return the worst tokens of all batches, worst first: NaN, then by magnitude."""
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
        for batch, token in _in_order(batches)
    ]


def token_data(batches: Sequence[BatchRecord]) -> list[download.Row]:
    """Return the same tokens as they are kept, all digits included."""
    place = ("step", "rank", "microbatch", "policy_version")
    return [
        {**{name: getattr(batch, name) for name in place}, **download.fields_of(token)}
        for batch, token in _in_order(batches)
    ]


def _in_order(batches: Sequence[BatchRecord]) -> list[tuple[BatchRecord, WorstToken]]:
    found = [(batch, token) for batch in batches for token in batch.worst]
    found.sort(key=lambda pair: (pair[1].log_ratio == pair[1].log_ratio, -abs(pair[1].log_ratio)))
    return found


def _table(rows: Sequence[Mapping[str, object]]) -> None:
    """Show the tokens, without the columns that none of them has."""
    known = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    height = _ROW_PIXELS * (1 + min(len(rows), _MOST_ROWS)) + 2
    st.dataframe(
        rows, hide_index=True, height=height, column_order=known, column_config=_columns(), placeholder="unknown"
    )
    lacking = [name for name in rows[0] if name not in known]
    unsent = f"Not sent with any of them: {literal(', '.join(lacking))}. " if lacking else ""
    st.caption(f"{unsent}NaN comes first of all, and has no log-prob on the side that is no number; d = log π - log μ.")


def _band(batches: Sequence[BatchRecord]) -> str:
    """Say what the grey band is, or why there is none."""
    known = sorted({batch.values["quantile_reference"] for batch in batches if "quantile_reference" in batch.values})
    if not known:
        return "q is unknown: no token of the step has a finite log-ratio."
    if len(known) == 1:
        return f"The grey band is |d| ≤ q = {number(known[0])} nats, which SAT leaves alone."
    return f"Each batch has its own q, from {number(known[0])} to {number(known[-1])} nats: no band is drawn."


def _lag(batch: BatchRecord, token: WorstToken) -> int | None:
    if batch.policy_version is None or token.version is None:
        return None
    return batch.policy_version - token.version


def worst_step(points: Sequence[StepPoint]) -> int:
    """Return the step to look at first; of merged ones, the last.

    That is the one with the most tokens that are no number, or else with the largest mismatch of all shown.
    """

    def badness(point: StepPoint) -> tuple[float, float, int]:
        broken = sum(point.values.get(name, 0.0) for name in ("nan_tokens", "inf_tokens"))
        return broken, point.values.get("log_ratio_abs_max", -1.0), point.last_step

    return max(points, key=badness).last_step


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


def _tiles(batches: Sequence[BatchRecord]) -> None:
    def total(*names: str) -> str:
        return count(sum(batch.values.get(name, 0.0) for batch in batches for name in names))

    worst = _worst(batches)
    tiles = (
        ("Batches", count(len(batches))),
        ("Tokens", total("tokens")),
        ("NaN or infinite", total("nan_tokens", "inf_tokens")),
        ("Worst |d|", UNKNOWN if worst is None else f"{number(worst)} nats"),
    )
    for column, (label, value) in zip(st.columns(len(tiles)), tiles, strict=True):
        column.metric(label, value, border=True)


def _worst(batches: Sequence[BatchRecord]) -> float | None:
    values = [batch.values["log_ratio_abs_max"] for batch in batches if "log_ratio_abs_max" in batch.values]
    return max(values, default=None)


def _reference(batches: Sequence[BatchRecord]) -> float | None:
    """Return the quantile reference that the batches share, None where each has its own."""
    known = {batch.values.get("quantile_reference") for batch in batches}
    return known.pop() if len(known) == 1 else None


def _columns() -> dict[str, Any]:
    nats = {name: st.column_config.NumberColumn(name, format="%.4f", help=told) for name, told in _LOGPROBS.items()}
    return {
        **nats,
        "d": st.column_config.TextColumn("d", help="log-ratio, nats", width="small"),
        "position": st.column_config.NumberColumn("position", help="active token of its response, from 0"),
        "response": st.column_config.NumberColumn("response", help="of the batch, from 0"),
        "advantage": st.column_config.NumberColumn("advantage", format="%.3f"),
        "version": st.column_config.NumberColumn("version", help="that generated it, as its response names it"),
        "lag": st.column_config.NumberColumn("lag", help="policy version - its version"),
    }
