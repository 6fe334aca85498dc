"""Engines' statuses as a table that a person reads: a line each, and below it what is amiss, in words."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from rich.text import Text

from satwatch.types import EngineStatus

UNKNOWN: Final = "-"
# Worst first: what needs a person stands where it is seen when there are more engines than lines.
STYLES: Final = {
    "wrong_weights": "bold red",
    "unknown": "magenta",
    "lagging": "yellow",
    "paused": "cyan",
    "serving": "green",
}
_ORDER: Final = tuple(STYLES)
# Widths of everything but the engine's name; with a name of 18 characters they fill 80 columns.
COLUMNS: Final = {"state": 13, "served": 7, "lag": 4, "age": 6, "sync": 6, "queue": 12, "canary": 7}
LEGEND: Final = "lag: versions. sync: published to served. queue: waiting+running. canary: nats."
_GAP: Final = 1
_LEAST_NAME: Final = 10
_NAME_END: Final = 6
_MOST_NAME: Final = 60
_INDENT: Final = "  "


def table(statuses: Sequence[EngineStatus], width: int) -> list[Text]:
    """Return the table's lines, at most ``width`` columns wide.

    Args:
        statuses: of the engines, in any order.
        width: of the terminal, columns.
    """
    name_width = _name_width(statuses, width)
    lines = [Text(_cells(["engine", *COLUMNS], name_width), "bold")]
    for status in sorted(statuses, key=_worst_first):
        cells = [_shortened(status.engine, name_width), *readings(status).values()]
        line = Text(_cells(cells, name_width))
        start = name_width + _GAP
        line.stylize(STYLES[status.state], start, start + COLUMNS["state"])
        lines.append(line)
        lines += [Text(text, "dim") for text in _remarks(status, width)]
    for line in lines:
        line.truncate(width)
        line.no_wrap = True
    return lines


def readings(status: EngineStatus) -> dict[str, str]:
    """Return a status's cells by the column they stand in; ``-`` is unknown."""
    return {
        "state": status.state,
        "served": _whole(status.version_served),
        "lag": _whole(status.version_lag),
        "age": duration(status.weight_age_seconds),
        "sync": duration(status.sync_seconds),
        "queue": _queue(status),
        "canary": UNKNOWN if status.canary_log_ratio_abs_mean is None else f"{status.canary_log_ratio_abs_mean:.2g}",
    }


def summary(statuses: Sequence[EngineStatus]) -> str:
    """Say in one line how many engines serve what: wrong weights first, and those that can't be looked at last.

    >>> summary([EngineStatus("a:1"), EngineStatus("b:1", "serving", version_served=7)])
    '2 engines: 1 on version 7, 1 unknown'
    """
    wrong = sum(status.state == "wrong_weights" for status in statuses)
    gone = sum(status.state == "unknown" for status in statuses)
    served = Counter(s.version_served for s in statuses if s.state not in {"wrong_weights", "unknown"})
    unnamed = served.pop(None, 0)
    versions = sorted(((version, count) for version, count in served.items() if version is not None), reverse=True)
    parts = [f"{wrong} wrong_weights"] if wrong else []
    parts += [f"{count} on {'' if i else 'version '}{version}" for i, (version, count) in enumerate(versions)]
    parts += [f"{count} {what}" for count, what in ((unnamed, "without a version"), (gone, "unknown")) if count]
    published = next((s.version_published for s in statuses if s.version_published is not None), None)
    end = "" if published is None else f"; published {published}"
    return f"{len(statuses)} engine{'' if len(statuses) == 1 else 's'}: {', '.join(parts)}{end}"


def expected_lag(statuses: Iterable[EngineStatus]) -> str:
    """Say in one line what lag generating alone leads to, where that is a version or more; empty: less, or unknown.

    >>> expected_lag([EngineStatus("a:1", "serving", version_lag_generation_expected=value) for value in (0.8, 1.42)])
    'expected lag from generating alone: 0.8 to 1.4 versions, mean over tokens'
    """
    expected = [s.version_lag_generation_expected for s in statuses if s.version_lag_generation_expected is not None]
    if max(expected, default=0.0) < 1:
        return ""
    least, most = f"{min(expected):.1f}", f"{max(expected):.1f}"
    span = most if least == most else f"{least} to {most}"
    return f"expected lag from generating alone: {span} versions, mean over tokens"


def essence(statuses: Iterable[EngineStatus]) -> tuple[object, ...]:
    """Return what of the statuses is news when it changes: not ages and queues, which always do."""
    return tuple(
        (s.engine, s.state, s.version_served, s.version_lag, tuple(finding.kind for finding in s.findings))
        for s in statuses
    )


def duration(seconds: float | None) -> str:
    """Return a duration in at most six characters.

    >>> [duration(s) for s in (None, 0.25, 9.96, 75, 7260, 90000, 1e9)]
    ['-', '0.2s', '10s', '75s', '2h01m', '25h', '11574d']
    """
    if seconds is None:
        return UNKNOWN
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    if seconds < 100:
        return f"{seconds:.0f}s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 10:
        return f"{hours}h{minutes:02}m"
    return f"{hours}h" if hours < 100 else f"{hours // 24}d"


def printable(text: str) -> str:
    r"""Return a text without what a terminal would obey: some of it is an engine's own.

    >>> printable("HTTP 500: \x1b[2Jgone")
    'HTTP 500: ?[2Jgone'
    """
    return "".join(character if character.isprintable() else "?" for character in text)


def _queue(status: EngineStatus) -> str:
    """Return waiting and running requests, and the time in the queue."""
    if status.requests_waiting is None and status.requests_running is None:
        return UNKNOWN
    counts = f"{_whole(status.requests_waiting)}+{_whole(status.requests_running)}"
    return counts if status.queue_seconds is None else f"{counts} {duration(status.queue_seconds)}"


def _remarks(status: EngineStatus, width: int) -> list[str]:
    """Return what is amiss, in lines: the reason for the state, and the findings that it does not name."""
    findings = [finding.message for finding in status.findings if finding.message not in status.reason]
    said = [status.reason, *findings] if status.reason else findings
    wrap = textwrap.TextWrapper(max(1, width - 1), initial_indent=_INDENT, subsequent_indent=_INDENT * 2)
    return [line for text in said for line in wrap.wrap(printable(text))]


def _cells(cells: Iterable[str], name_width: int) -> str:
    widths = (name_width, *COLUMNS.values())
    return (" " * _GAP).join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _name_width(statuses: Iterable[EngineStatus], width: int) -> int:
    rest = sum(COLUMNS.values()) + _GAP * len(COLUMNS)
    longest = max((len(status.engine) for status in statuses), default=len("engine"))
    return max(_LEAST_NAME, min(longest, width - rest, _MOST_NAME))


def _shortened(name: str, width: int) -> str:
    """Return a name without its middle if it is too long: hosts of a fleet differ at the beginning and in the port."""
    if len(name) <= width:
        return name
    end = min(_NAME_END, width // 2)
    return f"{name[: width - end - 1]}~{name[-end:]}"


def _worst_first(status: EngineStatus) -> tuple[int, list[tuple[int, str]]]:
    """Return a key that sorts by state, then by name with its numbers as numbers."""
    parts = re.findall(r"\d+|\D+", status.engine)
    return _ORDER.index(status.state), [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _whole(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)
