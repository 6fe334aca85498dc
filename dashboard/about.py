"""What the sidebar says of a life: how much of it is kept, when it was heard of, and its rule."""

from __future__ import annotations

from typing import Final

import streamlit as st

from satwatch._dashboard import source
from satwatch._dashboard.live import REFRESH_SECONDS
from satwatch._dashboard.selection import find
from satwatch._dashboard.wording import count, duration, moment, plural
from satwatch.errors import SatwatchError
from satwatch.types import History, RunRecord

_STATES: Final = {"open": ":green-badge[open]", "ended": ":gray-badge[ended]", "left": ":gray-badge[not open]"}


def show(history: History, record: RunRecord, *, is_followed: bool) -> None:
    """Show what is kept of a life, again and again while it is followed: its age goes on where its steps do not.

    Args:
        history: what is kept.
        record: the life, as it was read last.
        is_followed: whether it is open and wanted live.
    """
    known = [record]

    @st.fragment(run_every=REFRESH_SECONDS if is_followed else None)
    def lines() -> None:
        if is_followed:
            known.append(_newest(history, known.pop()))
        st.caption("  \n".join(told(known[0], source.now() if is_followed else None)))

    lines()


def told(record: RunRecord, now: float | None) -> tuple[str, ...]:
    """Return what is said of a life, in lines.

    Args:
        record: the life.
        now: Unix time in seconds; None: nothing draws it again, and an age would soon be wrong.
    """
    rule = record.rule
    state = _STATES["open" if record.is_open else "left" if record.ended_at is None else "ended"]
    off = "" if rule.enabled else ", off: PPO's interval"
    heard = moment(record.last_at) if now is None else f"{duration(max(0.0, now - record.last_at))} ago"
    return (
        f"{state} life {record.life}",
        f"{plural(record.steps, 'step')}, {count(record.batches)} batches, {count(record.tokens)} tokens",
        f"{plural(record.world_size, 'rank')}, heard of {heard}",
        f"quantile {rule.quantile:g}, radii {rule.eps_low:g} and {rule.eps_high:g}, {rule.level} level{off}",
    )


def why_not_live(record: RunRecord) -> str:
    """Say why a life that is not open is not followed."""
    if source.store_name():
        return "shown as it was stored"
    return "its sidecar doesn't hold it open any more" if record.ended_at is None else "this run has ended"


def _newest(history: History, known: RunRecord) -> RunRecord:
    """Read a life again; it stays as it was known where nobody answers."""
    try:
        return find(history.runs(), known.run, known.life) or known
    except SatwatchError:
        return known
