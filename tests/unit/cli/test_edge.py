"""What a command raises becomes one line and an exit code."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from satwatch.cli.app import Commands
from satwatch.cli.extras import MODULES
from satwatch.errors import ConfigError, UnavailableError

# Finders that find everything but some packages, as if those weren't installed; the program runs as itself otherwise.
WITHOUT = """
import sys
class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name in {hidden!r} else self.finder.find_spec(name, path, target)
sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
sys.argv = ["satwatch", *{arguments!r}]
from satwatch.cli import main
main()
"""
CLI = "pip install 'satwatch[cli]', or from a checkout: pip install '.[cli]'"
BOTH = "extras cli and server: pip install 'satwatch[cli,server]', or from a checkout: pip install '.[cli,server]'"

PROBE = "extras cli and probe: pip install 'satwatch[cli,probe]', or from a checkout: pip install '.[cli,probe]'"


def run_without(hidden: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(hidden=hidden, arguments=arguments)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("hidden", "arguments", "said"),
    [
        ("typer", ["--help"], f"the command line needs the extra cli: {CLI}"),
        ("typer", ["analyze", "x.npz"], f"analyze needs the extra cli: {CLI}"),
        ("typer", ["serve"], f"serve needs the {BOTH}"),
        ("rich", ["analyze", "--help"], f"analyze needs the extra cli: {CLI}"),
        ("pyarrow", ["analyze", "{file}.parquet"], f"analyze needs the extra cli: {CLI}"),
        ("safetensors", ["analyze", "{file}.safetensors"], f"analyze needs the extra cli: {CLI}"),
        ("prometheus_client", ["serve"], f"serve needs the {BOTH}"),
        ("prometheus_client", ["check-config", "{file}.toml"], f"check-config needs the {BOTH}"),
        ("httpx", ["probe", "--engine", "a:1"], f"probe needs the {PROBE}"),
        ("typer", ["probe"], f"probe needs the {PROBE}"),
        ("grpc_health", ["demo", "--steps", "1"], f"demo needs the {BOTH}"),
        ("grpc_reflection", ["bench", "--quick"], f"bench needs the {BOTH}"),
    ],
)
def test_a_missing_extra_is_named_with_all_that_the_command_needs(
    hidden: str, arguments: list[str], said: str, tmp_path
):
    file = tmp_path / "batch"
    for suffix in (".parquet", ".safetensors", ".toml"):
        file.with_suffix(suffix).write_bytes(b"any")

    done = run_without([hidden], *(argument.format(file=file) for argument in arguments))

    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"satwatch: {said}\n")


def test_each_module_of_an_extra_belongs_to_a_requirement_of_it():
    """The table of modules is the one of pyproject.toml, in names of modules instead of distributions."""
    given = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    distributions = packages_distributions()

    for extra, modules in MODULES.items():
        required = {re.match(r"[a-z-]+", line)[0] for line in given["optional-dependencies"][extra]}
        assert {distributions[module][0].lower().replace("_", "-") for module in modules} == required


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


def test_each_fault_is_a_line_of_its_own():
    result = CliRunner().invoke(failing(ConfigError("a: no\nb: no")), ["fail"])

    assert (result.exit_code, result.stderr) == (2, "satwatch: a: no\nsatwatch: b: no\n")


def test_an_interrupt_is_quiet():
    result = CliRunner().invoke(failing(KeyboardInterrupt()), ["fail"])

    assert (result.exit_code, result.output) == (130, "")


def test_a_defect_keeps_its_traceback():
    result = CliRunner().invoke(failing(ZeroDivisionError("a defect")), ["fail"])

    assert isinstance(result.exception, ZeroDivisionError)


def test_a_missing_module_of_no_extra_is_a_defect():
    result = CliRunner().invoke(failing(ModuleNotFoundError("No module named 'x'", name="x")), ["fail"])

    assert isinstance(result.exception, ModuleNotFoundError)
