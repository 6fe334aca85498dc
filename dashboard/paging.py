"""Ways from one page to another that take along what the other is to show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from satwatch._dashboard.sidebar import keep
from satwatch._dashboard.wording import literal, shortened

_PAGES: Final = "pages"


def remember(pages: Mapping[str, StreamlitPage]) -> None:
    """Keep the pages of this visit by the last part of their address."""
    st.session_state[_PAGES] = dict(pages)


def tokens_of(step: int, key: str) -> None:
    """Offer the worst tokens of a step."""
    if st.button(f"Worst tokens of step {step}", key=key, icon=":material/match_word:", type="tertiary"):
        keep("step", step)
        st.session_state.pop("step", None)
        _go("tokens")


def engine_page(engine: str, key: str) -> None:
    """Offer the page of an engine."""
    if st.button(f"{literal(shortened(engine))}: versions and canary", key=key, icon=":material/dns:", type="tertiary"):
        keep("engine", engine)
        st.session_state.pop("engine", None)
        _go("engines")


def alerts_page(count: int, key: str, *, is_over: bool) -> None:
    """Offer the alerts.

    Args:
        count: how many are active, or were at the end.
        key: of the button.
        is_over: the run has ended.
    """
    label = "Alerts" if not count else f"{count} active alert{'s' if count > 1 else ''}"
    label += " at the end" if count and is_over else ""
    if st.button(label, key=key, icon=":material/notifications:", type="tertiary"):
        _go("alerts")


def _go(path: str) -> None:
    st.switch_page(st.session_state[_PAGES][path])
