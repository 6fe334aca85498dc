"""The files that come with satwatch for Grafana and Prometheus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
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
    done = run("grafana", "--output", str(tmp_path / "satwatch.json"))

    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'satwatch.json'}\n")
    assert (tmp_path / "satwatch.json").read_bytes() == (DASHBOARD / "grafana/satwatch.json").read_bytes()


def test_grafana_makes_no_folder_and_replaces_nothing_unless_forced(tmp_path: Path):
    file = tmp_path / "satwatch.json"
    file.write_text("precious")

    lost = run("grafana", "--output", str(file))
    astray = run("grafana", "--output", str(tmp_path / "new" / "satwatch.json"))

    assert (lost.exit_code, astray.exit_code) == (2, 2)
    assert lost.stderr == (
        f"satwatch: --output: got {file}, which is there already, required a new name, or --force to replace it\n"
    )
    assert f"but there is no folder {tmp_path / 'new'}, required a folder that exists" in astray.stderr
    assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]
    assert run("grafana", "--output", str(file), "--force").exit_code == 0
    assert json.loads(file.read_text())["title"]


def test_prometheus_prints_the_rules():
    assert run("prometheus").stdout == (DASHBOARD / "prometheus/satwatch.rules.yml").read_text()


def test_prometheus_writes_all_its_files_once(tmp_path: Path):
    first, again = run("prometheus", "--write", str(tmp_path)), run("prometheus", "--write", str(tmp_path))

    assert first.exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == set(PROMETHEUS_FILES)
    for name in PROMETHEUS_FILES:
        assert (tmp_path / name).read_bytes() == (DASHBOARD / "prometheus" / name).read_bytes()
    assert again.exit_code == 2
    assert f"--write: got {tmp_path / PROMETHEUS_FILES[0]}, which is there already" in again.stderr


def test_prometheus_writes_all_or_nothing_and_replaces_if_forced(tmp_path: Path):
    (tmp_path / "alertmanager.yml").write_text("precious")

    refused = run("prometheus", "--write", str(tmp_path))

    assert refused.exit_code == 2
    assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]
    assert run("prometheus", "--write", str(tmp_path), "--force").exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == set(PROMETHEUS_FILES)


def test_prometheus_makes_the_folder_that_it_was_given_and_says_so(tmp_path: Path):
    done = run("prometheus", "--write", str(tmp_path / "new"))

    assert done.stdout.splitlines() == [
        f"{tmp_path / 'new'}: a new folder",
        *(str(tmp_path / "new" / name) for name in PROMETHEUS_FILES),
    ]
    astray = run("prometheus", "--write", str(tmp_path / "absent" / "new"))
    assert astray.exit_code == 2
    assert astray.stderr.startswith(f"satwatch: --write: got {tmp_path / 'absent/new'} (No such file or directory)")


def test_what_is_written_names_no_file_of_satwatchs_own(tmp_path: Path):
    run("prometheus", "--write", str(tmp_path))

    for name in PROMETHEUS_FILES:
        text = (tmp_path / name).read_text()
        assert [word for word in ("docs/", "dashboard/", "satwatch/", "python -m") if word in text] == []


@pytest.mark.parametrize(
    ("url", "link"),
    [
        ("https://wiki.example.org/it's#", "https://wiki.example.org/it's##esslow"),
        ("https://wiki.example.org/runbook", "https://wiki.example.org/runbook#esslow"),
        ("http://10.0.0.7:8501/alerts?alert={alert}", "http://10.0.0.7:8501/alerts?alert=EssLow"),
    ],
)
def test_alerts_link_to_the_runbook_that_is_named(url: str, link: str):
    plain, linked = (
        {rule["alert"]: rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"] if "alert" in rule}
        for text in (run("prometheus").stdout, run("prometheus", "--runbook-url", url).stdout)
    )

    assert linked["EssLow"]["annotations"]["runbook_url"] == link
    assert len({rule["annotations"]["runbook_url"] for rule in linked.values()}) == len(plain)
    for rules in (plain, linked):
        for rule in rules.values():
            del rule["annotations"]["runbook_url"]
    assert linked == plain


@pytest.mark.parametrize("url", ["runbook.md", "ftp://host/runbook", "https://", "https://host/\nexpr: 1"])
def test_a_runbook_that_no_browser_opens_is_refused(url: str):
    done = run("prometheus", "--runbook-url", url)

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("satwatch: --runbook-url: got ")


@pytest.mark.parametrize(
    ("arguments", "option"), [(("grafana", "-o"), "--output"), (("prometheus", "--write"), "--write")]
)
def test_a_place_that_cannot_be_written(tmp_path: Path, arguments: tuple[str, ...], option: str):
    (tmp_path / "file").write_text("")

    done = run(*arguments, str(tmp_path / "file/below"))

    assert done.exit_code == 2
    assert done.stderr.startswith(f"satwatch: {option}: got {tmp_path / 'file/below'}")
    assert "Traceback" not in done.stderr
