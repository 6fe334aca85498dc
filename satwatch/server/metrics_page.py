"""Writes docs/metrics.md: the prose of metrics_page.md around tables made of the code.

Run as ``python -m satwatch.server.metrics_page``; it prints the page.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from satwatch.server.families import Family
from satwatch.server.metrics import GROUPS

_PROSE: Final = Path(__file__).with_suffix(".md")
_TABLES: Final = "{families}\n"
_HEAD: Final = ("name", "type", "unit", "labels", "meaning", "formula", "what a bad value means")


def page() -> str:
    """Return the page, in Markdown."""
    tables = "\n".join(_table(title, families) for title, families in GROUPS)
    return _PROSE.read_text(encoding="utf-8").replace(_TABLES, tables)


def _table(title: str, families: Sequence[Family]) -> str:
    rows = (_HEAD, ["---"] * len(_HEAD), *map(_cells, families))
    return f"## {title}\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cells(family: Family) -> list[str]:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    cells = (f"`{family.name}`", family.kind, family.unit, labels, family.help, family.formula, family.bad)
    return [cell.replace("|", r"\|") or "-" for cell in cells]


if __name__ == "__main__":
    sys.stdout.write(page())
