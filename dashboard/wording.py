"""Numbers and names as they are written on a page."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

UNKNOWN: Final = "unknown"

_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]()<>#+\-!|~$:])")
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0


def number(value: float | None, digits: int = 3) -> str:
    """Write a number in few digits.

    >>> number(0.012345), number(1234567.0), number(None), number(float("inf")), number(0.0)
    ('0.0123', '1.23e+06', 'unknown', '∞', '0')
    """
    if value is None:
        return UNKNOWN
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.{digits}g}"


def share(value: float | None) -> str:
    """Write a share as a percentage; what is not quite 0 or 1 does not read as if it were.

    >>> share(0.123), share(1.0), share(0.99999), share(0.0), share(2e-5), share(None)
    ('12.3%', '100%', '>99.9%', '0%', '<0.1%', 'unknown')
    """
    if value is None or not math.isfinite(value):
        return number(value)
    if value in (0.0, 1.0):
        return f"{value:.0%}"
    if 0 < value < 0.001:
        return "<0.1%"
    if 0.999 < value < 1:
        return ">99.9%"
    return f"{value:.1%}"


def count(value: float | None) -> str:
    """Write how many.

    >>> count(1234567), count(None)
    ('1,234,567', 'unknown')
    """
    return f"{value:,.0f}" if value is not None and math.isfinite(value) else number(value)


def plural(number: float, thing: str) -> str:
    """Write how many of a thing.

    >>> plural(1, "version"), plural(0, "version"), plural(1234, "token")
    ('1 version', '0 versions', '1,234 tokens')
    """
    return f"{number:,.0f} {thing}{'' if number == 1 else 's'}"


def duration(seconds: float | None) -> str:
    """Write a span of time in its largest unit.

    >>> duration(0.25), duration(42.4), duration(200.0), duration(7300.0), duration(200_000.0), duration(None)
    ('0.25 s', '42 s', '3 min', '2.0 h', '2.3 d', 'unknown')
    """
    if seconds is None or not math.isfinite(seconds):
        return number(seconds)
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.1f} h"
    return f"{seconds / _DAY:.1f} d"


def moment(at: float) -> str:
    """Write a Unix time to the second, as the figures do.

    >>> moment(0.0)
    '1970-01-01 00:00:00 UTC'
    """
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def shortened(name: str, most: int = 20) -> str:
    """Write a name in at most so many characters, without its middle: names of runs differ at their ends.

    >>> shortened("demo-reverse-sat-lag8-seed0-temperature"), shortened("my-run")
    ('demo-…d0-temperature', 'my-run')
    """
    return name if len(name) <= most else f"{name[:5]}…{name[6 - most :]}"


def labels(names: Sequence[str], most: int = 20) -> dict[str, str]:
    """Shorten names so that no two read alike: those that would are shown from where they begin to differ.

    >>> list(labels(["grpo-run-lr1e-6-with-a-long-end", "grpo-run-lr3e-6-with-a-long-end", "other"]).values())
    ['…-lr1e-6-with-a-lon…', '…-lr3e-6-with-a-lon…', 'other']
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(shortened(name, most), []).append(name)
    found: dict[str, str] = {}
    for short, mine in alike.items():
        differ = (i for i, letters in enumerate(zip(*mine, strict=False)) if len(set(letters)) > 1)
        start = max(0, next(differ, min(map(len, mine))) - 3)
        found |= {name: short if len(mine) == 1 else f"…{name[start : start + most - 2]}…" for name in mine}
    return {name: found[name] for name in names}


def literal(text: str) -> str:
    r"""Write a text that came from elsewhere so that markdown shows it as it is.

    >>> literal("run_*a*")
    'run\\_\\*a\\*'
    """
    return _MARKDOWN.sub(r"\\\1", text.replace("\n", " "))
