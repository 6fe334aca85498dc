from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import yaml

from satwatch._dashboard.prometheus import generate
from satwatch._dashboard.prometheus.generate import rules_text
from satwatch.alerts import RECORDINGS, RULES, engine_conditions, rule_of, step_conditions
from satwatch.server.metrics import FAMILIES
from satwatch.types import SEVERITIES

ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / "dashboard" / "prometheus"
EXPRESSIONS = [rule.expr for rule in (*RULES, *RECORDINGS)]


def test_every_alert_is_told_apart_and_written_out():
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    for rule in RULES:
        assert rule.severity in SEVERITIES
        assert rule.summary
        assert not rule.summary.endswith(".")
        assert rule.look_at.endswith((".", "?"))
        assert rule.reading.count("{}") == 1
        assert rule.hold_steps >= 1
        assert rule.clear_steps >= 1
        assert rule_of(rule.name) is rule


def test_every_condition_is_an_alert_and_every_alert_is_judged_here_but_the_sidecars_own():
    assert {*step_conditions.CONDITIONS, "NoBatches"} == {rule.name for rule in RULES if rule.scope == "run"}
    assert {*engine_conditions.CONDITIONS} == {rule.name for rule in RULES if rule.scope == "engine"}


def test_the_gate_rate_alerts_on_nothing():
    assert not [expr for expr in EXPRESSIONS if "gate" in expr]


def test_the_issue_is_covered():
    assert {rule.name for rule in RULES} >= {
        "StalenessTailSpike",
        "StalenessDrift",
        "HeavyTail",
        "EssLow",
        "EssCollapsed",
        "RatioExtreme",
        "EngineBehind",
        "EngineWrongWeights",
        "EngineUnknown",
        "SyncSlow",
        "ReplayOff",
        "NanTokens",
        "InfTokens",
        "NegativeLag",
        "CoverageLost",
        "SidecarBypassed",
        "NoBatches",
        "HistoryDown",
    }


def test_every_metric_of_an_expression_exists():
    recorded = {rule.name for rule in RECORDINGS}
    for expr in EXPRESSIONS:
        assert set(re.findall(r"run:\w+:\w+", expr)) <= recorded
        metrics = set(re.findall(r"(?<![:\w])satwatch_\w+", expr))
        assert metrics <= {family.name for family in FAMILIES}, expr


def test_every_recording_is_used():
    for recording in RECORDINGS:
        assert [rule for rule in RULES if recording.name in rule.expr]


def test_the_rules_file_is_the_catalogue():
    assert (FILES / "satwatch.rules.yml").read_text() == rules_text(), "run `make generated`"


def test_the_generator_writes_the_rules_file(tmp_path):
    (tmp_path / "generate.py").write_text(Path(generate.__file__).read_text())
    runpy.run_path(str(tmp_path / "generate.py"), run_name="__main__")
    assert (tmp_path / "satwatch.rules.yml").read_text() == rules_text()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_alert_is_seen_to_fire_by_promtool_beside_a_series_that_does_not(rule):
    tests = yaml.safe_load((FILES / "satwatch.rules.test.yml").read_text())["tests"]
    firing = [
        (test, sample["labels"])
        for test in tests
        for expected in test["promql_expr_test"]
        for sample in expected.get("exp_samples", [])
        if f'"{rule.name}"' in sample["labels"]
    ]
    assert firing
    for test, _ in firing:
        subjects = {
            match
            for entry in test["input_series"]
            for match in re.findall(r'(?:run|engine|instance)="[^"]+"', entry["series"])
        }
        named = {subject for subject in subjects for other, labels in firing if other is test and subject in labels}
        assert subjects - named, "every series of the test fires"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_alert_has_a_section_in_the_runbook(rule):
    path, anchor = rule.runbook.split("#")
    assert re.search(rf"^## {anchor}$", (ROOT / path).read_text(), re.IGNORECASE | re.MULTILINE)


def test_the_runbook_has_no_section_of_an_alert_that_is_gone():
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE)
    assert sections == [rule.name for rule in RULES]
