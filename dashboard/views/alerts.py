"""The page *Alerts*: what was raised, when, on which evidence, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import streamlit as st

from satwatch._dashboard import banner, download, empty, paging, runbook
from satwatch._dashboard.chart import chart
from satwatch._dashboard.ending import episodes_until
from satwatch._dashboard.figures import Episode, alert_timeline, episodes
from satwatch._dashboard.place import place
from satwatch._dashboard.view import View
from satwatch._dashboard.wording import duration, literal, moment, number, plural, share
from satwatch.alerts import RULES, AlertRule
from satwatch.types import EngineRecord, Event, StepPoint

_BADGES: Final = {"critical": ":red-badge[critical]", "warning": ":orange-badge[warning]", "info": ":blue-badge[info]"}
_RULES: Final = {rule.name: rule for rule in RULES}


def _tokens(number: float) -> str:
    return plural(number, "token")


# What an alert of a run is about, by its diagnostic: evidence stays as it was when the alert was raised.
_MEASURED: Final = {
    "NanTokens": ("nan_tokens", "{} with a NaN log-ratio", _tokens),
    "InfTokens": ("inf_tokens", "{} with an infinite log-ratio", _tokens),
    "NegativeLag": ("negative_lag_tokens", "{} from a version newer than the policy", _tokens),
    "EssCollapsed": ("ess_ratio", "ESS {}", share),
    "EssLow": ("ess_ratio", "ESS {}", share),
    "RatioExtreme": ("log_ratio_abs_max", "largest |d| {} nats", number),
    "FloorRaised": ("delta_impl_abs_mean", "mean |delta_impl| {} nats", number),
    "StalenessTailSpike": ("log_ratio_abs_mean", "mean |d| {} nats", number),
    "StalenessDrift": ("log_ratio_abs_mean", "mean |d| {} nats", number),
    "VersionLagRising": ("version_lag_mean", "mean version lag {}", number),
    "HeavyTail": ("tail_index", "tail index {}", number),
    "ReplayOff": ("router_flip_rate", "router flip rate {}", number),
    "CoverageLost": ("version_coverage_ratio", "{} of the tokens came with a version", share),
}


def draw(view: View) -> None:
    """Draw the page."""
    banner.title(view, "Alerts")
    banner.show(view)
    _linked(view.selection.alert)
    with place():
        _cards(view)
    is_over = not view.record.is_open
    found = episodes_until(view.events, view.record.last_at) if is_over else episodes(view.events)
    chart(
        alert_timeline(found, until=view.until, is_over=is_over),
        "alert timeline",
        "What began first is often the cause of what came later. Hatched: "
        + ("active at the end." if is_over else "still active."),
    )
    rows = [episode_row(episode, is_over=is_over) for episode in reversed(found)]
    if rows:
        evidence = st.column_config.TextColumn("evidence, when raised", width="large")
        st.dataframe(rows, hide_index=True, column_config={"evidence": evidence}, placeholder="")
        download.buttons(
            view.record, "alerts", lambda: [episode_data(one) for one in reversed(found)], lambda: view.events
        )
    else:
        empty.note("No alert was raised in this run. Each step is judged as it closes, and each engine as it is seen.")
    _catalogue()


def episode_row(episode: Episode, *, is_over: bool) -> dict[str, object]:
    """Return an alert, from raised to resolved, as a row of the table; what is unknown is None.

    Args:
        episode: the alert.
        is_over: its run has ended.
    """
    raised, resolved = episode.raised, episode.resolved
    active = "active at the end" if is_over else "active"
    return {
        "alert": raised.alert,
        "severity": raised.severity,
        "engine": raised.engine,
        "step": raised.step,
        "version": raised.version,
        "raised": moment(raised.at),
        "lasted": active if resolved is None else duration(resolved.at - raised.at),
        "value": None if raised.value is None else number(raised.value),
        "threshold": None if raised.threshold is None else number(raised.threshold),
        "evidence": raised.evidence,
    }


def episode_data(episode: Episode) -> download.Row:
    """Return an alert as it is kept: what raised it, and when it was resolved; None: it was not."""
    raised = download.fields_of(episode.raised, without=("state", "id"))
    return {**raised, "resolved_at": None if episode.resolved is None else episode.resolved.at}


def since_raised(event: Event, last: StepPoint | None) -> str:
    """Say how an alert of a run stands at the last step; empty where its evidence is as new, or nothing tells.

    Args:
        event: that raised the alert.
        last: the last closed step.
    """
    name, said, write = _MEASURED.get(event.alert, ("", "", number))
    if last is None or last.at <= event.at or name not in last.values:
        return ""
    return f"At step {last.last_step}: {said.format(write(last.values[name]))}."


def engine_since(event: Event, records: Sequence[EngineRecord]) -> str:
    """Say how an engine stood when it was seen last; empty where that was before its alert was raised.

    Args:
        event: that raised the alert.
        records: what was known of the engines, oldest first.
    """
    seen = [record for record in records if record.status.engine == event.engine and record.at > event.at]
    if not seen:
        return ""
    status = seen[-1].status
    return f"Seen last: {status.reason or status.state.replace('_', ' ')}."


def _cards(view: View) -> None:
    active = view.verdict.alerts
    if active:
        st.subheader(f"Active: {len(active)}" if view.record.is_open else f"Active at the end: {len(active)}")
    for event in active:
        _card(event, view)


def _card(event: Event, view: View) -> None:
    """Show an active alert: its evidence, how it stands now, and what to look at."""
    rule = _RULES.get(event.alert)
    about = literal(event.engine or event.run)
    with st.container(border=True):
        summary = literal(rule.summary if rule else event.alert)
        st.markdown(f"{_BADGES[event.severity]} **{literal(event.alert)}** on {about}: {summary}")
        place = "" if event.step is None else f", first at step {event.step}"
        place += "" if event.version is None else f", version {event.version}"
        is_followed = view.record.is_open and view.selection.is_live
        when = f"{duration(max(0.0, view.now - event.at))} ago" if is_followed else moment(event.at)
        # An engine's name stays as it is written.
        evidence = literal(event.evidence if event.engine else event.evidence[:1].upper() + event.evidence[1:])
        present = literal(engine_since(event, view.engines) if event.engine else since_raised(event, view.last))
        st.markdown(f"{evidence}  \n" + (f"{present}  \n" if present else "") + f":gray[Raised {when}{place}]")
        if rule is not None:
            st.caption(f"**Look at:** {literal(rule.look_at)}")
        with st.container(horizontal=True):
            if event.engine:
                paging.engine_page(event.engine, f"engine {event.id}")
            if event.step is not None:
                paging.tokens_of(event.step, f"tokens {event.id}")
            if rule is not None:
                _runbook(rule)


def _linked(alert: str) -> None:
    """Show the section of the runbook that a link asks for, as Prometheus' alerts do; what it may name is checked."""
    if alert in runbook.sections():
        with st.expander(f"Runbook: {alert}", expanded=True, icon=":material/menu_book:"):
            st.markdown(runbook.sections()[alert])


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
