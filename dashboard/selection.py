"""What is looked at: a run, one of its lives, a range of steps. A link says it, so that a colleague sees the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from satwatch.types import RunRecord

Span: TypeAlias = Literal["100", "500", "all", "custom"]

SPANS: Final[Mapping[Span, str]] = {"100": "100", "500": "500", "all": "All", "custom": "Custom"}
DEFAULT_SPAN: Final[Span] = "500"
NEWEST: Final = 0

# Lives of a run that are named, the one heard of last first.
_NAMED: Final = 10
_CUSTOM: Final = re.compile(r"(-?[0-9]{1,15})\.\.(-?[0-9]{1,15})")
_WHOLE: Final = re.compile(r"-?[0-9]{1,15}")  # what a browser's numbers hold exactly


@dataclass(frozen=True, slots=True)
class Selection:
    """What is looked at.

    Attributes:
        run: the run's name.
        life: which of its lives; 0: whichever is the newest.
        span: the range of steps.
        first: the first step of a custom range.
        last: the last one.
        is_live: whether an open run is followed.
        step: the step whose batches are looked at, or None.
        engine: the engine looked at; empty: all.
        other: the life that it is compared with, or None.
        alert: the alert whose section of the runbook is open; empty: none.
    """

    run: str
    life: int = NEWEST
    span: Span = DEFAULT_SPAN
    first: int | None = None
    last: int | None = None
    is_live: bool = True
    step: int | None = None
    engine: str = ""
    other: int | None = None
    alert: str = ""

    def steps(self, record: RunRecord) -> tuple[int | None, int | None]:
        """Return the first and the last step wanted of a run; None is no end."""
        if self.span == "custom":
            return self.first, self.last
        if self.span == "all" or record.last_step is None:
            return None, None
        return record.last_step - int(self.span) + 1, None

    def link(self) -> dict[str, str]:
        """Return the query parameters that lead here; what is as it is anyway is left out."""
        custom = f"{self.first}..{self.last}" if self.span == "custom" else self.span
        said = {
            "run": self.run,
            "life": str(self.life) if self.life else "",
            "range": custom if self.span != DEFAULT_SPAN else "",
            "live": "" if self.is_live else "off",
            "step": "" if self.step is None else str(self.step),
            "engine": self.engine,
            "with": "" if self.other is None else str(self.other),
            "alert": self.alert,
        }
        return {name: value for name, value in said.items() if value}


def read_link(params: Mapping[str, str], lives: Sequence[RunRecord]) -> Selection:
    """Read what a link asks for; what it lacks, or isn't kept, is the newest run, its newest life, the usual range.

    Args:
        params: the query parameters.
        lives: all lives kept, the one heard of last first; at least one.
    """
    run = params.get("run", "")
    if all(life.run != run for life in lives):
        run = lives[0].run
    wanted = whole(params.get("life", "")) or NEWEST
    life = wanted if any(kept.run == run and kept.life == wanted for kept in lives) else NEWEST
    span, first, last = _range(params.get("range", ""))
    return Selection(
        run=run,
        life=life,
        span=span,
        first=first,
        last=last,
        is_live=params.get("live", "") != "off",
        step=whole(params.get("step", "")),
        engine=params.get("engine", ""),
        other=whole(params.get("with", "")),
        alert=params.get("alert", ""),
    )


def missing(params: Mapping[str, str], lives: Sequence[RunRecord]) -> str:
    """Say what a link asks for that isn't kept here; empty: nothing."""
    run, life = params.get("run", ""), whole(params.get("life", "")) or NEWEST
    if run and all(kept.run != run for kept in lives):
        return f"run {run!r}"
    if run and life and all((kept.run, kept.life) != (run, life) for kept in lives):
        its = [str(kept.life) for kept in lives if kept.run == run][:_NAMED]
        return f"life {life} of run {run!r} (its lives: {', '.join(its)})"
    return ""


def find(lives: Sequence[RunRecord], run: str, life: int = NEWEST) -> RunRecord | None:
    """Return a life of a run, the newest for 0."""
    mine = [kept for kept in lives if kept.run == run and life in (NEWEST, kept.life)]
    return max(mine, key=lambda kept: kept.life, default=None)


def whole(text: str) -> int | None:
    """Read a whole number; None for anything else.

    >>> whole("12"), whole("-3"), whole("1e3"), whole("")
    (12, -3, None, None)
    """
    return int(text) if _WHOLE.fullmatch(text) else None


def _range(text: str) -> tuple[Span, int | None, int | None]:
    found = _CUSTOM.fullmatch(text)
    if found is not None:
        first, last = int(found[1]), int(found[2])
        return "custom", min(first, last), max(first, last)
    for span in SPANS:
        if text == span != "custom":
            return span, None, None
    return DEFAULT_SPAN, None, None
