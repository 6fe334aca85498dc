"""Where what comes and goes stands, so that nothing else has to move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator


def place() -> DeltaGenerator:
    """Return a place for what a page shows now and then; empty, it takes no room.

    A browser tells what is on a page apart by its number. Something more above a figure would have it made anew, and
    what a visitor did to it be lost.
    """
    return st.container()
