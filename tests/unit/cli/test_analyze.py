"""``satwatch analyze`` as a user meets it: the report, the exit codes, the complaints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from satwatch.analyze.report import GROUPS
from satwatch.cli.analyze import SHOWN_FAULTS
from satwatch.cli.app import app

GOOD = {"log_ratio": [0.01] * 9 + [-0.3], "advantage": [-1.0] * 10}


LABELS = {label: name for names in GROUPS.values() for name, label in names.items()}


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["analyze", *map(str, arguments)], input=stdin, env={"COLUMNS": "100"})


def values(report: str) -> dict[str, str]:
    """Return the report's values by name, each with its flag if it has one."""
    found = {}
    for line in report.splitlines():
        label, name, rest = line[2:17].strip(), *[*line[18:].split(maxsplit=1), "", ""][:2]
        if LABELS.get(label) == name:
            value, flag = [*rest.split(), ""][:2]
            found[label] = f"{value} {flag}" if flag in ("watch", "suspect") else value
    return found


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.json"
    path.write_text(json.dumps(GOOD))
    return path


def test_one_batch_is_reported_in_full(good: Path):
    result = run(good)

    assert result.exit_code == 0
    assert "good.json\ntoken level, alpha 0.9, radii 0.2 and 0.2, exponent 2" in result.stdout
    found = values(result.stdout)
    assert found["active tokens"] == "10"
    assert found["q"] == "0.01"
    assert found["mean |d|"] == "0.039 suspect"
    assert found["gate rate"] == "0.1"
    assert found["clipped by SAT"] == "0.1"
    assert found["NaN tokens"] == "0"
    assert "90.0%  <- q" in result.stdout


def test_many_batches_are_rows_and_then_their_sum(good: Path, tmp_path: Path):
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"log_ratio": [0.5, "nan"]}\n{"log_ratio": [1.0], "name": "last"}\n')

    result = run(good, lines)

    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()[:4]]
    assert rows[0][:4] == ["batch", "tokens", "NaN", "inf"]
    assert rows[1][:4] == ["good.json", "10", "0", "0"]
    assert rows[2][:6] == ["lines.jsonl,", "line", "1", "2", "1", "0"]
    assert rows[3][:6] == ["lines.jsonl,", "line", "2", "1", "0", "0"]
    total = result.stdout.partition("all 3 batches")[2]
    found = values(total)
    assert found["active tokens"] == "13"
    assert found["NaN tokens"] == "1 suspect"
    assert found["mean |d|"] == "0.1575 suspect"  # (10 x 0.039 + 0.5 + 1.0) / 12: of the tokens, never of the means
    assert "q from 0.01 to 1" in total
    assert "lowest q" in total
    assert "highest q" in total


def test_no_row_is_wider_than_80_columns(tmp_path: Path):
    """Many tokens, long names and numbers of every sign; the reader's terminal is narrower than the report."""
    batch = {"log_ratio": [-1.2345e-5] * 999 + [3.2], "advantage": [1.0] * 1000, "behavior_version": 1}
    lines = tmp_path / "a_file_of_a_name_that_is_longer_than_its_column.jsonl"
    lines.write_text(f"{json.dumps({**batch, 'policy_version': 9})}\n" * 2)

    for files in ([lines], ["-"]):
        report = (
            CliRunner()
            .invoke(
                app, ["analyze", *map(str, files)], input=lines.read_text().partition("\n")[0], env={"COLUMNS": "60"}
            )
            .stdout.splitlines()
        )
        assert max(map(len, report)) <= 80
        whole = values("\n".join(report))
        assert whole.keys() == LABELS.keys() - ({"q"} if lines in files else set())
        assert whole["|d| q0.5"].startswith("1.23")


def test_arguments_reach_the_rule(good: Path):
    arguments = ["--quantile", 0.5, "--eps-low", 0.1, "--eps-high", 0.3, "--exponent", 4, "--min-reference", 0.02]

    assert "token level, alpha 0.5, radii 0.1 and 0.3, exponent 4, q at least 0.02, SAT off" in run(
        good, *arguments, "--disabled"
    ).stdout.replace("\n", " ")
    assert json.loads(run(good, "--json", "--disabled").stdout)["gate"] == [False] * 10
    assert json.loads(run(good, "--json", "--enabled").stdout)["gate"][-1] is True


def test_an_argument_that_cannot_be_meant_is_refused_once(good: Path):
    result = run(good, good, "--quantile", 1.5)

    assert result.exit_code == 2
    assert result.stderr == "satwatch: quantile: got 1.5, required a number inside (0, 1)\n"
    assert run(good, "--level", "word").exit_code == 2


def test_a_bad_file_is_named_and_the_others_are_analyzed(good: Path, tmp_path: Path):
    bad = tmp_path / "bad.json"
    bad.write_text('{"log_ratio": [1], "mask": [1, 0]}')

    result = run("--json", bad, good)

    assert result.exit_code == 2
    assert result.stderr == f"satwatch: {bad}: mask: got shape (2,), required (1,), log_ratio's\n"
    assert json.loads(result.stdout)["file"] == str(good)


def test_nothing_but_bad_files_prints_no_report(tmp_path: Path):
    result = run(tmp_path / "absent.json")

    assert (result.exit_code, result.stdout) == (2, "")


def test_complaints_about_one_file_are_bounded(tmp_path: Path):
    lines = tmp_path / "lines.jsonl"
    lines.write_text("no\n" * (SHOWN_FAULTS + 5) + '{"log_ratio": [1]}\n')

    result = run("--json", lines)

    assert result.exit_code == 2
    complaints = result.stderr.splitlines()
    assert len(complaints) == SHOWN_FAULTS + 1
    assert complaints[-1] == f"satwatch: {lines}: 5 more batches like these"
    assert json.loads(result.stdout)["batch"] == SHOWN_FAULTS + 5


def test_labels_and_lag_reach_the_json():
    batch = {
        "log_ratio": [1, 2, 3],
        "run": "r",
        "step": 7,
        "rank": 0,
        "behavior_version": [3, 4, 9],
        "policy_version": 5,
    }

    line = json.loads(run("--json", "-", stdin=json.dumps(batch)).stdout)

    assert {key: line[key] for key in ("file", "batch", "run", "step", "rank")} == {
        "file": "-",
        "batch": 0,
        "run": "r",
        "step": 7,
        "rank": 0,
    }
    assert line["version_lag"] == {
        "version_lag_mean": 1.5,
        "version_lag_max": 2,
        "version_coverage_ratio": 1.0,
        "negative_lag_tokens": 1,
    }


def test_numbers_keep_all_their_digits():
    values = [0.1 + 0.2, 1e-300, 123456.789012345678]

    line = json.loads(run("--json", "-", stdin=json.dumps({"log_ratio": values})).stdout)

    assert line["quantile_reference"] == values[2]
    assert line["diagnostics"]["log_ratio_abs_q0.5"] == values[0]


def test_a_bar_shows_on_a_terminal_that_shows_nothing_else(good: Path, tmp_path: Path):
    """Under a pseudo-terminal as standard error, with the output in a file."""
    import os
    import pty
    import subprocess
    import sys

    controller, terminal = pty.openpty()
    with (tmp_path / "out.jsonl").open("wb") as output:
        command = [sys.executable, "-m", "satwatch", "analyze", "--json", str(good), str(good)]
        env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        process = subprocess.Popen(command, stdout=output, stderr=terminal, env=env)
        os.close(terminal)
        shown = b""
        while True:
            try:
                piece = os.read(controller, 4096)
            except OSError:  # Linux: the other side has closed
                break
            if not piece:
                break
            shown += piece
        os.close(controller)

    assert process.wait(timeout=60) == 0
    assert b"files, 2 batches: good.json" in shown
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2
