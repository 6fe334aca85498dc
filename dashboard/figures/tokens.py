"""The worst tokens of a batch: where they stand in their responses, and what generated them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from satwatch._dashboard.figures.frame import empty, frame
from satwatch._dashboard.figures.palette import BAND, GREY, LINES, RED
from satwatch.types import BatchRecord, WorstToken

NOT_FINITE: Final = "NaN or infinite"

# One colour a version or engine; what comes after shares the last.
_MOST_GROUPS: Final = len(LINES)
# Up to so many positions have a tick each.
_EACH: Final = 12


def worst_tokens(batches: Sequence[BatchRecord], *, by: str = "version", q: float | None = None) -> go.Figure:
    """Draw d of the worst tokens against their position, coloured by version, engine or rank.

    Args:
        batches: of one step.
        by: ``version``, ``engine`` or ``rank``.
        q: the quantile reference: the band up to it is shaded; None where it is unknown.

    Returns:
        A scatter of the finite d. NaN and infinite ones stand as crosses at the upper and lower edge.
    """
    title = "The worst tokens, by position in their response"
    found = [(batch, token) for batch in batches for token in batch.worst]
    if not found:
        return empty(title, "No batch of this step has a worst token.", height=380)
    figure = frame(
        title, x="position in the response (tokens)", y="d = log π - log μ (nats)", height=400, legend_rows=2
    )
    edge = 1.15 * max([abs(t.log_ratio) for _, t in found if math.isfinite(t.log_ratio)], default=1.0) or 1.0
    groups: dict[str, list[tuple[BatchRecord, WorstToken]]] = {}
    for batch, token in found:
        name = _group(batch, token, by) if math.isfinite(token.log_ratio) else NOT_FINITE
        groups.setdefault(name, []).append((batch, token))
    broken = groups.pop(NOT_FINITE, [])
    for i, name in enumerate(sorted(groups, key=_order)):
        colour = GREY if name.endswith("unknown") else LINES[min(i, _MOST_GROUPS - 1)]
        _add_group(figure, name, groups[name], edge, colour, "circle")
    if broken:
        _add_group(figure, NOT_FINITE, broken, edge, RED, "x")
    if q is not None and 0 < q < math.inf:
        figure.add_hrect(y0=-q, y1=q, fillcolor=BAND, line_width=0, layer="below")
    figure.add_hline(y=0, line={"color": GREY, "width": 1})
    figure.update_layout(hovermode="closest", showlegend=True)
    furthest = max(token.position for _, token in found)
    # Whole tokens: there is none at a half.
    edge_x = max(0.5, 0.02 * furthest)
    figure.update_xaxes(hoverformat=None, range=[-edge_x, furthest + edge_x], dtick=1 if furthest <= _EACH else None)
    figure.update_yaxes(range=_view(figure, edge))
    return figure


def _view(figure: go.Figure, edge: float) -> list[float]:
    """Return the span of d that is first in view: both sides of 0 alike, or one where nothing is on the other."""
    placed = [y for one in figure.data for y in one.y]
    low, high = min(placed), max(placed)
    return [-0.1 * edge if low > 0 else -1.1 * edge, 0.1 * edge if high < 0 else 1.1 * edge]


def _group(batch: BatchRecord, token: WorstToken, by: str) -> str:
    value = batch.rank if by == "rank" else getattr(token, by)
    if value is None or value == "":
        return f"{by} unknown"
    return str(value) if by == "engine" else f"{by} {value}"


def _order(name: str) -> tuple[bool, int, str]:
    last = name.rsplit(" ", 1)[-1]
    return (name.endswith("unknown"), int(last) if last.lstrip("-").isdigit() else 0, name)


def _add_group(
    figure: go.Figure,
    name: str,
    rows: Sequence[tuple[BatchRecord, WorstToken]],
    edge: float,
    colour: str,
    symbol: str,
) -> None:
    figure.add_trace(
        go.Scatter(
            x=[token.position for _, token in rows],
            y=[_place(token.log_ratio, edge) for _, token in rows],
            text=[_told(batch, token) for batch, token in rows],
            name=name,
            mode="markers",
            marker={"size": 9, "symbol": symbol, "color": colour, "opacity": 0.9, "line": {"width": 0}},
            hovertemplate="%{text}<extra></extra>",
        )
    )


def _place(d: float, edge: float) -> float:
    if math.isfinite(d):
        return d
    return -edge if d < 0 else edge


def _told(batch: BatchRecord, token: WorstToken) -> str:
    parts = [f"d = {token.log_ratio:.4g} nats, r = {_ratio(token.log_ratio)}"]
    where = "" if token.sequence is None else f" of response {token.sequence}"
    parts.append(f"token {token.position}{where}, rank {batch.rank}, microbatch {batch.microbatch}")
    for name, value in (
        ("log μ", token.behavior_logprob),
        ("log π", token.policy_logprob),
        ("log π at rollout weights", token.reference_logprob),
        ("advantage", token.advantage),
    ):
        if value is not None:
            parts.append(f"{name} {value:.4g}")
    if token.version is not None:
        parts.append(f"version {token.version}")
    if token.engine:
        parts.append(token.engine)
    return "<br>".join(parts)


def _ratio(d: float) -> str:
    return "NaN" if math.isnan(d) else f"{math.exp(d):.4g}" if d < 700 else "above 1e304"
