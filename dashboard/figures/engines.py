"""Engines over time: the grid of served versions, versions as steps, canaries, weight age and queues."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle
from typing import Final

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from satwatch._dashboard import proven
from satwatch._dashboard.figures.frame import TIME_TITLE, empty, frame, log_axis, pick
from satwatch._dashboard.figures.palette import LINES, PURPLE, RED, UNKNOWN
from satwatch._dashboard.figures.series import MOST_LINE_POINTS
from satwatch.types import EngineRecord, EngineStatus

NO_ENGINES: Final = "No engine is watched.<br>satwatch serve --engine http://... or [probe] in its settings."
MOST_TIMES: Final = 160
# A lag of so many versions and more has one colour.
WORST_LAG: Final = 4
WRONG: Final = WORST_LAG + 1
PAUSED: Final = WORST_LAG + 2
UNKNOWN_CODE: Final = WORST_LAG + 3

_CODES: Final = (
    ("lag 0", "#3b8bd0"),
    ("lag 1", "#7fb2c9"),
    ("lag 2", "#d9c27a"),
    ("lag 3", "#e5a23a"),
    (f"lag {WORST_LAG}+", "#c46a12"),
    ("wrong weights", "#de5c90"),
    ("paused", PURPLE),
    ("unknown", UNKNOWN),
)
_MOST_TEXTS: Final = 16
_LEGEND_ROW: Final = 6
# So many versions are always in view, and up to so many have a tick each.
_LEAST_BEHIND: Final = 4.0
_EACH_VERSION: Final = 10
_LEAST_REQUESTS: Final = 5.0


def code(status: EngineStatus | None) -> int:
    """Return the colour code of a status: its version lag, or what is worse."""
    if status is not None and status.state == "wrong_weights":
        return WRONG
    if status is not None and status.state == "paused":
        return PAUSED
    if status is None or status.state == "unknown" or status.version_lag is None:
        return UNKNOWN_CODE
    return min(status.version_lag, WORST_LAG)


def engine_grid(records: Sequence[EngineRecord], *, until: float | None = None) -> go.Figure:
    """Draw engine by time: coloured by version lag and state, the version served written where it changes.

    Where a canary shows other weights than the engine says, the version is the canary's.

    Args:
        records: what was known, oldest first. A status holds until the engine's next record.
        until: where time ends, Unix time in seconds; None: at the last record.
    """
    title = "Which version each engine serves"
    if not records:
        return empty(title, NO_ENGINES)
    by_engine = _by_engine(records)
    edges = _time_edges(records, until)
    grid = [[_at(history, end) for end in edges[1:].tolist()] for history in by_engine.values()]
    figure = frame(title, x=TIME_TITLE, height=min(900, 166 + 40 * len(grid)))
    count = len(_CODES)
    figure.add_trace(
        go.Heatmap(
            x=_times(edges),
            y=list(by_engine),
            z=np.array([[code(status) for status in row] for row in grid], np.int8),
            text=[_texts(row) for row in grid],
            customdata=[[_told(status) for status in row] for row in grid],
            texttemplate="%{text}",
            textfont={"size": 11, "color": "#101418"},
            zmin=-0.5,
            zmax=count - 0.5,
            colorscale=[(edge / count, colour) for i, (_, colour) in enumerate(_CODES) for edge in (i, i + 1)],
            showscale=False,
            ygap=4,
            hovertemplate="%{y}<br>%{customdata}<extra></extra>",
        )
    )
    for seen in sorted({code(status) for row in grid for status in row}):
        name, colour = _CODES[seen]
        marker = {"symbol": "square", "size": 12, "color": colour}
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", name=name, marker=marker))
    figure.update_layout(hovermode="closest", margin={"l": 110}, showlegend=True)
    # Engines may be called by long addresses.
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category", automargin=True)
    return figure


def _by_engine(records: Sequence[EngineRecord]) -> dict[str, list[EngineRecord]]:
    found: dict[str, list[EngineRecord]] = {}
    for record in records:
        found.setdefault(record.status.engine, []).append(record)
    return dict(sorted(found.items()))


def _time_edges(records: Sequence[EngineRecord], until: float | None) -> npt.NDArray[np.float64]:
    first = min(record.at for record in records)
    last = max(record.at for record in records) if until is None else until
    times = min(MOST_TIMES, max(1, len({record.at for record in records})))
    return np.linspace(first, max(last, first + 1.0), times + 1)


def _at(history: Sequence[EngineRecord], time: float) -> EngineStatus | None:
    """Return the status that held at a time."""
    index = bisect_right(history, time, key=lambda record: record.at)
    return history[index - 1].status if index else None


def _texts(row: Sequence[EngineStatus | None]) -> list[str]:
    """Write the version served in the middle of where it holds, or evenly where it changes too often to be read."""
    versions = [None if status is None else proven.version(status) for status in row]
    served = ["" if version is None else str(version) for version in versions]
    starts = [i for i, version in enumerate(served) if i == 0 or version != served[i - 1]]
    if len(starts) <= _MOST_TEXTS:
        ends = [*starts[1:], len(row)]
        shown = {(a + b) // 2 for a, b in zip(starts, ends, strict=True) if (b - a) * 2 * _MOST_TEXTS >= len(row)}
    else:
        shown = {(2 * i + 1) * len(row) // (2 * _MOST_TEXTS) for i in range(_MOST_TEXTS)}
    return [version if i in shown else "" for i, version in enumerate(served)]


def _told(status: EngineStatus | None) -> str:
    if status is None:
        return "not seen yet"
    words = [status.state.replace("_", " ")]
    for name, version in (
        ("says it serves" if proven.is_contradicted(status) else "serves", status.version_served),
        ("calls it", status.version_label),
        ("its canary shows", status.version_canary),
        ("published", status.version_published),
    ):
        if version is not None:
            words.append(f"{name} {version}")
    return ", ".join(words) + (f"<br>{status.reason}" if status.reason else "")


def engine_versions(records: Sequence[EngineRecord], *, behind: bool = True, until: float | None = None) -> go.Figure:
    """Draw each engine's versions as stepped lines: served, dotted what it declares, dashed what its canary shows.

    Args:
        records: what was known, oldest first. A status holds until the engine's next record.
        behind: as the distance to the version published then, 0 at the top; else the versions themselves.
        until: where time ends, Unix time in seconds; None: at the last record.
    """
    title = "Versions: served, declared, and what the canary shows"
    figure = frame(title, x=TIME_TITLE, y="versions behind the published" if behind else "weight version")
    for (name, history), colour in zip(_by_engine(records).items(), cycle(LINES), strict=False):
        picked = _held(pick(history, MOST_LINE_POINTS), until)
        mine, times = [record.status for record in picked], [record.at for record in picked]
        served = [status.version_served for status in mine]
        for word, dash, versions in (
            ("served", "solid", served),
            ("declared", "dot", [status.version_labelled for status in mine]),
            ("by its canary", "dash", [status.version_canary for status in mine]),
        ):
            if any(version is not None for version in versions) and (word == "served" or versions != served):
                _add_versions(figure, times, mine, versions, behind)
                figure.data[-1].update(name=f"{name} {word}", line={"color": colour, "dash": dash})
    known = [one for one in figure.data if np.isfinite(one.y).any()]
    if not known:
        return empty(title, "No engine tells its version." if records else NO_ENGINES)
    if behind:
        away = np.concatenate([np.asarray(one.y, np.float64) for one in figure.data])
        most, least = max(_LEAST_BEHIND, float(np.nanmax(away))), min(0.0, float(np.nanmin(away)))
        figure.update_yaxes(range=[most + 0.5, least - 0.5], dtick=1 if most - least <= _EACH_VERSION else None)
    return _with_legend(figure)


def _held(history: Sequence[EngineRecord], until: float | None) -> list[EngineRecord]:
    """Return the records, and the last one again where time ends."""
    last = history[-1]
    return [*history, replace(last, at=until)] if until is not None and until > last.at else [*history]


def _add_versions(
    figure: go.Figure,
    times: Sequence[float],
    statuses: Sequence[EngineStatus],
    versions: Sequence[int | None],
    behind: bool,
) -> None:
    published = [status.version_published for status in statuses]
    away = [None if v is None or p is None else p - v for v, p in zip(versions, published, strict=True)]
    figure.add_trace(
        go.Scatter(
            x=_times(times),
            y=_floats(away if behind else versions),
            customdata=_floats(versions),
            mode="lines",
            line={"shape": "hv", "width": 1.8},
            hovertemplate="version %{customdata:d}",
        )
    )


def engine_canaries(records: Sequence[EngineRecord], *, limit: float | None = None) -> go.Figure:
    """Draw how far each engine's canary is from the trainer's scores at the same version, on a log axis.

    Args:
        records: what was known, oldest first.
        limit: above it an engine is said to serve other weights, nats; None draws no line.
    """
    title = "Canary: engine against trainer at equal versions"
    nothing = "No canary has been compared.<br>In the trainer: client.report_canary(...)"
    figure = _engine_lines(
        records,
        title,
        "mean |log π - log μ| (nats)",
        nothing,
        [("", lambda record: record.status.canary_log_ratio_abs_mean, "solid")],
    )
    if figure.data:
        log_axis(figure, np.concatenate([one.y for one in figure.data]), most=limit)
        figure.update_traces(hovertemplate="%{y:.4g} nats")
        if limit is not None:
            figure.add_hline(y=limit, line={"color": RED, "width": 1, "dash": "dash"})
            said = {"text": f"wrong weights above {limit:g}", "font": {"size": 11, "color": RED}, "showarrow": False}
            figure.add_annotation(
                x=1, xref="paper", y=float(np.log10(limit)), xanchor="right", yanchor="bottom", **said
            )
    return figure


def engine_ages(records: Sequence[EngineRecord], published: Mapping[int, float] | None = None) -> go.Figure:
    """Draw the age of the weights that each engine says it serves, and dashed of those that its canary shows.

    Args:
        records: what was known, oldest first.
        published: when each version was, Unix time in seconds.
    """
    title = "Weight age"
    nothing = NO_ENGINES if not records else "No engine's weights have a known age."
    figure = _engine_lines(
        records,
        title,
        "seconds since published",
        nothing,
        [
            ("", lambda record: record.status.weight_age_seconds, "solid"),
            ("by its canary", lambda record: _age_by_canary(record, published or {}), "dash"),
        ],
    )
    if figure.data:
        figure.update_yaxes(rangemode="tozero")
        figure.update_traces(hovertemplate="%{y:.1f} s")
    return figure


def engine_queues(records: Sequence[EngineRecord]) -> go.Figure:
    """Draw the requests that each engine runs, and dotted those that wait."""
    title = "Requests: running, and waiting"
    nothing = NO_ENGINES if not records else "No engine tells its requests."
    figure = _engine_lines(
        records,
        title,
        "requests",
        nothing,
        [
            ("running", lambda record: record.status.requests_running, "solid"),
            ("waiting", lambda record: record.status.requests_waiting, "dot"),
        ],
    )
    if figure.data:
        # Whole requests: an idle engine has no fifths of one.
        most = float(np.nanmax(np.concatenate([one.y for one in figure.data])))
        figure.update_yaxes(range=[0, max(_LEAST_REQUESTS, 1.05 * most)], tickformat="d")
        figure.update_traces(hovertemplate="%{y:d} requests")
    return figure


def _age_by_canary(record: EngineRecord, published: Mapping[int, float]) -> float | None:
    status = record.status
    return proven.weight_age(status, published, record.at) if proven.is_contradicted(status) else None


Reading = Callable[[EngineRecord], float | None]


def _engine_lines(
    records: Sequence[EngineRecord],
    title: str,
    unit: str,
    nothing: str,
    readings: Sequence[tuple[str, Reading, str]],
) -> go.Figure:
    figure = frame(title, x=TIME_TITLE, y=unit)
    for (name, history), colour in zip(_by_engine(records).items(), cycle(LINES), strict=False):
        mine = pick(history, MOST_LINE_POINTS)
        for word, read, dash in readings:
            values = [read(record) for record in mine]
            if any(value is not None for value in values):
                figure.add_trace(
                    go.Scatter(
                        x=_times([record.at for record in mine]),
                        y=_floats(values),
                        name=f"{name} {word}".strip(),
                        mode="lines",
                        line={"color": colour, "dash": dash, "width": 1.8},
                        connectgaps=False,
                    )
                )
    return _with_legend(figure) if figure.data else empty(title, nothing)


def _with_legend(figure: go.Figure) -> go.Figure:
    """Put a legend that is too long for a row beside the plot."""
    if len(figure.data) > _LEGEND_ROW:
        figure.update_layout(legend={"orientation": "v", "x": 1.01, "y": 1, "yanchor": "top"})
    return figure


def _floats(values: Sequence[float | None]) -> npt.NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _times(seconds: Sequence[float] | npt.NDArray[np.float64]) -> list[datetime]:
    return [datetime.fromtimestamp(second, UTC).replace(tzinfo=None) for second in seconds]
