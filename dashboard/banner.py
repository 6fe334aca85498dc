"""The verdict on a run: one line, its evidence, and where it began."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import streamlit as st

from satwatch._dashboard import missed
from satwatch._dashboard.place import place
from satwatch._dashboard.view import View
from satwatch._dashboard.wording import literal, moment
from satwatch.alerts import RULES
from satwatch.types import Event

_BOXES: Final = {
    "healthy": (st.success, ":material/check_circle:"),
    "warning": (st.warning, ":material/warning:"),
    "critical": (st.error, ":material/emergency_home:"),
    "waiting": (st.info, ":material/hourglass_empty:"),
    "stopped": (st.info, ":material/stop_circle:"),
}
_SUMMARIES: Final = {rule.name: rule.summary for rule in RULES}


def show(view: View) -> None:
    """Show the verdict on the run, its evidence, and where what is amiss began."""
    verdict, worst = view.verdict, view.worst
    box, icon = _BOXES[verdict.level]
    headline = verdict.headline
    if verdict.level == "stopped" and worst is not None:
        # What was amiss to the end is said first: it may be why the run was ended.
        box, icon = _BOXES["warning"]
        headline = f"{_SUMMARIES.get(worst.alert, worst.alert)}. {headline}"
    lines = [f"**{literal(headline)}**"]
    if verdict.evidence:
        lines.append(literal(verdict.evidence))
    if worst is not None and worst.step is not None:
        version = "" if worst.version is None else f", version {worst.version}"
        lines.append(f"First seen at step {worst.step}{version}.{_earlier(worst, verdict.alerts)}")
    box("  \n".join(lines), icon=icon)
    with place():
        _say_missed(view)


def _say_missed(view: View) -> None:
    for sentence in missed.sentences(missed.missed_steps(view.points)):
        st.caption(sentence)
    begins = bool(view.points) and view.points[0].first_step == view.record.first_step
    before = missed.life_before(view.record, view.lives) if begins else ""
    if before:
        st.caption(before)


def _earlier(worst: Event, alerts: Sequence[Event]) -> str:
    """Name the alert that showed first, where it isn't the worst one: what it is about may have begun as early."""
    first = min((one for one in alerts if one.step is not None and one.severity != "info"), key=_step, default=worst)
    return f" Before it: {literal(first.alert)}, at step {first.step}." if _step(first) < _step(worst) else ""


def _step(event: Event) -> int:
    return -1 if event.step is None else event.step


def title(view: View, name: str) -> None:
    """Show a page's name and the run's, and whether it is followed."""
    record = view.record
    if record.is_open and view.selection.is_live:
        state = ":green-badge[:material/sensors: live]"
    elif record.is_open:
        state = ":gray-badge[:material/pause: paused]"
    else:
        # No age: nothing draws the page of such a run again.
        until = "last heard of" if record.ended_at is None else "ended"
        state = f":gray-badge[{until} {moment(record.ended_at or record.last_at)}]"
    many = len({kept.life for kept in view.lives if kept.run == record.run}) > 1
    life = f" life {record.life}" if many else ""
    st.markdown(f"## {name} &nbsp; :gray[{literal(record.run)}{life}] {state}")
