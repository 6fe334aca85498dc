"""The runbook as the package carries it: a section an alert."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

FILE: Final = "runbook.md"
_PAGE: Final = "http://127.0.0.1:8501/alerts"


def link(alert: str) -> str:
    """Return where a dashboard on this machine, at its usual port, has an alert's section.

    >>> link("EssLow")
    'http://127.0.0.1:8501/alerts?alert=EssLow'
    """
    return f"{_PAGE}?alert={alert}"


@cache
def sections() -> dict[str, str]:
    """Return the text of each section of the runbook by its heading."""
    return parse(files("satwatch._dashboard").joinpath(FILE).read_text(encoding="utf-8"))


def parse(text: str) -> dict[str, str]:
    r"""Return the sections of a text in Markdown by their headings of the second level.

    >>> parse("# Runbook\n\nbefore\n\n## EssLow\n\nLook.\n\n### Then\n\nAct.\n\n## InfTokens\n\nOther.\n")
    {'EssLow': 'Look.\n\n### Then\n\nAct.', 'InfTokens': 'Other.'}
    """
    found: dict[str, list[str]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ").strip()
            found[heading] = []
        elif heading:
            found[heading].append(line)
    return {name: "\n".join(lines).strip() for name, lines in found.items()}
