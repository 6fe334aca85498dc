"""Records that are told apart before they are read: whoever knows one already need not be given it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

from satwatch.types.history import History
from satwatch.types.queries import Query

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stamped(Generic[T]):
    """A record that is not read yet.

    Attributes:
        stamp: 64 bits of a hash of its content: of equal records the same, of others another one.
        read: returns the record; raises as its history does.
    """

    stamp: int
    read: Callable[[], T]


@runtime_checkable
class StampedHistory(History, Protocol):
    """A history that can tell whether a record has changed for less than it takes to read it.

    Its stamps are its own: those of another history, or of the same one opened again, say nothing.
    """

    def stamped(self, query: Query[T]) -> Sequence[Stamped[T]]:
        """Return what the query's own method returns, in the same order, unread.

        Raises:
            SatwatchError: as that method.
        """
