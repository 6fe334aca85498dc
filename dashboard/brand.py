"""The look of all pages: the mark, the colours, and a little less empty space than Streamlit leaves."""

from __future__ import annotations

from typing import Final

import streamlit as st

BLUE: Final = "#3b8bd0"
SIDEBAR_PIXELS: Final = 252

# A ratio between two clip bounds, which close in on it.
_BOUNDS: Final = (
    f'<g fill="none" stroke-linecap="round" stroke-linejoin="round" stroke="{BLUE}">'
    '<path stroke-width="2.4" opacity=".55" d="M3 6h9c4 0 5 4 17 4M3 26h9c4 0 5-4 17-4"/>'
    '<path stroke-width="3" d="M3 16h5l3-5 4 11 4-8 2 2h8"/></g>'
)
MARK: Final = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">{_BOUNDS}</svg>'
WORDMARK: Final = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 150 32">{_BOUNDS}'
    f'<text x="40" y="23" font-family="ui-sans-serif, system-ui, sans-serif" font-size="22" font-weight="600" '
    f'fill="{BLUE}">satwatch</text></svg>'
)
_STYLE: Final = """<style>
[data-testid="stMainBlockContainer"] { padding: 2.6rem 2rem 3rem; max-width: 1800px; }
[data-testid="stSidebarUserContent"] { padding-top: 0.5rem; }
[data-testid="stMetricValue"] { font-size: 1.7rem; font-variant-numeric: tabular-nums; }
[data-testid="stSidebar"] [data-testid="stSelectbox"] input { font-size: 0.8rem; }
[data-testid="stSidebar"] [data-testid="stCaptionContainer"], h2 { overflow-wrap: anywhere; }
[data-testid="stHeader"] { background: transparent; }
[data-testid="stSidebar"] [data-testid="stButtonGroup"] button { padding: 0 0.6rem; }
/* A page that is drawn again every two seconds neither flickers nor says so. */
[data-testid="stStatusWidget"] { display: none; }
[data-stale="true"] { opacity: 1 !important; transition: none !important; }
</style>"""


def dress() -> None:
    """Give the page its title, its mark and its style."""
    st.set_page_config(page_title="satwatch", page_icon=MARK, layout="wide", initial_sidebar_state=SIDEBAR_PIXELS)
    st.logo(WORDMARK, size="large", icon_image=MARK)
    st.html(_STYLE)
