"""Queries of the runs and engines that are chosen at the top of the dashboard."""

from __future__ import annotations

from typing import Final

from satwatch._dashboard.grafana.panel import Query
from satwatch.alerts import RULES

RUN: Final = '{run=~"$run"}'
ENGINE: Final = '{engine=~"$engine"}'
RATE: Final = "[$__rate_interval]"
# An alert of a run has no engine, and one of an engine no run: a regular expression's empty branch takes both.
_ALERTS: Final = (
    f'ALERTS{{alertname=~"{"|".join(rule.name for rule in RULES)}", alertstate="firing", '
    'run=~"$run|", engine=~"$engine|"'
)


def gauge(name: str, legend: str = "{{run}}", **labels: str) -> Query:
    """Return a gauge of the runs."""
    matchers = ", ".join(['run=~"$run"', *(f'{label}="{value}"' for label, value in labels.items())])
    return Query(f"satwatch_{name}{{{matchers}}}", legend)


def rate(name: str, legend: str = "{{run}}") -> Query:
    """Return what a counter of the runs rises by a second."""
    return Query(f"rate(satwatch_{name}_total{RUN}{RATE})", legend)


def engine_gauge(name: str, legend: str = "{{engine}}") -> Query:
    """Return a gauge of the engines."""
    return Query(f"satwatch_engine_{name}{ENGINE}", legend)


def engine_rate(name: str, legend: str = "{{engine}}") -> Query:
    """Return what a counter of the engines rises by a second."""
    return Query(f"rate(satwatch_engine_{name}_total{ENGINE}{RATE})", legend)


def sidecar_rate(name: str, legend: str) -> Query:
    """Return what a counter of the sidecar rises by a second."""
    return Query(f"rate(satwatch_{name}_total{RATE})", legend)


def firing(severity: str = "") -> str:
    """Return the alerts that are firing, of one severity or of all."""
    return f'{_ALERTS}, severity="{severity}"}}' if severity else f"{_ALERTS}}}"
