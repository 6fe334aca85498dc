"""The verdict on a run: one line, its evidence, and where it began."""

from __future__ import annotations

from typing import Final

import streamlit as st

from satwatch._dashboard import missed
from satwatch._dashboard.view import View
from satwatch._dashboard.wording import duration, literal
from satwatch.alerts import RULES

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
        lines.append(f"First seen at step {worst.step}{version}.")
    box("  \n".join(lines), icon=icon)
    for sentence in missed.sentences(missed.missed_steps(view.points)):
        st.caption(sentence)


def title(view: View, name: str) -> None:
    """Show a page's name and the run's, and whether it is followed."""
    record = view.record
    if record.is_open and view.selection.is_live:
        state = ":green-badge[:material/sensors: live]"
    elif record.is_open:
        state = ":gray-badge[:material/pause: paused]"
    else:
        ended = record.last_at if record.ended_at is None else record.ended_at
        state = f":gray-badge[ended {duration(max(0.0, view.now - ended))} ago]"
    many = len({kept.life for kept in view.lives if kept.run == record.run}) > 1
    life = f" life {record.life}" if many else ""
    st.markdown(f"## {name} &nbsp; :gray[{literal(record.run)}{life}] {state}")
