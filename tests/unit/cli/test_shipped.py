"""The files that come with satwatch for Grafana and Prometheus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from satwatch.cli.app import app
from satwatch.cli.shipped import PROMETHEUS_FILES

DASHBOARD = Path(__file__).resolve().parents[3] / "dashboard"


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_grafana_prints_the_dashboard():
    done = run("grafana")

    assert done.exit_code == 0
    assert json.loads(done.stdout) == json.loads((DASHBOARD / "grafana/satwatch.json").read_text())


def test_grafana_writes_a_file(tmp_path: Path):
    done = run("grafana", "--output", str(tmp_path / "new/satwatch.json"))

    assert done.exit_code == 0
    assert (tmp_path / "new/satwatch.json").read_bytes() == (DASHBOARD / "grafana/satwatch.json").read_bytes()


def test_prometheus_prints_the_rules():
    assert run("prometheus").stdout == (DASHBOARD / "prometheus/satwatch.rules.yml").read_text()


def test_prometheus_writes_all_its_files_once(tmp_path: Path):
    first, again = run("prometheus", "--write", str(tmp_path)), run("prometheus", "--write", str(tmp_path))

    assert first.exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == set(PROMETHEUS_FILES)
    for name in PROMETHEUS_FILES:
        assert (tmp_path / name).read_bytes() == (DASHBOARD / "prometheus" / name).read_bytes()
    assert again.exit_code == 2
    assert f"{tmp_path / PROMETHEUS_FILES[0]}, which is there already" in again.stderr


@pytest.mark.parametrize("arguments", [("grafana", "--output"), ("prometheus", "--write")])
def test_a_place_that_cannot_be_written(tmp_path: Path, arguments: tuple[str, ...]):
    (tmp_path / "file").write_text("")

    done = run(*arguments, str(tmp_path / "file/below"))

    assert done.exit_code == 2
    assert "output: got" in done.stderr
    assert "Traceback" not in done.stderr
