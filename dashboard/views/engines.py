"""The page *Engines*: which weights each engine serves, which it says it serves, and whether they are the trainer's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import streamlit as st

from satwatch._dashboard import banner, download, empty, source
from satwatch._dashboard.chart import chart
from satwatch._dashboard.figures import engine_ages, engine_canaries, engine_grid, engine_queues, engine_versions
from satwatch._dashboard.sidebar import keep, kept
from satwatch._dashboard.view import View
from satwatch._dashboard.wording import UNKNOWN, count, duration, literal, number
from satwatch.types import EngineRecord, EngineStatus

ALL: Final = "All engines"
_ORDER: Final = {"wrong_weights": 0, "unknown": 1, "lagging": 2, "paused": 3, "serving": 4}
_BADGES: Final = {
    "serving": ":green-badge[serving]",
    "lagging": ":orange-badge[lagging]",
    "wrong_weights": ":red-badge[wrong weights]",
    "paused": ":blue-badge[paused]",
    "unknown": ":gray-badge[unknown]",
}


def draw(view: View) -> None:
    """Draw the page."""
    banner.title(view, "Engines")
    records = view.engines
    if not records:
        empty.note(empty.NO_ENGINES.format(address=source.default_address()))
        return
    newest = newest_statuses(records)
    _tiles(newest)
    for status in newest:
        if status.state != "serving" or status.findings:
            _say(status)
    st.dataframe([engine_row(status, view.now) for status in newest], hide_index=True)
    engine = _choose(newest)
    shown = [record for record in records if engine in ("", record.status.engine)]
    until = view.now if view.record.is_open else None
    chart(
        engine_grid(shown, until=until),
        "engine grid",
        "A row that keeps a colour which the others have left is an engine that takes no weights. Wrong weights "
        "have a colour of their own: the label moved on, the weights did not.",
    )
    chart(
        engine_versions(shown),
        "engine versions",
        "Solid is what an engine's responses were generated with, dotted what it calls its weights, dashed the version "
        "whose scores its canary equals. Lines that part are an engine that falls behind, or lies.",
    )
    left, right = st.columns(2)
    with left:
        chart(engine_canaries(shown), "engine canaries", "Level and low is arithmetic. A jump is other weights.")
    with right:
        chart(engine_ages(shown), "engine ages", "A saw is healthy: up while it serves, down at each sync.")
    chart(
        engine_queues(shown),
        "engine queues",
        "Waiting that grows is a fleet too slow for its prompts.",
    )
    download.buttons("engines", lambda: [engine_row(record.status, record.at) for record in shown], lambda: shown)


def newest_statuses(records: Sequence[EngineRecord]) -> list[EngineStatus]:
    """Return the latest status of each engine, the worst first."""
    newest = {record.status.engine: record.status for record in records}
    return sorted(newest.values(), key=lambda status: (_ORDER[status.state], status.engine))


def engine_row(status: EngineStatus, now: float) -> dict[str, object]:
    """Return an engine as a row of the table; what is unknown is None.

    Args:
        status: of the engine.
        now: Unix time in seconds, that ages are counted to.
    """
    return {
        "engine": status.engine,
        "state": status.state.replace("_", " "),
        "served": status.version_served,
        "declared": status.version_labelled,
        "published": status.version_published,
        "lag": status.version_lag,
        "weight age": _known(status.weight_age_seconds),
        "sync": _known(status.sync_seconds),
        "waiting": status.requests_waiting,
        "running": status.requests_running,
        "canary": None if status.canary_log_ratio_abs_mean is None else number(status.canary_log_ratio_abs_mean),
        "seen": None if status.seen_at is None else f"{duration(max(0.0, now - status.seen_at))} ago",
        "kind": " ".join(part for part in (status.kind, status.release) if part) or None,
    }


def _known(seconds: float | None) -> str | None:
    return None if seconds is None else duration(seconds)


def _tiles(newest: Sequence[EngineStatus]) -> None:
    serving = sum(status.state == "serving" for status in newest)
    lags = [status.version_lag for status in newest if status.version_lag is not None]
    canaries = [c for c in (status.canary_log_ratio_abs_mean for status in newest) if c is not None]
    waiting = [w for w in (status.requests_waiting for status in newest) if w is not None]
    tiles = (
        ("Serving", f"{serving} of {len(newest)}", "Engines that serve what the trainer published last."),
        (
            "Largest lag",
            f"{max(lags)} versions" if lags else UNKNOWN,
            "Of the engine that is furthest behind, by what it says.",
        ),
        (
            "Largest canary",
            f"{number(max(canaries))} nats" if canaries else UNKNOWN,
            "What engine and trainer differ by at equal versions. Unknown until the trainer reports a canary.",
        ),
        ("Waiting", f"{count(sum(waiting))} requests" if waiting else UNKNOWN, "Over all engines that say."),
    )
    for column, (label, value, says) in zip(st.columns(len(tiles)), tiles, strict=True):
        column.metric(label, value, help=says, border=True)


def _say(status: EngineStatus) -> None:
    """Say in words what is amiss with an engine."""
    findings = [literal(finding.message) for finding in status.findings]
    reason = [literal(status.reason)] if status.reason and literal(status.reason) not in findings else []
    text = " ".join(f"{said[:1].upper()}{said[1:].rstrip('.')}." for said in (*reason, *findings))
    st.markdown(f"{_BADGES[status.state]} **{literal(status.engine)}** &nbsp; {text}")


def _choose(newest: Sequence[EngineStatus]) -> str:
    """Ask for one engine or all; return its name, empty for all."""
    names = sorted(status.engine for status in newest)
    if len(names) < 2:
        return ""
    state = st.session_state
    if state.get("engine") not in (ALL, *names):
        state["engine"] = kept("engine") if kept("engine") in names else ALL
    chosen = st.selectbox("Engine", [ALL, *names], key="engine")
    keep("engine", "" if chosen == ALL else chosen)
    return "" if chosen == ALL else chosen
