"""Where the probe's rounds go: a live table on a terminal, a table for each change elsewhere, or lines of JSON."""

from __future__ import annotations

import logging
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, Self

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from satwatch.cli.edge import complain
from satwatch.cli.engines_json import json_line
from satwatch.cli.engines_table import LEGEND, duration, essence, expected_lag, printable, summary, table
from satwatch.types import EngineStatus

# A terminal made narrower would wrap longer lines, and what they wrap into is never cleared.
_MOST_WIDTH: Final = 120
_PLAIN_WIDTH: Final = 100


class View(Protocol):
    """Shows rounds."""

    def show(self, statuses: tuple[EngineStatus, ...]) -> None:
        """Show the statuses of one round."""

    def note(self, text: str) -> None:
        """Show a message that stands beside the rounds."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: object) -> None: ...


class JsonView:
    """A line of JSON for each engine and round.

    Args:
        hint: says in words why there is nothing to show, or nothing.
    """

    def __init__(self, hint: Callable[[Sequence[EngineStatus]], str]) -> None:
        self._hint, self._hinted = hint, False

    def show(self, statuses: tuple[EngineStatus, ...]) -> None:
        """Print the statuses, an object a line; that there are none is said once, on standard error."""
        if not statuses and not self._hinted:
            self.note(self._hint(statuses))
        self._hinted = not statuses
        for status in statuses:
            typer.echo(json_line(status))

    def note(self, text: str) -> None:
        """Say it on standard error."""
        complain(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        return


class PlainView(JsonView):
    """The table, printed when something changed.

    Args:
        hint: says in words why something is unknown, or nothing.
        width: of the table, columns.
    """

    def __init__(self, hint: Callable[[Sequence[EngineStatus]], str], width: int = _PLAIN_WIDTH) -> None:
        super().__init__(hint)
        self._width = width
        self._last: tuple[object, ...] | None = None

    def show(self, statuses: tuple[EngineStatus, ...]) -> None:
        """Print the table if it's news."""
        news = essence(statuses)
        if news == self._last:
            return
        self._last = news
        for line in frame(statuses, self._hint(statuses), self._width):
            typer.echo(line.plain)
        typer.echo("")


class LiveView:
    """The table, redrawn in place.

    Args:
        console: a terminal.
        hint: as :class:`PlainView`'s.
    """

    def __init__(self, console: Console, hint: Callable[[Sequence[EngineStatus]], str]) -> None:
        self._console, self._hint = console, hint
        self._statuses: tuple[EngineStatus, ...] | None = None
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=2)

    def show(self, statuses: tuple[EngineStatus, ...]) -> None:
        """Show these from now on."""
        self._statuses = statuses
        self._live.refresh()

    def note(self, text: str) -> None:
        """Say it above the table."""
        self._console.print(Text(f"satwatch: {text}"))

    def _render(self) -> Group:
        if self._statuses is None:
            return Group(Text("looking at the engines ..."))
        width = min(self._console.width, _MOST_WIDTH)
        return Group(*frame(self._statuses, self._hint(self._statuses), width))

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *raised: object) -> None:
        self._live.stop()


class Notes(logging.Handler):
    """Shows what the probe and the client log beside the rounds; tracebacks are left to a log file."""

    def __init__(self, view: View) -> None:
        super().__init__(logging.WARNING)
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record."""
        self._view.note(printable(record.getMessage()))

    def __enter__(self) -> Self:
        logging.getLogger("satwatch").addHandler(self)
        return self

    def __exit__(self, *raised: object) -> None:
        logging.getLogger("satwatch").removeHandler(self)


def frame(statuses: Sequence[EngineStatus], hint: str, width: int, now: float | None = None) -> list[Text]:
    """Return the summary, the hint if any, the table, and the lag to expect where there is much.

    Args:
        statuses: of the engines.
        hint: a line below the summary, or several; empty: none.
        width: columns.
        now: Unix time; None: now.
    """
    seen = max((status.seen_at for status in statuses if status.seen_at is not None), default=None)
    age = "" if seen is None else f"; last answer {duration(max(0.0, (now or time.time()) - seen))} ago"
    if not statuses:
        return _wrapped(hint, width)
    head = [*_wrapped(f"{summary(statuses)}{age}", width), *_wrapped(hint, width, "dim")]
    foot = [*_wrapped(expected_lag(statuses), width), *_wrapped(LEGEND, width, "dim")]
    lines = [*head, Text(""), *table(statuses, width), *foot]
    for line in lines:
        line.no_wrap = True
    return lines


def _wrapped(text: str, width: int, style: str = "") -> list[Text]:
    return [Text(line, style) for paragraph in text.splitlines() for line in textwrap.wrap(paragraph, width)]
