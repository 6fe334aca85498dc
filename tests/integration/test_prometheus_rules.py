"""The committed files, read by the programs that they are for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

FILES = Path(__file__).resolve().parents[2] / "dashboard" / "prometheus"


def checked(*command):
    """Return what a checker says; it has nothing against the files."""
    done = subprocess.run(command, cwd=FILES, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.real("promtool", "the Debian package prometheus")
def test_promtool_takes_the_rules_and_the_configuration():
    assert "rules found" in checked("promtool", "check", "rules", "--lint-fatal", "satwatch.rules.yml")
    assert "1 rule files found" in checked("promtool", "check", "config", "prometheus.yml")


@pytest.mark.real("promtool", "the Debian package prometheus")
def test_each_alert_fires_where_it_must_and_nowhere_else():
    assert "SUCCESS" in checked("promtool", "test", "rules", "satwatch.rules.test.yml")


@pytest.mark.real("promtool", "the Debian package prometheus")
@pytest.mark.parametrize(
    ("was", "instead"),
    [
        (" unless satwatch_version_lag_mean < 0.5 * (satwatch_version_lag_mean @ end())", ""),
        ("lag > 8", "lag > 7"),
        ("keep_firing_for: 5m", "keep_firing_for: 5s"),
    ],
)
def test_promtools_tests_notice_a_rule_that_is_wrong(tmp_path, was, instead):
    rules = (FILES / "satwatch.rules.yml").read_text()
    assert was in rules
    (tmp_path / "satwatch.rules.yml").write_text(rules.replace(was, instead))
    (tmp_path / "tests.yml").write_text((FILES / "satwatch.rules.test.yml").read_text())
    done = subprocess.run(["promtool", "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 1


@pytest.mark.real("amtool", "the Debian package prometheus-alertmanager")
def test_amtool_takes_alertmanagers_configuration():
    assert "SUCCESS" in checked("amtool", "check-config", "alertmanager.yml")


@pytest.mark.real("amtool", "the Debian package prometheus-alertmanager")
@pytest.mark.parametrize("severity", ["critical", "warning", "info"])
def test_every_severity_reaches_the_webhook(severity):
    routed = checked("amtool", "config", "routes", "test", "--config.file=alertmanager.yml", f"severity={severity}")
    assert routed.splitlines()[0] == "webhook"
