"""``satwatch export`` as a user meets it: files, the default history, the refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from satwatch.cli.app import app
from satwatch.history import open_store
from tests.unit.export.making import STEPS, write_run


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("history") / "h.sqlite")


def run(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "100", **environment})


def test_the_program_exports_what_it_then_analyzes(history: Path, tmp_path: Path):
    """As two processes; the second on a machine without a server's packages."""
    command = [sys.executable, "-m", "satwatch", "export", "run.parquet", "--store", str(history), "--run", "r"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr == f"run.parquet: 5 steps of r (life 2), from {history}\n"
    assert run("export", tmp_path / "run.jsonl", "--store", history, "--run", "r").exit_code == 0

    absent = ["sqlalchemy", "prometheus_client", "grpc_health", "grpc_reflection", "tenacity"]
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({absent!r})); sys.argv[0] = 'satwatch';"
        "from satwatch.cli import main; main()"
    )
    command = [sys.executable, "-c", program, "analyze", "--json", "run.parquet", "run.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["step"] for line in lines] == [*STEPS, *STEPS]
    for a, b in zip(lines[:5], lines[5:], strict=True):
        assert a["diagnostics"] == b["diagnostics"]


def test_options_reach_the_rows(history: Path, tmp_path: Path):
    output = tmp_path / "some.jsonl"
    result = run("export", output, "--store", history, "--run", "r", "--first-step", 1, "--last-step", 5)
    assert result.exit_code == 0
    assert [json.loads(line)["step"] for line in output.read_text().splitlines()] == [1, 2, 5]
    assert run("export", output, "--store", history, "--life", 2, "--what", "events", "--force").exit_code == 0
    assert [json.loads(line)["record"] for line in output.read_text().splitlines()] == ["event", "event"]


def test_standard_output_has_the_rows_and_nothing_else(history: Path):
    result = run("export", "-", "--store", history, "--what", "versions")
    assert [json.loads(line)["version"] for line in result.stdout.splitlines()] == list(STEPS)
    assert result.stderr == f"standard output: 5 versions of r (life 2), from {history}\n"


@pytest.mark.parametrize(("kind", "said"), [("steps", "1 step of r"), ("batches", "1 batch of r")])
def test_one_row_is_no_plural(history: Path, kind: str, said: str):
    result = run("export", "-", "--store", history, "--what", kind, "--first-step", 5, "--last-step", 5)
    assert result.stderr.startswith(f"standard output: {said} (life 2)")


def test_without_a_store_it_is_that_of_the_default_sidecar(tmp_path: Path):
    folder = tmp_path / "state" / "satwatch"
    folder.mkdir(parents=True)
    own = write_run(folder / "4820.sqlite")
    for arguments in ((), ("--store", "auto")):
        result = run("export", tmp_path / "a.parquet", "--force", *arguments, XDG_STATE_HOME=str(tmp_path / "state"))
        assert result.exit_code == 0, result.stderr
        assert result.stderr.endswith(f", from {own}\n")
    assert pq.read_table(tmp_path / "a.parquet").num_rows == len(STEPS)


def test_a_history_that_is_being_written_is_read(history: Path, tmp_path: Path):
    writer = open_store(str(history))
    try:
        assert run("export", tmp_path / "a.jsonl", "--store", history).exit_code == 0
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a.jsonl", "--store", "absent.sqlite"), "store: got absent.sqlite, which does not exist"),
        (("a.jsonl", "--store", "mysql://db/x"), "store: got mysql://, required a path, sqlite:///PATH"),
        (("a.jsonl", "--store", "{history}", "--run", "nobody"), "run: got 'nobody', required one of 'r' life 2"),
        (("a.jsonl", "--store", "{history}", "--run", "idle"), "run: got 'idle', which has no step yet"),
        (("a.jsonl", "--store", "{history}", "--first-step", "77"), "a range without steps, required steps of 0 to 9"),
        (("absent/a.jsonl", "--store", "{history}"), "/absent, required a folder that exists"),
        ((".", "--store", "{history}"), "FILE: got ., a folder, required a file"),
        (("a.csv", "--store", "absent.sqlite"), "output: got a.csv, of which the extension names no format"),
    ],
)
def test_refusals_are_one_line_and_leave_no_file(
    history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
):
    monkeypatch.chdir(tmp_path)
    result = run("export", *(argument.format(history=history) for argument in arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("satwatch: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_replaced_only_by_force(history: Path, tmp_path: Path):
    output = tmp_path / "a.jsonl"
    output.write_text("precious")
    result = run("export", output, "--store", history)
    assert (result.exit_code, output.read_text()) == (2, "precious")
    said = f"FILE: got {output}, which is there already, required a new name, or --force to replace it"
    assert result.stderr == f"satwatch: {said}\n"
    assert run("export", output, "--store", history, "--force").exit_code == 0
    assert len(output.read_text().splitlines()) == len(STEPS)


def test_no_default_history_names_the_file_that_was_looked_for(tmp_path: Path):
    result = run("export", tmp_path / "a.jsonl", XDG_STATE_HOME=str(tmp_path))
    assert result.exit_code == 2
    assert f"store: got {tmp_path}/satwatch/4820.sqlite, which does not exist" in result.stderr


def test_a_reader_that_leaves_ends_it_quietly(history: Path):
    command = [sys.executable, "-m", "satwatch", "export", "-", "--store", str(history)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        assert (process.wait(timeout=60), said) == (141, "")


def test_sigterm_leaves_nothing_behind(history: Path, tmp_path: Path):
    """The first row takes until the signal has come."""
    output = tmp_path / "a.jsonl"
    program = (
        "import sys, satwatch.export.rows as rows\n"
        "def stand_still(*_):\n    print('reading', flush=True)\n    sys.stdin.read()\n"
        "rows._step_row = stand_still\n"
        f"sys.argv = ['satwatch', 'export', {str(output)!r}, '--store', {str(history)!r}]\n"
        "from satwatch.cli import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"reading\n"
        assert list(tmp_path.iterdir()) != []
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(timeout=60) == 143
    assert list(tmp_path.iterdir()) == []
