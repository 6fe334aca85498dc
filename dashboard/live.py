"""Pages that follow an open run: parts of a page are drawn again, never the page itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import streamlit as st

from satwatch._dashboard import source
from satwatch._dashboard.page import Page
from satwatch._dashboard.place import place
from satwatch._dashboard.selection import NEWEST, Selection
from satwatch._dashboard.view import View
from satwatch._dashboard.wording import literal
from satwatch.errors import SatwatchError, UnknownRunError
from satwatch.types import History, RunRecord

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

REFRESH_SECONDS: Final = 2.0
# How often it is asked whether a run has begun, ended or gone on, where no open run is followed.
WATCH_SECONDS: Final = 10.0
_SEEN: Final = "seen"


def follow(history: History, selection: Selection, page: Page, *, is_open: bool) -> None:
    """Draw a page's content, again and again while its run is open and wanted live.

    A sidecar that doesn't answer leaves what was seen last on the page, and says so.

    Args:
        history: what is kept.
        selection: what is looked at.
        page: what draws it.
        is_open: whether the run is open.
    """
    is_followed = selection.is_live and is_open

    @st.fragment(run_every=REFRESH_SECONDS if is_followed else None)
    def content() -> None:
        _draw(history, selection, page, is_followed=is_followed)

    content()


def watch(history: History, lives: Sequence[RunRecord], selection: Selection | None = None) -> None:
    """Draw the page anew once another run or life has come, or one has ended or gone on.

    Args:
        history: what is kept.
        lives: the lives that the page knows.
        selection: what is looked at; None while there is nothing.
    """
    known = _signature(lives, selection)

    @st.fragment(run_every=WATCH_SECONDS if lives else REFRESH_SECONDS)
    def look() -> None:
        try:
            changed = _signature(history.runs(), selection) != known
        except SatwatchError:
            return  # the page's own content says so
        if changed:
            st.rerun()

    if selection is None or selection.is_live:
        look()


def retry(address: str) -> None:
    """Try a history that can't be read again, and draw the page anew once it can."""

    @st.fragment(run_every=REFRESH_SECONDS)
    def look() -> None:
        try:
            source.open_history(address).runs()
        except SatwatchError:
            return
        st.rerun()

    look()


def _draw(history: History, selection: Selection, page: Page, *, is_followed: bool) -> None:
    words = place()
    try:
        # Read before anything is drawn: what is drawn twice in one go is an error of its own.
        view = View.of(history, selection).read(page.needs)
    except UnknownRunError as error:
        words.warning(literal(str(error)))
        return
    except SatwatchError as error:
        with words:
            _say(error, is_followed=is_followed)
        _draw_last(words, selection, page)
        return
    try:
        page.draw(view)
        st.session_state[_SEEN] = (selection, page.path, view)
    except SatwatchError as error:
        with words:
            _say(error, is_followed=is_followed)


def _say(error: SatwatchError, *, is_followed: bool) -> None:
    again = f" It is tried again every {REFRESH_SECONDS:g} s." if is_followed else ""
    st.error(f"The history doesn't answer.{again} {literal(str(error))}", icon=":material/cloud_off:")


def _draw_last(words: DeltaGenerator, selection: Selection, page: Page) -> None:
    """Draw what this page was seen to be last."""
    seen = st.session_state.get(_SEEN)
    if seen is None or seen[:2] != (selection, page.path):
        return
    words.caption("Below is what was seen last.")
    try:
        page.draw(seen[2])
    except SatwatchError:
        st.caption("The rest was never read.")


def _signature(lives: Sequence[RunRecord], selection: Selection | None) -> object:
    """Return what must change for a page to be drawn anew: lives, and the news of one that isn't followed."""

    def news(kept: RunRecord) -> float:
        is_shown = selection is not None and kept.run == selection.run and selection.life in (NEWEST, kept.life)
        return 0.0 if kept.is_open or not is_shown else kept.last_at

    return sorted((kept.life, kept.run, kept.is_open, news(kept)) for kept in lives)
