"""Help that teaches, completion that knows the values, and neither waits for torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from satwatch.cli.app import app

COMMANDS = ("serve", "analyze", "probe", "forecast", "demo", "check", "check-config", "bench", "version")


def ask(*arguments: str, **env: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", **env}, prog_name="satwatch")
    assert result.exit_code == 0, result.output
    return result.stdout


def complete(line: str) -> list[str]:
    words = line.split(" ")
    env = {"_SATWATCH_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return ask(**env).split()


def test_the_first_screen_lists_the_commands():
    screen = ask("--help")

    assert all(f" {command} " in screen for command in COMMANDS)
    codes = " ".join(screen.partition("Exit codes")[2].split())
    assert all(f" {code} " in codes for code in (0, 1, 2, 130, 141, 143))


def test_no_arguments_is_wrong_use_and_shows_help():
    result = CliRunner().invoke(app, [])

    assert result.exit_code == 2
    assert "Usage" in result.output


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_a_command_shows_an_example_and_its_exit_codes(command: str, flag: str):
    screen = ask(command, flag)

    assert f"Usage: satwatch {command}" in screen
    assert f"Example: satwatch {command}" in screen
    assert "Exit codes: 0" in screen
    assert "[bold]" not in screen


@pytest.mark.parametrize("command", [*COMMANDS, ""])
def test_help_leaks_no_types_of_python(command: str):
    screen = ask(*command.split(), "--help")

    for leak in ("{", "[[", "<", "Path]", "bool"):
        assert leak not in screen


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("analyze", "analyze [OPTIONS] FILE..."),
        ("check", "check [OPTIONS] [ADDRESS]"),
        ("serve", "serve [OPTIONS]"),
        ("probe", "probe [OPTIONS]"),
    ],
)
def test_the_usage_line_names_the_arguments(command: str, usage: str):
    assert f"Usage: satwatch {usage} \n" in re.sub(" +", " ", ask(command, "--help"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("serve --threads x", "'--threads': got 'x', required a whole number"),
        ("serve --metrics-port 1.5", "'--metrics-port': got '1.5', required a whole number"),
        ("analyze f.json --quantile x", "'--quantile': got 'x', required a number"),
        ("demo --lag x", "'--lag': got 'x', required a whole number"),
        ("check --timeout x", "'--timeout': got 'x', required a number"),
        ("probe --period x", "'--period': got 'x', required a number"),
        ("probe --fail-on x", "'--fail-on': got 'x', required one of lagging"),
        ("serve --log-level x", "'--log-level': 'x' is not one of"),
        ("analyze f.json --level x", "'--level': 'x' is not one of"),
    ],
)
def test_a_wrong_value_is_refused_in_plain_words(words: str, said: str):
    result = CliRunner().invoke(app, words.split(), env={"COLUMNS": "200"})

    assert result.exit_code == 2
    assert f"Invalid value for {said}" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_there(shell: str):
    script = ask(_SATWATCH_COMPLETE=f"source_{shell}")

    assert "_SATWATCH_COMPLETE" in script
    assert f"complete_{shell}" in script


def test_completion_knows_commands_options_and_values():
    assert set(complete("satwatch che")) == {"check", "check-config"}
    assert "--min-reference" in complete("satwatch analyze --min")
    assert complete("satwatch analyze --level ") == ["token", "sequence"]
    assert complete("satwatch demo --objective s") == ["sat", "sat-gspo"]
    assert complete("satwatch serve --device cu") == ["cuda", "cuda:0"]
    assert complete("satwatch probe --fail-on wr") == ["wrong_weights"]
    # Nothing of its own: the shell completes paths then.
    assert complete("satwatch analyze te") == []


def test_help_loads_nothing_heavy():
    code = "import sys, satwatch.cli.app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert "typer" in loaded
    assert not {"torch", "numpy", "grpc", "pydantic_settings", "prometheus_client", "pyarrow"} & {*loaded}


def test_the_module_and_the_function_are_the_same_program():
    done = subprocess.run(
        [sys.executable, "-m", "satwatch", "--version"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("satwatch ")
