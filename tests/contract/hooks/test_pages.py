"""Every trainer's page says what a user looks for there, and the README leads to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TRAINERS = (
    "areal",
    "miles",
    "nemo_rl",
    "openrlhf",
    "prime_rl",
    "roll",
    "skyrl",
    "slime",
    "torch",
    "trl",
    "verl",
)


def read(*path: str) -> str:
    return ROOT.joinpath(*path).read_text(encoding="utf-8")


def test_every_page_is_known_here():
    pages = {page.stem for page in (ROOT / "docs/hooks").glob("*.md")}
    assert pages - {"README", "routing"} == set(TRAINERS)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_first_snippet_is_at_most_ten_lines(trainer: str):
    snippet = re.findall(r"^```\w+\n(.*?)^```", read("docs/hooks", f"{trainer}.md"), re.DOTALL | re.MULTILINE)[0]
    lines = [line for line in snippet.splitlines() if line.strip() and not line.startswith("#")]
    assert 1 <= len(lines) <= 10


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_page_says_what_was_tested_what_is_sent_and_what_is_not_seen(trainer: str):
    page = read("docs/hooks", f"{trainer}.md")
    assert re.search(r"\bTested\b[^.]*\d+\.\d+", page)
    assert re.search(r"^## What .*\b(sends|sent)$", page, re.MULTILINE)
    assert re.search(r"(cannot|can't) see|^- Not sent", page, re.MULTILINE)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_readmes_lead_to_it(trainer: str):
    rows = [line for line in read("README.md").splitlines() if line.startswith("|")]
    assert sum(f"](docs/hooks/{trainer}.md)" in row for row in rows) == 1
    assert f"]({trainer}.md)" in read("docs/hooks/README.md")
