"""The staleness tail by its quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import plotly.graph_objects as go

from satwatch._dashboard.figures.frame import empty, frame, log_axis, mark_versions, step_title
from satwatch._dashboard.figures.heat import AXIS, NOTHING
from satwatch._dashboard.figures.palette import BLUE, GREY, ORANGE, RED, SKY
from satwatch._dashboard.figures.series import add_line, line
from satwatch.types import StepPoint, VersionRecord

QUANTILES: Final = ("0.5", "0.9", "0.99", "0.999")


def tail_quantiles(points: Sequence[StepPoint], *, versions: Sequence[VersionRecord] = ()) -> go.Figure:
    """Draw the quantiles of abs(d) and its maximum over steps, on a log axis."""
    title = "Quantiles of the tail"
    names = [*((f"q{q}", f"log_ratio_abs_q{q}") for q in QUANTILES), ("max", "log_ratio_abs_max")]
    drawn = [(name, line(points, value)) for name, value in names]
    if not any(one.is_known for _, one in drawn):
        return empty(title, NOTHING)
    figure = frame(title, x=step_title(points), y=AXIS)
    for (name, one), colour in zip(drawn, (SKY, BLUE, ORANGE, RED, GREY), strict=True):
        if one.is_known:
            add_line(figure, one, name, colour, dash="dot" if name == "max" else "solid", unit="nats", width=1.5)
    log_axis(figure, np.concatenate([one.y for _, one in drawn]))
    mark_versions(figure, points, versions)
    return figure
