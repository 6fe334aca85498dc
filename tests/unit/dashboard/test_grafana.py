import json
import re
import runpy
from itertools import combinations
from pathlib import Path

import pytest

from satwatch._dashboard.grafana import generate
from satwatch._dashboard.grafana.generate import ROWS, dashboard_text
from satwatch.server.metrics_page import page

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "dashboard/grafana/satwatch.json").read_text()
BOARD = json.loads(TEXT)
PANELS = [panel for row in BOARD["panels"] for panel in (row, *row.get("panels", [])) if panel["type"] != "row"]
SPECS = [spec for row in ROWS for spec in row.panels]


def test_the_committed_file_is_what_the_generator_writes(tmp_path):
    assert dashboard_text() == TEXT, "run `make generated`"
    (tmp_path / "generate.py").write_text(Path(generate.__file__).read_text())
    runpy.run_path(str(tmp_path / "generate.py"), run_name="__main__")
    assert (tmp_path / "satwatch.json").read_text() == TEXT


def test_each_panel_has_a_title_of_its_own_a_description_and_a_unit():
    titles = [f"{row.title}/{spec.title}" for row in ROWS for spec in row.panels]
    assert len(set(titles)) == len(PANELS) == len(SPECS)
    for panel in PANELS:
        assert len(panel["description"]) > 20, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_each_metric_of_the_sidecar_is_shown_and_no_other():
    documented = set(re.findall(r"^\| `(satwatch_\w+)`", page(), re.MULTILINE))
    shown = {name.removesuffix("_bucket") for name in re.findall(r"\bsatwatch_\w+", " ".join(_exprs()))}
    assert shown == documented


def test_runbook_sections_that_panels_name_are_there():
    sections = set(re.findall(r"^## (\w+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE))
    named = set(re.findall(r"\(http://127\.0\.0\.1:8501/alerts\?alert=(\w+)\)", TEXT))
    assert named
    assert named <= sections
    assert "docs/" not in TEXT  # whoever imports it has no checkout


def test_series_of_one_panel_can_be_told_apart():
    for panel in PANELS:
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert len(set(legends)) == len(legends), panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(legends)


def test_no_two_panels_lie_on_each_other():
    for group in (BOARD["panels"], *(row["panels"] for row in BOARD["panels"] if row.get("panels"))):
        for a, b in combinations([panel["gridPos"] for panel in group], 2):
            apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
            assert apart or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"], (a, b)
        assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in group)


def test_ids_are_each_panels_own():
    ids = [panel["id"] for row in BOARD["panels"] for panel in (row, *row.get("panels", []))]
    assert len(set(ids)) == len(ids)


def test_runs_engines_and_the_source_are_chosen_at_the_top():
    chosen = {variable["name"]: variable for variable in BOARD["templating"]["list"]}
    assert list(chosen) == ["datasource", "run", "engine"]
    for name in ("run", "engine"):
        assert chosen[name]["multi"]
        assert chosen[name]["includeAll"]
    of_runs = [expr for expr in _exprs() if re.search(r"satwatch_(?:log_ratio|version_lag|router|tokens)", expr)]
    assert of_runs
    assert all('run=~"$run' in expr for expr in of_runs)
    assert all('engine=~"$engine' in expr for expr in _exprs() if re.search(r"satwatch_engine_(?!statuses)", expr))


def test_alerts_and_new_weights_are_marked():
    marks = {mark["name"]: mark for mark in BOARD["annotations"]["list"]}
    assert set(marks) == {"Alerts", "Weight versions"}
    assert all(mark["enable"] for mark in marks.values())
    assert 'alertstate="firing"' in marks["Alerts"]["expr"]
    assert "changes(satwatch_published_version" in marks["Weight versions"]["expr"]


@pytest.mark.parametrize(
    ("title", "colours"),
    [
        ("Mean abs(d)", [(None, "blue"), (0.01, "orange"), (0.03, "red")]),
        ("Worth of a batch", [(None, "red"), (0.1, "orange"), (0.3, "blue")]),
        ("Step", [(None, "blue")]),
    ],
)
def test_colours_change_at_the_thresholds(title, colours):
    (panel,) = [panel for panel in PANELS if panel["title"] == title]
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [(step["value"], step["color"]) for step in steps] == colours


def _exprs():
    return [target["expr"] for panel in PANELS for target in panel["targets"]]
