"""Where the pages' data comes from: one history, by its address."""

from __future__ import annotations

import os
import time
from typing import Final

import streamlit as st

from satwatch._dashboard.process import STORE_VARIABLE
from satwatch.addresses import ADDRESS_VARIABLE, DEFAULT_ADDRESS
from satwatch.client import HistoryClient
from satwatch.types import History

# Twice what the fullest page shows.
KEPT_RECORDS: Final = 8192


def default_address() -> str:
    """Return the address that the dashboard was started with."""
    return os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS


def store_name() -> str:
    """Return what the history is called where it is a stored one; empty: it is a sidecar's."""
    return os.environ.get(STORE_VARIABLE, "")


def now() -> float:
    """Return the Unix time in seconds: the clock of all pages."""
    return time.time()


@st.cache_resource(max_entries=8, show_spinner=False)
def open_history(address: str) -> History:
    """Return the history at an address; one connection serves all visitors, and what one has seen is not sent again.

    Args:
        address: HOST:PORT or unix:PATH of a sidecar, or of a stored history that is served.

    Raises:
        ConfigError: no address.
    """
    return HistoryClient(address, keep=KEPT_RECORDS)
