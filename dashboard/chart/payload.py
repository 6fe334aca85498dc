"""What the browser gets of a figure: a line for its frame, and a line for Plotly."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import plotly.graph_objects as go
from plotly.io.json import to_json_plotly

# Nothing is sent anywhere. A picture at twice the size reads well in a report.
CONFIG: Final = {
    "displaylogo": False,
    "showSendToCloud": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "sendChartToCloud"],
    "toImageButtonOptions": {"format": "png", "scale": 2},
}
# Plotly makes a trace's id a part of classes of its elements.
_NO_CLASS: Final = re.compile(r"\W")
_LOOKED_AT: Final[ContextVar[str]] = ContextVar("looked_at", default="")


@contextmanager
def looking_at(what: str) -> Iterator[None]:
    """Say what the figures drawn meanwhile are of: a zoom lasts until that changes."""
    token = _LOOKED_AT.set(what)
    try:
        yield
    finally:
        _LOOKED_AT.reset(token)


def payload(figure: go.Figure, script: str) -> bytes:
    """Return a figure as ``figure.js`` wants it.

    Args:
        figure: what is shown, with its height.
        script: the address of Plotly's JavaScript, relative to the page's.

    Returns:
        Two lines of JSON, UTF-8: the frame, which is read without the other; data and layout.
    """
    drawn = figure.to_plotly_json()
    data, layout = drawn["data"], drawn["layout"]
    # The page's own look comes in its place, and changes with the page's.
    layout.pop("template", None)
    layout["uirevision"] = _LOOKED_AT.get()
    for name, axis in layout.items():
        if name.startswith(("xaxis", "yaxis")):
            _free(axis)
    _name(data)
    title = layout.get("title", {}).get("text", "")
    frame = {"height": layout["height"], "title": title, "script": script, "config": CONFIG}
    layout["title"] = {**layout.get("title", {}), "text": f"<b>{title}</b>"}
    return f"{json.dumps(frame)}\n{to_json_plotly({'data': data, 'layout': layout})}".encode()


def _free(axis: dict[str, Any]) -> None:
    """Give an axis its range as the one that it finds by itself.

    A range that is given outright wins over a zoom as soon as it is another one, which it is with many a new step.
    """
    given = axis.pop("range", None)
    if given is None:
        return
    ends = [10.0**end for end in given] if axis.get("type") == "log" else [float(end) for end in given]
    low, high = min(ends), max(ends)
    axis["autorange"] = True if ends[0] <= ends[1] else "reversed"
    axis["autorangeoptions"] = {"include": [low, high], "clipmin": low, "clipmax": high}


def _name(data: list[dict[str, Any]]) -> None:
    """Name the traces, so that one stays hidden in a legend that another has joined."""
    before: Counter[str] = Counter()
    for trace in data:
        name = _NO_CLASS.sub("_", str(trace.get("name", trace["type"])))
        before[name] += 1
        trace["uid"] = f"{name}_{before[name]}"
