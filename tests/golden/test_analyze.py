"""The golden cases through ``satwatch analyze --json``."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from satwatch.cli.app import app
from tests.golden.cases import CASES, DTYPES, FILE, Case, differences


def run(*arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["analyze", "--json", *arguments])
    assert result.exit_code == 0, result.output
    return [json.loads(line, parse_constant=refuse) for line in result.stdout.splitlines()]


def refuse(constant: str) -> None:
    pytest.fail(f"{constant} is no JSON")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_case_input_is_a_valid_file(case: Case, dtype: str, tmp_path: Path):
    file = tmp_path / "batch.json"
    file.write_text(json.dumps({**case.input, "dtype": dtype}))

    (line,) = run(str(file))

    assert differences(line, case.expect, dtype) == []
    assert list(line)[:5] == ["quantile_reference", "clip_low", "clip_high", "gate", "diagnostics"]


def test_an_array_of_cases_is_a_valid_file():
    lines = run(str(FILE))

    assert [line["name"] for line in lines] == [case.name for case in CASES]
    assert [line["batch"] for line in lines] == list(range(26))
    assert all(differences(line, case.expect, "float64") == [] for line, case in zip(lines, CASES, strict=True))


def test_all_cases_as_lines_through_the_program():
    lines = "".join(json.dumps(dict(case.input)) + "\n" for case in CASES)
    command = [sys.executable, "-m", "satwatch", "analyze", "--json", "-"]

    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    answers = [json.loads(line, parse_constant=refuse) for line in done.stdout.splitlines()]
    assert len(answers) == 26
    assert [differences(answer, case.expect, "float64") for answer, case in zip(answers, CASES, strict=True)] == [
        []
    ] * 26
