"""The demo's options are those of its configuration."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import satwatch.cli.demo
import satwatch.cli.extras
import satwatch.demo.run
from satwatch.cli.app import app
from satwatch.demo.config import DemoConfig

NOBODY = "127.0.0.1:9"


@pytest.fixture
def demos(monkeypatch: pytest.MonkeyPatch) -> list[tuple[DemoConfig, dict[str, Any]]]:
    """Record what would be run, instead of running."""
    ran: list[tuple[DemoConfig, dict[str, Any]]] = []

    def run_demo(config: DemoConfig, **options: object) -> SimpleNamespace:
        ran.append((config, options))
        answered = config.connect != NOBODY
        return SimpleNamespace(batches_sent=1200, bounds_from_sidecar=1 if answered else 0)

    monkeypatch.setattr(satwatch.demo.run, "run_demo", run_demo)
    return ran


def test_defaults_are_the_configurations(demos: list[tuple[DemoConfig, dict[str, Any]]]):
    assert CliRunner().invoke(app, ["demo"]).exit_code == 0
    assert demos == [(DemoConfig(), {"json_output": False, "dashboard": False})]


def test_options_reach_the_configuration(demos: list[tuple[DemoConfig, dict[str, Any]]]):
    options = (
        "--objective sat-gspo --task sort --lag 3 --steps 20 --seed 9 --connect 127.0.0.1:1 --json "
        "--fault stale-engine --fault-step 7"
    )

    assert CliRunner().invoke(app, ["demo", *options.split()]).exit_code == 0

    expected = DemoConfig(
        objective="sat-gspo",
        task="sort",
        lag=3,
        steps=20,
        seed=9,
        connect="127.0.0.1:1",
        fault="stale-engine",
        fault_step=7,
    )
    assert demos == [(expected, {"json_output": True, "dashboard": False})]


def test_the_store_reaches_the_configuration(demos: list[tuple[DemoConfig, dict[str, Any]]]):
    assert CliRunner().invoke(app, ["demo", "--store", "a.sqlite"]).exit_code == 0
    assert demos[0][0] == DemoConfig(store="a.sqlite")


def test_a_running_sidecar_has_a_store_of_its_own(demos: list[tuple[DemoConfig, dict[str, Any]]]):
    result = CliRunner().invoke(app, ["demo", "--store", "a.sqlite", "--connect", "127.0.0.1:1"])

    assert (result.exit_code, demos) == (2, [])
    assert result.stderr == "satwatch: store: got a.sqlite, and connect, required one of the two\n"


def test_a_sidecar_that_never_answered_is_a_failure_in_the_end(demos: list[tuple[DemoConfig, dict[str, Any]]]):
    result = CliRunner().invoke(app, ["demo", "--connect", NOBODY])

    assert (result.exit_code, len(demos)) == (2, 1)
    assert result.stderr == (
        f"satwatch: {NOBODY}: no sidecar there bounded a batch, the trainer bounded all 1,200 by itself; "
        f"to see why: satwatch check {NOBODY}\n"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--connect here", "connect: got 'here', required HOST:PORT or unix:PATH"),
        (
            "--fault-step 5",
            "fault_step: got 5 without a fault, required fault, one of lag, nan, stale-engine, temperature",
        ),
    ],
)
def test_what_would_be_of_no_use_is_refused_at_once(
    options: str, said: str, demos: list[tuple[DemoConfig, dict[str, Any]]]
):
    result = CliRunner().invoke(app, ["demo", *options.split()])

    assert (result.exit_code, demos) == (2, [])
    assert result.stderr == f"satwatch: {said}\n"


@pytest.mark.parametrize(
    ("options", "on_terminal", "shown"),
    [
        ("", True, True),
        ("", False, False),
        ("--json", True, False),
        ("--no-dashboard", True, False),
        ("--dashboard", False, True),
        ("--dashboard --json", False, True),
    ],
)
def test_a_person_at_a_terminal_and_who_asks_sees_the_dashboard(
    options: str,
    on_terminal: bool,
    shown: bool,
    demos: list[tuple[DemoConfig, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(satwatch.cli.demo, "_is_on_terminal", lambda: on_terminal)

    assert CliRunner().invoke(app, ["demo", *options.split()]).exit_code == 0
    assert demos[0][1]["dashboard"] is shown


@pytest.mark.parametrize(("options", "code", "ran"), [([], 0, 1), (["--dashboard"], 2, 0)])
def test_without_the_dashboards_extra_a_line_says_what_to_install(
    options: list[str],
    code: int,
    ran: int,
    demos: list[tuple[DemoConfig, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(satwatch.cli.demo, "_is_on_terminal", lambda: True)
    monkeypatch.setattr(satwatch.cli.extras, "find_spec", lambda module: None if module == "streamlit" else module)

    result = CliRunner().invoke(app, ["demo", *options])

    assert (result.exit_code, len(demos)) == (code, ran)
    assert result.output.count("dashboard needs the extras cli and server and dashboard: pip install") == 1
    assert not demos or demos[0][1]["dashboard"] is False


@pytest.mark.parametrize(
    "option", ["--objective=dpo", "--task=sing", "--lag=-1", "--steps=0", "--seed=-1", "--fault=fire"]
)
def test_what_cannot_be_meant_is_wrong_use(option: str, demos: list[tuple[DemoConfig, dict[str, Any]]]):
    result = CliRunner().invoke(app, ["demo", option])

    assert result.exit_code == 2
    assert option.removeprefix("--").partition("=")[0] in result.stderr
    assert demos == []
