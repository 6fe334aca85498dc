"""A record as it lies in the database: told apart from others by its row, and read by who wants it."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from satwatch.types import Stamped

T = TypeVar("T")

_STAMP_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """A record that is not read yet.

    Attributes:
        content: all that is stored of it; nothing else has a part in what is read.
        read: returns the record; raises DamagedError where it can't be read.
    """

    content: tuple[object, ...]
    read: Callable[[], T]


def read_all(found: Iterable[Found[T]]) -> list[T]:
    """Read records.

    Raises:
        DamagedError: one can't be read.
    """
    return [each.read() for each in found]


class Stamper:
    """Stamps records by what is stored of them, with a key of its own: no other stamper's stamps are like its."""

    def __init__(self) -> None:
        """Draw the key."""
        self._key = secrets.token_bytes(hashlib.blake2b.MAX_KEY_SIZE)

    def stamped(self, found: Iterable[Found[T]]) -> list[Stamped[T]]:
        """Stamp records, and leave them unread."""
        return [Stamped(self._stamp(each.content), each.read) for each in found]

    def _stamp(self, content: tuple[object, ...]) -> int:
        digest = hashlib.blake2b(repr(content).encode(), digest_size=_STAMP_BYTES, key=self._key)
        return int.from_bytes(digest.digest(), "big")
