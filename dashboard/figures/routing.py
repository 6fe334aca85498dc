"""MoE routing: where engine and trainer chose different experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import plotly.graph_objects as go

from satwatch._dashboard.figures.frame import empty, frame, grey_columns, mark_versions, step_title
from satwatch._dashboard.figures.palette import BLUE, GREEN, ORANGE
from satwatch._dashboard.figures.series import add_line, columns, line
from satwatch.types import StepPoint, VersionRecord

NO_ROUTES: Final = "This run sends no routes: a dense model, or routing=... is not passed."


def flip_rate_heat_map(points: Sequence[StepPoint], *, versions: Sequence[VersionRecord] = ()) -> go.Figure:
    """Draw the flip rate of each MoE layer by step. With routing replay on, all of it is 0."""
    title = "Router flip rate, layer by step"
    layers = sorted({layer for point in points for layer in point.layer_flip_rates})
    if not layers:
        return empty(title, NO_ROUTES, height=400)
    laid = columns(points)
    rates = np.full((len(layers), len(laid.groups)), np.nan)
    for i, group in enumerate(laid.groups):
        for row, layer in enumerate(layers):
            known = [p.layer_flip_rates[layer] for p in group if layer in p.layer_flip_rates]
            # Rates don't merge; of the points that share a column the worst is shown.
            rates[row, i] = max(known, default=np.nan)
    figure = frame(title, x=step_title(points), y="MoE layer", height=min(900, 160 + 14 * max(12, len(layers))))
    most = float(np.nanmax(rates))
    figure.add_trace(
        go.Heatmap(
            x=laid.edges,
            y=np.array(layers),
            z=rates.astype(np.float32),
            zmin=0,
            zmax=most if most > 0 else 0.01,
            # 0 is what replay promises: it has a colour of its own.
            colorscale=((0.0, "#28505e"), (1e-6, "#6a4c93"), (0.35, "#b0507f"), (0.7, "#e5793f"), (1.0, "#f2d03b")),
            hoverongaps=False,
            hovertemplate="step %{x:.0f}, layer %{y}<br>%{z:.3%} of tokens chose other experts<extra></extra>",
            colorbar={"title": {"text": "flip rate"}, "tickformat": ".1%", "thickness": 12, "len": 0.9},
        )
    )
    grey_columns(figure, laid.edges, np.isnan(rates).all(axis=0))
    figure.update_layout(hovermode="closest")
    figure.update_yaxes(dtick=max(1, len(layers) // 16), showgrid=False, zeroline=False)
    mark_versions(figure, points, versions)
    return figure


def flip_rates(points: Sequence[StepPoint], *, versions: Sequence[VersionRecord] = ()) -> go.Figure:
    """Draw the flip rates over all layers: of tokens, of (token, layer) pairs, and of experts."""
    title = "Router flip rates"
    parts = (
        ("tokens with any layer flipped", "router_token_flip_rate", ORANGE),
        ("(token, layer) pairs", "router_flip_rate", BLUE),
        ("experts", "router_expert_disagreement", GREEN),
    )
    drawn = [(name, line(points, value), colour) for name, value, colour in parts]
    if not any(one.is_known for _, one, _ in drawn):
        return empty(title, NO_ROUTES)
    figure = frame(title, x=step_title(points), y="share that differs")
    for name, one, colour in drawn:
        if one.is_known:
            add_line(figure, one, name, colour, form=".3%")
    figure.update_yaxes(tickformat=".1~%", rangemode="tozero")
    mark_versions(figure, points, versions)
    return figure
