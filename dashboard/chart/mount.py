"""Where figures are mounted: a component of our own, and Plotly's JavaScript from the package that is installed."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

import plotly
import plotly.graph_objects as go
import streamlit as st
from streamlit.components.v1 import declare_component
from streamlit.components.v2 import component

from satwatch._dashboard.chart.payload import payload

if TYPE_CHECKING:
    from streamlit.components.v2.types import ComponentRenderer

PLOTLY_FOLDER: Final = Path(plotly.__file__).parent / "package_data"
PLOTLY_FILE: Final = "plotly.min.js"


def chart(figure: go.Figure, key: str, says: str = "") -> None:
    """Show a figure, and below it what a bad one looks like.

    Args:
        figure: what is shown.
        key: the figure's name on the page. A figure that comes again by its name is updated, and keeps its zoom.
        says: the caption; empty: none.
    """
    mount, script = _served()
    with st.container(border=True, height="stretch"):
        mount(key=key, data=payload(figure, script))
        if says:
            st.caption(says)


@st.cache_resource(show_spinner=False)
def _served() -> tuple[ComponentRenderer, str]:
    """Have Streamlit serve both once: what mounts a figure, and the address of Plotly's JavaScript."""
    # A component of the first kind is a folder that Streamlit serves; none is ever shown.
    folder = declare_component("plotly", path=PLOTLY_FOLDER)
    source = files("satwatch._dashboard.chart").joinpath("figure.js").read_text(encoding="utf-8")
    # In the page itself, not in a shadow of it: Plotly puts its styles into the page.
    mount = component("satwatch.figure", js=source, isolate_styles=False)
    return mount, f"component/{folder.name}/{PLOTLY_FILE}?{plotly.__version__}"
