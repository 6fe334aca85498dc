"""Fields of an engine's answer, as JSON gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from satwatch.errors import InvalidBatchError, required

META_INFO: Final = "meta_info"
INT64_MAX: Final = 2**63 - 1


def read_mapping(name: str, value: object) -> Mapping[str, Any]:
    """Return a JSON object.

    Raises:
        InvalidBatchError: it is none.
    """
    if not isinstance(value, Mapping):
        raise InvalidBatchError(required(name, type(value).__name__, "a JSON object"))
    return value


def read_list(name: str, value: object) -> list[Any]:
    """Return a JSON array.

    Raises:
        InvalidBatchError: it is none.
    """
    if not isinstance(value, list | tuple):
        raise InvalidBatchError(required(name, type(value).__name__, "a list"))
    return list(value)


def read_count(name: str, value: object, low: int = 0, high: int = INT64_MAX) -> int:
    """Return a whole number.

    Raises:
        InvalidBatchError: it is none, or outside the limits.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not low <= value <= high:
        limits = f"{low} or more" if high == INT64_MAX else f"{low} to {high}"
        raise InvalidBatchError(required(name, shown(value), f"a whole number, {limits}"))
    return int(value)


def shown(value: object) -> str:
    """Return what came, short enough for a message."""
    try:
        return f"{value!r:.80}"
    except (ValueError, RecursionError):  # an int of thousands of digits, or lists that never end
        return type(value).__name__
