"""What every decoder needs: bytes to a message, and lists counted before they are read."""

from __future__ import annotations

import math
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from satwatch.errors import InvalidBatchError, required

SERVICE: Final = "satwatch.v1.SatwatchService"

M = TypeVar("M", bound=Message)


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
