"""The demo's options are those of its configuration."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

import satwatch.demo.run
from satwatch.cli.app import app
from satwatch.demo.config import DemoConfig


@pytest.fixture
def demos(monkeypatch: pytest.MonkeyPatch) -> list[tuple[DemoConfig, dict[str, Any]]]:
    """Record what would be run, instead of running."""
    ran: list[tuple[DemoConfig, dict[str, Any]]] = []
    monkeypatch.setattr(satwatch.demo.run, "run_demo", lambda config, **options: ran.append((config, options)))
    return ran


def test_defaults_are_the_configurations(demos: list[tuple[DemoConfig, dict[str, Any]]]):
    assert CliRunner().invoke(app, ["demo"]).exit_code == 0
    assert demos == [(DemoConfig(), {"json_output": False})]


def test_options_reach_the_configuration(demos: list[tuple[DemoConfig, dict[str, Any]]]):
    options = "--objective sat-gspo --task sort --lag 3 --steps 20 --seed 9 --connect 127.0.0.1:1 --json"

    assert CliRunner().invoke(app, ["demo", *options.split()]).exit_code == 0

    expected = DemoConfig(objective="sat-gspo", task="sort", lag=3, steps=20, seed=9, connect="127.0.0.1:1")
    assert demos == [(expected, {"json_output": True})]


@pytest.mark.parametrize("option", ["--objective=dpo", "--task=sing", "--lag=-1", "--steps=0", "--seed=-1"])
def test_what_cannot_be_meant_is_wrong_use(option: str, demos: list[tuple[DemoConfig, dict[str, Any]]]):
    result = CliRunner().invoke(app, ["demo", option])

    assert result.exit_code == 2
    assert option.removeprefix("--").partition("=")[0] in result.stderr
    assert demos == []
