"""The sidebar: which run, which life, which steps, and whether an open run is followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import streamlit as st

from satwatch._dashboard import about, source
from satwatch._dashboard.selection import DEFAULT_SPAN, NEWEST, SPANS, Selection, find, missing, read_link
from satwatch._dashboard.wording import labels, literal, moment
from satwatch.types import History, RunRecord

# What the link said is taken over once a visit; from then on the widgets say it.
_LINKED: Final = "linked"
WIDGETS: Final = ("run", "life", "span", "first", "last", "live")
ADDRESS: Final = "address"
# What a page asks for, by its name in a link.
KEPT: Final = {"step": "step", "engine": "engine", "other": "with", "alert": "alert"}


def ask_address() -> str:
    """Show where the data comes from; a sidecar can be exchanged for another. Return the address."""
    if source.store_name():
        st.sidebar.caption(f":material/database: {literal(source.store_name())}")
        return source.default_address()
    if ADDRESS not in st.session_state:
        st.session_state[ADDRESS] = source.default_address()
    with st.sidebar.popover(f":material/lan: {literal(st.session_state[ADDRESS])}"):
        given = st.text_input("Sidecar", key=f"{ADDRESS}_typed", placeholder="HOST:PORT or unix:PATH")
        if given and given.strip() != st.session_state[ADDRESS]:
            st.session_state[ADDRESS] = given.strip()
            st.rerun()
    return str(st.session_state[ADDRESS])


def select(history: History, lives: Sequence[RunRecord]) -> Selection:
    """Show the widgets, and return what they select; the browser's address line says it too.

    Args:
        history: what is kept.
        lives: all lives kept, the one heard of last first; at least one.
    """
    linked = _take_link(lives)
    with st.sidebar:
        if linked:
            st.warning(f"{literal(linked)} isn't kept here. Shown is what is.", icon=":material/link_off:")
        runs = list(dict.fromkeys(one.run for one in lives))
        _keep_valid("run", runs, runs[0])
        run = st.selectbox("Run", runs, format_func=labels(runs).__getitem__, key="run", on_change=_forget)
        life = _life(lives, run)
        span = (
            st.segmented_control("Newest steps", list(SPANS), format_func=SPANS.__getitem__, key="span") or DEFAULT_SPAN
        )
        record = find(lives, run, life)
        first, last = _custom(record) if span == "custom" else (None, None)
        is_live = _live(record)
        if record is not None:
            about.show(history, record, is_followed=is_live and record.is_open)
    state = st.session_state
    asked = {name: state.get(f"kept_{name}") for name in KEPT}
    engine, alert = asked["engine"] or "", asked["alert"] or ""
    selection = Selection(run, life, span, first, last, is_live, asked["step"], engine, asked["other"], alert)
    _write_link(selection)
    return selection


def keep(name: str, value: object) -> None:
    """Keep what a page asks for beyond the visit to it, and let the link say it.

    Args:
        name: of ``KEPT``.
        value: what; None or empty: nothing.
    """
    if st.session_state.get(f"kept_{name}") != value:
        st.session_state[f"kept_{name}"] = value
        parameter = KEPT[name]
        if value in (None, ""):
            st.query_params.pop(parameter, None)
        else:
            st.query_params[parameter] = str(value)


def kept(name: str) -> Any:  # noqa: ANN401 - whatever was kept
    """Return what a page asked for, or None."""
    return st.session_state.get(f"kept_{name}")


def _forget() -> None:
    """Forget what pages were asked for of another run."""
    for name in KEPT:
        for key in (name, f"kept_{name}"):
            st.session_state.pop(key, None)


def _write_link(selection: Selection) -> None:
    link = selection.link()
    if st.query_params.to_dict() != link:
        st.query_params.from_dict(link)


def _take_link(lives: Sequence[RunRecord]) -> str:
    """Set the widgets from the link of a new visit; say what it names that isn't kept."""
    state = st.session_state
    if _LINKED not in state:
        params = st.query_params.to_dict()
        linked = read_link(params, lives)
        widgets: dict[str, Any] = {
            "run": linked.run,
            "life": linked.life,
            "span": linked.span,
            "first": linked.first,
            "last": linked.last,
            "live": linked.is_live,
            "kept_step": linked.step,
            "kept_engine": linked.engine,
            "kept_other": linked.other,
            "kept_alert": linked.alert,
        }
        state.update(widgets)
        state[_LINKED] = missing(params, lives)
    # Said anew with every draw: a browser that leaves a page before it is drawn to its end makes its widgets again, and
    # would else make them with the values that they began with.
    state.update({name: state[name] for name in WIDGETS if name in state})
    return str(state[_LINKED])


def _life(lives: Sequence[RunRecord], run: str) -> int:
    mine = sorted((one for one in lives if one.run == run), key=lambda one: -one.life)
    options = [NEWEST, *(one.life for one in mine)]
    _keep_valid("life", options, NEWEST)
    if len(mine) == 1:
        st.session_state["life"] = NEWEST
        return NEWEST
    named = {one.life: f"{one.life}: {moment(one.opened_at)[:16]}" for one in mine}
    return st.selectbox(
        "Life",
        options,
        format_func=lambda life: f"newest ({options[1]})" if life == NEWEST else named[life],
        key="life",
        help="A run that was resumed or restarted has another life, shown with when it began (UTC). Newest follows the "
        "one that began last.",
    )


def _live(record: RunRecord | None) -> bool:
    """Ask whether the run is followed; of one that has ended, say that there is nothing to follow."""
    if record is None or record.is_open:
        return st.toggle("Live", key="live", help="Follows an open run, every two seconds.")
    st.caption(f":material/stop_circle: Not live: {about.why_not_live(record)}.")
    return bool(st.session_state.get("live", True))


def _custom(record: RunRecord | None) -> tuple[int | None, int | None]:
    for name, step in (("first", record and record.first_step), ("last", record and record.last_step)):
        if st.session_state.get(name) is None:
            st.session_state[name] = step
    left, right = st.columns(2)
    first = left.number_input("From step", step=1, key="first", value=None)
    last = right.number_input("to step", step=1, key="last", value=None)
    if first is not None and last is not None and first > last:
        st.error("The range ends before it begins.")
    return first, last


def _keep_valid(key: str, options: Sequence[object], otherwise: object) -> None:
    if st.session_state.get(key) not in options:
        st.session_state[key] = otherwise
