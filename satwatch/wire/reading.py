"""What every decoder needs: bytes to a message, and lists counted before they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from satwatch.errors import InvalidBatchError, SatwatchError, required

SERVICE: Final = "satwatch.v1.SatwatchService"
MAX_TEXT: Final = 1000

M = TypeVar("M", bound=Message)
V = TypeVar("V")


def parse(message: type[M], data: bytes) -> M:
    """Parse a serialized message.

    Raises:
        InvalidBatchError: the bytes are not such a message.
    """
    try:
        return message.FromString(data)
    except DecodeError as error:
        name = message.DESCRIPTOR.name
        raise InvalidBatchError(required("request", f"{len(data)} bytes that do not parse", f"a {name}")) from error


def read_age(name: str, seconds: float) -> float:
    """Return how long ago something was.

    Raises:
        InvalidBatchError: not finite, or below 0.
    """
    if not 0 <= seconds < math.inf:
        raise InvalidBatchError(required(name, seconds, "finite seconds, 0 or more"))
    return seconds


def require_at_most(name: str, count: int, unit: str, limit: int, why: str = "") -> None:
    """Refuse a list that no message needs.

    Raises:
        InvalidBatchError: more than ``limit``.
    """
    if count > limit:
        raise InvalidBatchError(required(name, f"{count} {unit}", f"at most {limit}{why}"))


def read_each(
    name: str, messages: Collection[M], limit: int, decode: Callable[[M], V], unit: str = ""
) -> tuple[V, ...]:
    """Decode a list once it has been counted.

    Args:
        name: the list's, which comes in front of what is refused in it.
        messages: the list.
        limit: the most entries.
        decode: decodes one of them.
        unit: what they are, in the plural; empty: as the list is named.

    Raises:
        SatwatchError: more than ``limit``, or what ``decode`` raises.
    """
    require_at_most(name, len(messages), unit or name, limit)
    values = []
    for i, message in enumerate(messages):
        try:
            values.append(decode(message))
        except SatwatchError as error:
            raise type(error)(f"{name}[{i}].{error}") from error
    return tuple(values)


def read_known(message: Message, names: Collection[str]) -> dict[str, Any]:
    """Return the optional fields that are there, by name."""
    return {name: getattr(message, name) for name in names if message.HasField(name)}


def require_finite(name: str, value: float) -> float:
    """Return a number that is one.

    Raises:
        InvalidBatchError: infinite or NaN.
    """
    if not math.isfinite(value):
        raise InvalidBatchError(required(name, value, "a finite number"))
    return value


def require_positive(name: str, value: int) -> int:
    """Return a count of what is there.

    Raises:
        InvalidBatchError: below 1.
    """
    if value < 1:
        raise InvalidBatchError(required(name, value, "1 or more"))
    return value


def cut(text: str) -> str:
    """Return what fits of a text, without what has no UTF-8."""
    return text[:MAX_TEXT].encode(errors="replace").decode()
