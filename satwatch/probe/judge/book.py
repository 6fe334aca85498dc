"""The trainer's scores, unpacked once for all engines and rounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

from satwatch.probe.judge.canary import Floats, stack
from satwatch.types import Canary, CanaryScores

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """What the trainer scored of one canary.

    Attributes:
        told: all versions.
        comparable: those at an engine's own temperature and top_p.
        values: their log-probs, a row a version, nats.
    """

    told: tuple[CanaryScores, ...]
    comparable: tuple[CanaryScores, ...]
    values: Floats

    @classmethod
    def of(cls, told: Iterable[CanaryScores]) -> Page:
        """Unpack scores of one canary."""
        told = tuple(told)
        comparable = tuple(scores for scores in told if scores.is_comparable)
        return cls(told, comparable, stack(comparable))

    def scores_of(self, version: int | None) -> CanaryScores | None:
        """Return the scores at a version."""
        return next((scores for scores in self.told if scores.version == version), None)

    def with_kept(self, kept: CanaryScores | None) -> Page:
        """Add scores that the trainer's history has moved on from, unless it tells that version still."""
        return self if kept is None or self.scores_of(kept.version) else Page.of((*self.told, kept))


class Book:
    """All that the trainer scored, a page a canary; equal to itself alone, so that what was made of it can be kept."""

    def __init__(self, canaries: tuple[CanaryScores, ...]) -> None:
        self.canaries = canaries
        self._pages: dict[Canary | None, Page] = {}

    def page(self, canary: Canary | None) -> Page:
        """Return what was scored of a canary."""
        found = self._pages.get(canary)
        if found is None:
            if self._pages and len(self._pages) > len(self.canaries):
                self._pages.clear()  # an engine's canary may be any, and a book lives long
            found = self._pages[canary] = Page.of(scores for scores in self.canaries if scores.canary == canary)
        return found

    def scores_of(self, version: int) -> CanaryScores | None:
        """Return the scores at a version, of whichever canary."""
        return next((scores for scores in self.canaries if scores.version == version), None)


@lru_cache(maxsize=8)
def open_book(canaries: tuple[CanaryScores, ...]) -> Book:
    """Return the book of these scores: the same one for equal scores, which come anew with each answer of a sidecar."""
    return Book(canaries)


class Recall(Generic[T]):
    """One conclusion, kept beside what it was drawn from, with the other things that it was drawn from.

    It belongs to a frozen value and is no part of it: it changes how long an answer takes, never the answer.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: tuple[Book, tuple[Any, ...], T] | None = None

    def find(self, book: Book, others: tuple[Any, ...]) -> T | None:
        """Return what was concluded from the same book and equal other things."""
        kept = self._kept
        return kept[2] if kept is not None and kept[0] is book and kept[1] == others else None

    def keep(self, book: Book, others: tuple[Any, ...], concluded: T) -> T:
        """Keep it in place of the last."""
        self._kept = (book, others, concluded)
        return concluded
