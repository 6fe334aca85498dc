"""The page *Engines*: which weights each engine serves, which it says it serves, and whether they are the trainer's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Final

import streamlit as st

from satwatch._dashboard import banner, download, empty, proven
from satwatch._dashboard.chart import chart
from satwatch._dashboard.figures import engine_ages, engine_canaries, engine_grid, engine_queues, engine_versions
from satwatch._dashboard.place import place
from satwatch._dashboard.sidebar import keep, kept
from satwatch._dashboard.view import View
from satwatch._dashboard.wording import UNKNOWN, count, duration, literal, number, plural
from satwatch.types import EngineRecord, EngineStatus, RunRecord

ALL: Final = "All engines"
_ORDER: Final = {"wrong_weights": 0, "unknown": 1, "lagging": 2, "paused": 3, "serving": 4}
_BADGES: Final = {
    "serving": ":green-badge[serving]",
    "lagging": ":orange-badge[lagging]",
    "wrong_weights": ":red-badge[wrong weights]",
    "paused": ":blue-badge[paused]",
    "unknown": ":gray-badge[unknown]",
}
# Columns that say the same as others while no canary contradicts its engine.
_WHERE_CONTRADICTED: Final = ("lag declared", "age declared")
# Seconds, and looks as far apart as usual, after which engines count as looked at no more.
_LONG_AGO: Final = 30.0
_LOOKS_MISSED: Final = 3.0


def draw(view: View) -> None:
    """Draw the page."""
    banner.title(view, "Engines")
    records = view.engines
    if not records:
        empty.no_engines(view.record)
        return
    newest = newest_statuses(records)
    published = {kept.version: kept.at for kept in view.versions}
    _tiles(newest)
    with place():
        _say_amiss(newest, last_look(records, view.record, view.until))
    _table(newest, published, view)
    engine = _choose(newest)
    shown = [record for record in records if engine in ("", record.status.engine)]
    chart(
        engine_grid(shown, until=view.until),
        "engine grid",
        "A row that keeps a colour which the others have left is an engine that takes no weights. Wrong weights "
        "have a colour of their own, and the version that the canary shows: the label moved on, the weights did not.",
    )
    chart(
        engine_versions(shown, until=view.until),
        "engine versions",
        "Solid is what an engine's responses were generated with, dotted what it calls its weights, dashed the version "
        "whose scores its canary equals. Lines that part are an engine that falls behind, or lies.",
    )
    left, right = st.columns(2)
    with left:
        chart(engine_canaries(shown), "engine canaries", "Level and low is arithmetic. A jump is other weights.")
    with right:
        chart(
            engine_ages(shown, published),
            "engine ages",
            "A saw is healthy: up while it serves, down at each sync. Dashed: of the weights that the canary shows.",
        )
    chart(
        engine_queues(shown),
        "engine queues",
        "Waiting that grows is a fleet too slow for its prompts.",
    )
    download.buttons(
        view.record, "engines", lambda: [engine_data(record, published) for record in shown], lambda: shown
    )


def newest_statuses(records: Sequence[EngineRecord]) -> list[EngineStatus]:
    """Return the latest status of each engine, the worst first."""
    newest = {record.status.engine: record.status for record in records}
    return sorted(newest.values(), key=lambda status: (_ORDER[status.state], status.engine))


def engine_row(status: EngineStatus, published: Mapping[int, float], until: float) -> dict[str, object]:
    """Return an engine as a row of the table; what is unknown is None.

    Args:
        status: of the engine.
        published: when each version was, Unix time in seconds.
        until: that it is counted to when the engine was seen, likewise.
    """
    seen = until if status.seen_at is None else status.seen_at
    return {
        "engine": status.engine,
        "state": status.state.replace("_", " "),
        "served": status.version_served,
        "declared": status.version_labelled,
        "by canary": status.version_canary,
        "published": status.version_published,
        "lag": proven.lag(status),
        "lag declared": status.version_lag,
        "age": _known(proven.weight_age(status, published, seen)),
        "age declared": _known(status.weight_age_seconds),
        "canary": None if status.canary_log_ratio_abs_mean is None else number(status.canary_log_ratio_abs_mean),
        "seen": None if status.seen_at is None else duration(max(0.0, until - status.seen_at)),
        "waiting": status.requests_waiting,
        "running": status.requests_running,
        "sync": _known(status.sync_seconds),
        "kind": " ".join(part for part in (status.kind, status.release) if part) or None,
    }


def engine_data(record: EngineRecord, published: Mapping[int, float]) -> download.Row:
    """Return what was known of an engine at one time as it is kept, and beside it what its canary proves."""
    status = record.status
    return {
        "at": record.at,
        "run": record.run,
        **download.fields_of(status, without=("findings",)),
        "findings": "; ".join(finding.message for finding in status.findings),
        "proven_version": proven.version(status),
        "proven_lag": proven.lag(status),
        "proven_weight_age_seconds": proven.weight_age(status, published, status.seen_at or record.at),
    }


def _known(seconds: float | None) -> str | None:
    return None if seconds is None else duration(seconds)


def last_look(records: Sequence[EngineRecord], run: RunRecord, until: float) -> str:
    """Say that nothing is known of the engines since a while; empty where they were looked at to the end.

    Args:
        records: what was known, oldest first; at least one.
        run: that they generate for.
        until: when it ended, or now, Unix time in seconds.
    """
    looks = sorted({record.status.seen_at or record.at for record in records})
    apart = until - looks[-1]
    usual = median([b - a for a, b in pairwise(looks)] or [0.0])
    before = f"{duration(apart)} ago" if run.is_open else f"{duration(apart)} before the run's end"
    known = max((r.status.version_published for r in records if r.status.version_published is not None), default=None)
    missed = 0 if known is None or run.version_published is None else run.version_published - known
    if not run.is_open and apart > 0 and missed > 0:
        return (
            f"Last looked at {before}, at version {known}: which weights generated the rollouts of the "
            f"{plural(missed, 'version')} after it is unknown."
        )
    if apart > max(_LONG_AGO, _LOOKS_MISSED * usual):
        return f"Last looked at {before}: nothing is known since. Is the probe still running?"
    return ""


def _table(newest: Sequence[EngineStatus], published: Mapping[int, float], view: View) -> None:
    """Show what was known last, without the columns that no engine has."""
    rows = [engine_row(status, published, view.until) for status in newest]
    if not any(proven.is_contradicted(status) for status in newest):
        rows = [{name: value for name, value in row.items() if name not in _WHERE_CONTRADICTED} for row in rows]
        repeated = "declared"
    else:
        repeated = "served"
    known = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    if all(row["served"] == row["declared"] for row in rows):
        known.remove(repeated)
    seen = "seen before now" if view.record.is_open else "seen before the end"
    named = {"seen": seen, "canary": "canary (nats)", "age": "weight age"}
    st.dataframe(rows, hide_index=True, column_order=known, column_config=named, placeholder="unknown")


def _tiles(newest: Sequence[EngineStatus]) -> None:
    serving = sum(status.state == "serving" for status in newest)
    lags = [behind for behind in map(proven.lag, newest) if behind is not None]
    lying = [status for status in newest if proven.is_contradicted(status)]
    declared = max((status.version_lag for status in newest if status.version_lag is not None), default=None)
    canaries = [c for c in (status.canary_log_ratio_abs_mean for status in newest) if c is not None]
    waiting = [w for w in (status.requests_waiting for status in newest) if w is not None]
    tiles = (
        ("Serving", f"{serving} of {len(newest)}", "Engines that serve what the trainer published last."),
        (
            "Largest lag",
            plural(max(lags), "version") if lags else UNKNOWN,
            "Of the engine that is furthest behind: by its canary where that contradicts what it says.",
        ),
        (
            "Largest canary",
            f"{number(max(canaries))} nats" if canaries else UNKNOWN,
            "What engine and trainer differ by at equal versions. Unknown until the trainer reports a canary.",
        ),
        ("Waiting", f"{count(sum(waiting))} requests" if waiting else UNKNOWN, "Over all engines that say."),
    )
    for column, (label, value, says) in zip(st.columns(len(tiles)), tiles, strict=True):
        is_doubtful = label == "Largest lag" and lying and declared is not None
        column.metric(
            label,
            value,
            delta=f"{declared} as declared" if is_doubtful else None,
            delta_color="off",
            delta_arrow="off",
            help=says,
            border=True,
            height="stretch",
        )


def _say_amiss(newest: Sequence[EngineStatus], not_seen: str) -> None:
    if not_seen:
        st.warning(not_seen, icon=":material/visibility_off:")
    for status in newest:
        if status.state != "serving" or status.findings:
            _say(status)


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
