"""Writes ``satwatch.json`` beside itself: the dashboard as Grafana imports it.

Run as ``python -m satwatch._dashboard.grafana.generate``, or by ``make generated``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from satwatch._dashboard.grafana.data_rows import DATA, ROUTING
from satwatch._dashboard.grafana.engine_rows import ENGINES
from satwatch._dashboard.grafana.lag_rows import BOUNDS, LAG
from satwatch._dashboard.grafana.panel import DATASOURCE, RowSpec, build_panel
from satwatch._dashboard.grafana.query import firing
from satwatch._dashboard.grafana.run_rows import HEALTH, STALENESS
from satwatch._dashboard.grafana.sidecar_rows import SIDECAR

ROWS: Final = (HEALTH, STALENESS, BOUNDS, LAG, ENGINES, ROUTING, DATA, SIDECAR)

FILE: Final = Path(__file__).with_name("satwatch.json")
_UID: Final = "satwatch"
_DESCRIPTION: Final = (
    "Asynchronous RL as the sidecar sees it: is the run healthy, is it lagging, is an engine lying, is replay off, or "
    "is the data bad? What an alert means, and what to do, is on the page Alerts of satwatch dashboard."
)
# By name: what the SDK has no word for, in the form that Grafana's Prometheus source reads.
_ANNOTATION_TEXTS: Final = {
    "Alerts": {"titleFormat": "{{alertname}}", "textFormat": "{{run}}{{engine}} {{severity}}", "tagKeys": "severity"},
    "Weight versions": {"titleFormat": "new weights", "textFormat": "{{run}}", "tagKeys": "run", "step": "15s"},
}


def dashboard_text() -> str:
    """Return the dashboard's JSON."""
    encoded = json.loads(JSONEncoder().encode(_dashboard().build()))
    for annotation in encoded["annotations"]["list"]:
        annotation.update(_ANNOTATION_TEXTS[annotation["name"]])
    return json.dumps(encoded, indent=1, sort_keys=True) + "\n"


def _dashboard() -> build.Dashboard:
    board = build.Dashboard("satwatch").uid(_UID).description(_DESCRIPTION).tags(["satwatch", "reinforcement-learning"])
    board = board.time("now-3h", "now").refresh("30s").timezone("browser").tooltip(model.DashboardCursorSync.CROSSHAIR)
    board = board.with_variable(_datasource()).with_variable(_run()).with_variable(_engine())
    board = board.annotation(_alerts()).annotation(_versions())
    for i, row in enumerate(ROWS, 1):
        board = _with_row(board, row, 100 * i)
    return board


def _with_row(board: build.Dashboard, spec: RowSpec, number: int) -> build.Dashboard:
    """Add a row; ``number`` is its id, and its panels' are those that follow: a link to a panel outlives other rows."""
    row = build.Row(spec.title).id(number)
    panels = [build_panel(panel).id(number + i) for i, panel in enumerate(spec.panels, 1)]
    if not spec.is_collapsed:
        board = board.with_row(row)
        for panel in panels:
            board = board.with_panel(panel)
        return board
    row = row.collapsed(True)
    for panel in panels:
        row = row.with_panel(panel)
    return board.with_row(row)


def _datasource() -> build.DatasourceVariable:
    return build.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def _run() -> build.QueryVariable:
    return _names("run", "Run", "label_values(satwatch_batches_total, run)")


def _engine() -> build.QueryVariable:
    return _names("engine", "Engine", "label_values(satwatch_engine_up, engine)")


def _names(name: str, label: str, query: str) -> build.QueryVariable:
    everything = model.VariableOption(selected=True, text="All", value="$__all")
    variable = build.QueryVariable(name).label(label).datasource(DATASOURCE).query(query)
    variable = variable.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(model.VariableSort.ALPHABETICAL_ASC)
    # ".*" and not the list of names: an engine that comes is shown without a reload.
    return variable.multi(True).include_all(True).all_value(".*").current(everything)


def _alerts() -> build.AnnotationQuery:
    return _annotation("Alerts", firing(), "red")


def _versions() -> build.AnnotationQuery:
    published = 'changes(satwatch_published_version{run=~"$run"}[$__rate_interval]) > 0'
    return _annotation("Weight versions", published, "rgba(120, 160, 255, 0.5)")


def _annotation(name: str, expr: str, colour: str) -> build.AnnotationQuery:
    annotation = build.AnnotationQuery().name(name).datasource(DATASOURCE).enable(True).hide(False)
    return annotation.icon_color(colour).expr(expr)


if __name__ == "__main__":
    FILE.write_text(dashboard_text(), encoding="utf-8")
