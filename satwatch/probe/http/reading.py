"""Values out of an engine's answer, each of them known or None: what isn't of the kind meant is unknown, never zero."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from satwatch.probe.http.fetch import FetchError, Reply
from satwatch.probe.snapshot import Problem

INT64_MAX: Final = 2**63 - 1
MAX_LABEL: Final = 200
MAX_PATH: Final = 4096


def read_json(reply: Reply) -> object:
    """Return a reply's JSON; NaN and the infinities are floats, which the readers below take for unknown.

    Raises:
        FetchError: no JSON, or nested deeper than anything that an engine means.
    """
    try:
        value: object = json.loads(reply.body)
    except (ValueError, RecursionError):
        # Said below: the error that is raised here would hold the body.
        pass
    else:
        return value
    raise FetchError(Problem("garbage", f"{reply.page}: got no JSON"))


def read_object(reply: Reply) -> Mapping[str, Any]:
    """Return a reply's JSON object.

    Raises:
        FetchError: none.
    """
    value = read_json(reply)
    if not isinstance(value, dict):
        raise FetchError(Problem("garbage", f"{reply.page}: got JSON that is no object"))
    return value


def whole(value: object) -> int | None:
    """Return a count: a whole number from 0 on.

    >>> [whole(value) for value in (3, 3.0, 3.5, -1, True, "3", None, 1e400)]
    [3, 3, None, None, None, None, None, None]
    """
    found = number(value)
    return int(found) if found is not None and found == math.floor(found) and found <= INT64_MAX else None


def number(value: object) -> float | None:
    """Return a finite number from 0 on.

    >>> [number(value) for value in (0.5, 2, -1, True, "3", float("nan"), 10**400)]
    [0.5, 2.0, None, None, None, None, None]
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= INT64_MAX:
        return None
    return float(value)


def logprob(value: object) -> float:
    """Return a log-prob, NaN where there is none.

    >>> [logprob(value) for value in (-0.5, 0, None, "-1", float("-inf"))]
    [-0.5, 0.0, nan, nan, nan]
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= INT64_MAX:
        return math.nan
    return float(value)


def text(value: object, limit: int = MAX_LABEL) -> str | None:
    r"""Return a short printable text; a whole number counts as one, for builds that send versions so.

    What is longer is unknown, not cut: two labels that begin alike would become one.

    >>> [text(value) for value in ("7", 7, "", True, "a\x1b[2J", "7" * 201)]
    ['7', '7', None, None, None, None]
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= INT64_MAX:
        return str(value)
    return value if isinstance(value, str) and 1 <= len(value) <= limit and value.isprintable() else None


def total(values: Iterable[int | None]) -> int | None:
    """Return a sum, unknown as soon as one part is, or where there is none.

    >>> total([1, 2]), total([1, None]), total([])
    (3, None, None)
    """
    parts = list(values)
    known = [part for part in parts if part is not None]
    return sum(known) if parts and len(known) == len(parts) else None
