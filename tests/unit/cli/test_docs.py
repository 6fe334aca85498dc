"""The manual names what there is: every command, option, field, format and mark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from satwatch.analyze.batch import FIELD_NAMES
from satwatch.analyze.marks import MARKS
from satwatch.analyze.sources import READERS
from satwatch.cli.app import app

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = {"analyze": ("analyze.md",), "bench": ("cli.md", "benchmarks.md")}


def page(*names: str) -> str:
    return "\n".join((DOCS / name).read_text(encoding="utf-8") for name in names)


@pytest.mark.parametrize("command", ["serve", "analyze", "demo", "check", "check-config", "bench", "version"])
def test_every_command_and_option(command: str):
    screen = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
    options = set(re.findall(r"(?<=[\s│])--[a-z][a-z-]+", screen.partition("Options")[2])) - {"--help"}
    manual = page(*PAGES.get(command, ("cli.md",)))

    assert f"satwatch {command}" in page("cli.md")
    assert {option for option in options if f"{option}" not in manual} == set()


def test_every_field_and_format():
    manual = page("analyze.md")

    assert {name for name in FIELD_NAMES if f"`{name}`" not in manual} == set()
    assert {suffix for suffix in READERS if f"`{suffix}`" not in manual} == set()


def test_every_mark():
    rows = [line for line in page("analyze.md").partition("## Marks")[2].splitlines() if line.startswith("| `")]
    limits = {name: (mark.watch, mark.suspect) for name, mark in MARKS.items() if mark.watch or mark.suspect}
    documented = {}
    for row in rows:
        names, usual, watch = row.strip("| ").split(" | ")[:3]
        for name in re.findall(r"`([a-z0-9_]+)`", names):
            documented[name] = tuple(float(cell.split()[-1]) if cell.split() else 0.0 for cell in (usual, watch))

    assert documented.keys() == MARKS.keys()
    assert {name: documented[name] for name in limits} == limits
