"""The dashboard: what Streamlit runs, once a visit and again for whatever a visitor changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import streamlit as st

from satwatch._dashboard import brand, empty, live, paging, source
from satwatch._dashboard.page import JUDGED, STEPS, Page
from satwatch._dashboard.selection import Selection, find
from satwatch._dashboard.sidebar import ask_address, select
from satwatch._dashboard.views import alerts, bounds, compare, engines, lag, now, routing, tokens
from satwatch.errors import SatwatchError
from satwatch.types import History, RunRecord

PAGES: Final = (
    Page("now", "Now", ":material/monitor_heart:", now.draw, (*STEPS, *JUDGED, "engines")),
    Page("bounds", "Bounds", ":material/compress:", bounds.draw),
    Page("lag", "Lag", ":material/schedule:", lag.draw, (*STEPS, "engines")),
    Page("engines", "Engines", ":material/dns:", engines.draw, ("points", "engines", "versions")),
    Page("routing", "Routing", ":material/alt_route:", routing.draw),
    Page("tokens", "Tokens", ":material/match_word:", tokens.draw, ("points",)),
    Page("compare", "Compare", ":material/difference:", compare.draw),
    Page("alerts", "Alerts", ":material/notifications:", alerts.draw, ("points", "last", "engines", *JUDGED)),
)


def main(landing: str = "now") -> None:
    """Draw the page that the address line names.

    Args:
        landing: the page of an address that names none.
    """
    brand.dress()
    opened: list[_Opened] = []
    pages = {
        page.path: st.Page(
            _shower(page, opened), title=page.title, icon=page.icon, url_path=page.path, default=page.path == landing
        )
        for page in PAGES
    }
    paging.remember(pages)
    chosen = st.navigation([*pages.values()])
    # Not in the page: what the sidebar's widgets say would end with it.
    opened.append(_open())
    chosen.run()


@dataclass(frozen=True, slots=True)
class _Opened:
    """A history, and what is selected of it; without lives there is nothing to select."""

    address: str
    history: History | None = None
    lives: Sequence[RunRecord] = ()
    selection: Selection | None = None
    error: SatwatchError | None = None


def _open() -> _Opened:
    address = ask_address()
    try:
        history = source.open_history(address)
        lives = history.runs()
    except SatwatchError as error:
        return _Opened(address, error=error)
    return _Opened(address, history, lives, select(history, lives) if lives else None)


def _shower(page: Page, opened: Sequence[_Opened]) -> Callable[[], None]:
    def show() -> None:
        _show(page, opened[0])

    return show


def _show(page: Page, opened: _Opened) -> None:
    if opened.history is None:
        empty.unreachable(opened.address, opened.error)
        live.retry(opened.address)
        return
    live.watch(opened.history, opened.lives, opened.selection)
    if opened.selection is None:
        empty.no_run(opened.address)
        return
    record = find(opened.lives, opened.selection.run, opened.selection.life)
    live.follow(opened.history, opened.selection, page, is_open=record is not None and record.is_open)


if __name__ == "__main__":
    main()
