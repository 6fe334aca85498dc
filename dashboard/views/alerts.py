"""The page *Alerts*: what was raised, when, on which evidence, and what to do."""

from __future__ import annotations

from typing import Final

import streamlit as st

from satwatch._dashboard import banner, download, empty, paging, runbook
from satwatch._dashboard.chart import chart
from satwatch._dashboard.figures import Episode, alert_timeline, episodes
from satwatch._dashboard.view import View
from satwatch._dashboard.wording import duration, literal, moment, number
from satwatch.alerts import RULES, AlertRule
from satwatch.types import Event

_BADGES: Final = {"critical": ":red-badge[critical]", "warning": ":orange-badge[warning]", "info": ":blue-badge[info]"}
_RULES: Final = {rule.name: rule for rule in RULES}


def draw(view: View) -> None:
    """Draw the page."""
    banner.title(view, "Alerts")
    banner.show(view)
    active = view.verdict.alerts
    if active:
        st.subheader(f"Active: {len(active)}" if view.record.is_open else f"Active at the end: {len(active)}")
        for event in active:
            _card(event, view.now)
    chart(
        alert_timeline(view.events, now=view.until),
        "alert timeline",
        "What began first is often the cause of what came later. Hatched: "
        + ("still active." if view.record.is_open else "active at the end."),
    )
    rows = [episode_row(episode) for episode in reversed(episodes(view.events))]
    if rows:
        st.dataframe(rows, hide_index=True, column_config={"evidence": st.column_config.TextColumn(width="large")})
        download.buttons("alerts", lambda: [*rows], lambda: view.events)
    else:
        empty.note("No alert was raised in this run. Each step is judged as it closes, and each engine as it is seen.")
    _catalogue()


def episode_row(episode: Episode) -> dict[str, object]:
    """Return an alert, from raised to resolved, as a row of the table; what is unknown is None."""
    raised, resolved = episode.raised, episode.resolved
    return {
        "alert": raised.alert,
        "severity": raised.severity,
        "engine": raised.engine,
        "step": raised.step,
        "version": raised.version,
        "raised": moment(raised.at),
        "lasted": "active" if resolved is None else duration(resolved.at - raised.at),
        "evidence": raised.evidence,
        "value": None if raised.value is None else number(raised.value),
        "threshold": None if raised.threshold is None else number(raised.threshold),
    }


def _card(event: Event, now: float) -> None:
    """Show an active alert: its evidence, and what to look at."""
    rule = _RULES.get(event.alert)
    about = literal(event.engine or event.run)
    with st.container(border=True):
        summary = literal(rule.summary if rule else event.alert)
        st.markdown(f"{_BADGES[event.severity]} **{literal(event.alert)}** on {about}: {summary}")
        place = "" if event.step is None else f", first at step {event.step}"
        place += "" if event.version is None else f", version {event.version}"
        # An engine's name stays as it is written.
        evidence = literal(event.evidence if event.engine else event.evidence[:1].upper() + event.evidence[1:])
        st.markdown(f"{evidence}  \n:gray[Raised {duration(max(0.0, now - event.at))} ago{place}]")
        if rule is not None:
            st.caption(f"**Look at:** {literal(rule.look_at)}")
        with st.container(horizontal=True):
            if event.engine:
                paging.engine_page(event.engine, f"engine {event.id}")
            elif event.step is not None:
                paging.tokens_of(event.step, f"tokens {event.id}")
            if rule is not None:
                _runbook(rule)


def _runbook(rule: AlertRule) -> None:
    """Show the runbook's section."""
    with st.popover("Runbook", icon=":material/menu_book:", type="tertiary"):
        st.markdown(f"**{rule.name}**\n\n{runbook.sections()[rule.name]}")


def _catalogue() -> None:
    with st.expander("What is watched: all alerts, and what to look at"):
        st.dataframe([catalogue_row(rule) for rule in RULES], hide_index=True)


def catalogue_row(rule: AlertRule) -> dict[str, object]:
    """Return an alert of the catalogue as a row."""
    return {
        "alert": rule.name,
        "severity": rule.severity,
        "means": rule.summary,
        "look at": rule.look_at,
        "runbook": rule.runbook,
    }
