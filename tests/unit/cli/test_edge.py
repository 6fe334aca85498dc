"""What a command raises becomes one line and an exit code."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from satwatch.cli.app import Commands
from satwatch.errors import UnavailableError

# A finder that hides packages, as if they weren't installed; the program runs as itself otherwise.
WITHOUT = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
sys.argv = ["satwatch", *{arguments!r}]
from satwatch.cli import main
main()
"""


def run_without(hidden: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(hidden=hidden, arguments=arguments)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("hidden", "arguments", "extra"),
    [
        ("typer", ["--help"], "cli"),
        ("rich", ["analyze", "--help"], "cli"),
        ("prometheus_client", ["serve"], "server"),
        ("pyarrow", ["analyze", "{file}.parquet"], "cli"),
        ("safetensors", ["analyze", "{file}.safetensors"], "cli"),
    ],
)
def test_a_missing_extra_is_named(hidden: str, arguments: list[str], extra: str, tmp_path):
    file = tmp_path / "batch"
    for suffix in (".parquet", ".safetensors"):
        file.with_suffix(suffix).write_bytes(b"any")

    done = run_without([hidden], *(argument.format(file=file) for argument in arguments))

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"needs {hidden}; pip install 'satwatch[{extra}]'" in done.stderr


def failing(error: BaseException) -> typer.Typer:
    app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)

    @app.command()
    def fail() -> None:
        raise error

    @app.command()
    def other() -> None: ...

    return app


def test_an_error_of_satwatch_is_one_line():
    result = CliRunner().invoke(failing(UnavailableError("no sidecar")), ["fail"])

    assert (result.exit_code, result.stdout, result.stderr) == (2, "", "satwatch: no sidecar\n")


def test_an_interrupt_is_quiet():
    result = CliRunner().invoke(failing(KeyboardInterrupt()), ["fail"])

    assert (result.exit_code, result.output) == (130, "")


def test_a_defect_keeps_its_traceback():
    result = CliRunner().invoke(failing(ZeroDivisionError("a defect")), ["fail"])

    assert isinstance(result.exception, ZeroDivisionError)


def test_a_missing_module_of_no_extra_is_a_defect():
    result = CliRunner().invoke(failing(ModuleNotFoundError("No module named 'x'", name="x")), ["fail"])

    assert isinstance(result.exception, ModuleNotFoundError)


def test_a_reader_that_leaves_ends_it_quietly(tmp_path):
    """The output is far longer than a pipe holds, and nobody reads past the first bytes."""
    lines = tmp_path / "lines.jsonl"
    lines.write_text((json.dumps({"log_ratio": [0.5] * 1000}) + "\n") * 100)
    command = [sys.executable, "-m", "satwatch", "analyze", "--json", str(lines)]

    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()

    assert (process.wait(timeout=60), said) == (141, "")
