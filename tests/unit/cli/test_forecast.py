"""``satwatch forecast``: what a reader sees, what a program reads, what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from satwatch.cli.app import app
from satwatch.sat.forecast import Lengths, Pipeline, forecast_lag

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "forecast.md").read_text(encoding="utf-8")
WORDS = [
    "forecast",
    *("--concurrency", "512", "--tokens-per-second", "40", "--length-mean", "4000", "--length-cv", "1.2"),
    *("--queue", "1024", "--batch", "512", "--train-seconds", "60"),
]


def ask(*more: str, **env: str):
    return CliRunner().invoke(app, [*WORDS, *more], env={"COLUMNS": "100", **env})


def test_the_pages_example_is_what_is_printed():
    (example,) = re.findall(r"```console\n\$ satwatch (.*?)```", PAGE, re.DOTALL)
    command, _, shown = example.replace("\\\n", "").partition("\n")
    assert command.split() == WORDS

    assert ask(PYTHONIOENCODING="utf-8").stdout == shown


def test_the_pages_python_runs():
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(snippet, names)

    assert names["forecast"].version_lag > 0


def test_the_page_names_every_option():
    screen = CliRunner().invoke(app, ["forecast", "--help"], env={"COLUMNS": "200"}).stdout
    options = set(re.findall(r"(?<=[\s│])--[a-z][a-z-]+", screen.partition("Options")[2])) - {"--help"}

    assert len(options) == 9
    assert {option for option in options if f"`{option}`" not in PAGE} == set()


def test_json_is_the_forecast_and_the_changes():
    result = ask("--json")
    said = json.loads(result.stdout)
    forecast = forecast_lag(Pipeline(512, 40.0, Lengths.lognormal(4000.0, 1.2), 1024, 512, 60.0))

    assert result.exit_code == 0
    assert said["version_lag"] == forecast.version_lag
    assert said["regime"] == "rollout-limited"
    assert [change["change"] for change in said["changes"]][:2] == ["half the concurrency", "half the queue"]
    assert all(change["version_lag"] > 0 for change in said["changes"])


def test_a_queue_that_takes_long_to_fill_is_said():
    """A queue of 16 batches and a rollout that is a tenth faster: a tenth of a batch a step."""
    (line,) = [line for line in ask("--train-seconds", "110", "--queue", "8192").stdout.splitlines() if "steps" in line]
    steps = int(re.search(r"about (\d+) steps to get there", line)[1])

    assert steps == pytest.approx(8192 / 51.2, rel=0.15)


def test_a_change_for_nothing_is_said_where_the_best_costs_throughput():
    lines = ask().stdout.splitlines()

    assert "lowers the lag most: half the concurrency" in lines
    assert "at no loss of throughput: batches twice as large, and as long" in lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--batch", "0"], "satwatch: batch_responses: got 0, required a whole number from 1 to"),
        (["--length-cv", "-1"], "satwatch: length_cv: got -1.0, required a number from 0 to 10"),
        (["--train-seconds", "nan"], "satwatch: train_seconds: got nan, required a number from 1e-06 to 1e+09"),
        (["--queue", "1.5"], "got '1.5', required a whole number"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(words: list[str], said: str):
    result = ask(*words)

    assert result.exit_code == 2
    assert said in result.stderr


def test_a_missing_option_is_named():
    result = CliRunner().invoke(app, WORDS[:-2])

    assert result.exit_code == 2
    assert "--train-seconds" in result.stderr
