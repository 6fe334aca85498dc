"""A figure on a page."""

from __future__ import annotations

from typing import Final

import plotly.graph_objects as go
import streamlit as st

# A picture at twice the size reads well in a report.
_CONFIG: Final = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],
    "toImageButtonOptions": {"format": "png", "scale": 2},
}


def chart(figure: go.Figure, key: str, says: str = "") -> None:
    """Show a figure, and below it what a bad one looks like.

    Args:
        figure: what is shown.
        key: the figure's name on the page.
        says: the caption; empty: none.
    """
    with st.container(border=True, height="stretch"):
        st.plotly_chart(figure, key=key, config=_CONFIG)
        if says:
            st.caption(says)
