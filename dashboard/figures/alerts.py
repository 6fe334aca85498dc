"""Alerts over time: a bar each from raised to resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import plotly.graph_objects as go

from satwatch._dashboard.figures.frame import TIME_TITLE, empty, frame
from satwatch._dashboard.figures.palette import SEVERITY
from satwatch.types import SEVERITIES, Event


@dataclass(frozen=True, slots=True)
class Episode:
    """An alert from its raising to its end.

    Attributes:
        raised: the event that raised it; where that is not kept, the one that resolved it.
        resolved: the event that resolved it, or None: it is active.
    """

    raised: Event
    resolved: Event | None = None

    @property
    def label(self) -> str:
        """The alert, and the engine it is about."""
        return f"{self.raised.alert} · {self.raised.engine}" if self.raised.engine else self.raised.alert


def episodes(events: Sequence[Event]) -> list[Episode]:
    """Pair what was raised with what resolved it, in the order of raising.

    Args:
        events: oldest first.
    """
    found: list[Episode] = []
    active: dict[tuple[str, str, int | None, str], int] = {}
    for event in events:
        key = (event.alert, event.run, event.life, event.engine)
        if event.state == "raised":
            if key not in active:
                active[key] = len(found)
                found.append(Episode(event))
        elif key in active:
            index = active.pop(key)
            found[index] = Episode(found[index].raised, event)
        else:
            found.append(Episode(event, event))
    return found


def alert_timeline(found: Sequence[Episode], *, until: float, is_over: bool = False) -> go.Figure:
    """Draw a row an alert and a bar each time it was raised, coloured by severity; an active one reaches to the end.

    Args:
        found: in the order of raising.
        until: where time ends, Unix time in seconds: now, or when the run ended.
        is_over: the run has ended.
    """
    title = "Alerts over time"
    if not found:
        return empty(title, "No alert has been raised.", height=200)
    rows = list(dict.fromkeys(episode.label for episode in found))
    figure = frame(title, x=TIME_TITLE, height=min(900, 166 + 34 * len(rows)))
    ends = {id(episode): until if episode.resolved is None else episode.resolved.at for episode in found}
    span = max(1.0, max(until, *ends.values()) - min(episode.raised.at for episode in found))
    for severity in SEVERITIES:
        mine = [episode for episode in found if episode.raised.severity == severity]
        if not mine:
            continue
        figure.add_trace(
            go.Bar(
                name=severity,
                orientation="h",
                y=[episode.label for episode in mine],
                base=[_time(episode.raised.at) for episode in mine],
                # Milliseconds; what is over in no time can still be seen.
                x=[1e3 * max(ends[id(e)] - e.raised.at, span / 300) for e in mine],
                marker={
                    "color": SEVERITY[severity],
                    "line": {"width": 0},
                    "pattern": {"shape": ["" if e.resolved else "/" for e in mine], "solidity": 0.25},
                },
                text=[_told(episode, is_over) for episode in mine],
                textposition="none",
                hovertemplate="%{text}<extra></extra>",
            )
        )
    figure.update_layout(barmode="overlay", hovermode="closest", bargap=0.35, margin={"l": 220})
    figure.update_xaxes(type="date")
    figure.update_yaxes(
        autorange="reversed", type="category", categoryorder="array", categoryarray=rows, automargin=True
    )
    return figure


def _told(episode: Episode, is_over: bool) -> str:
    raised, resolved = episode.raised, episode.resolved
    parts = [f"<b>{episode.label}</b> ({raised.severity})", raised.evidence]
    if raised.step is not None:
        parts.append(f"first at step {raised.step}" + ("" if raised.version is None else f", version {raised.version}"))
    if resolved is None:
        parts.append("active at the end" if is_over else "still active")
    else:
        parts.append(f"resolved {_time(resolved.at):%Y-%m-%d %H:%M:%S} UTC")
    return "<br>".join(parts)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
