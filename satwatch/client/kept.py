"""Records that a history has answered with, kept so that it need not send them again."""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from satwatch.errors import InvalidBatchError, required

V = TypeVar("V")

# Answers about a topic in which a record does not occur, until it is let go: a step that is open is another one in
# each, and of several pages that look at one run none is to lose what is its own.
FORGET_AFTER: Final = 32


@dataclass(slots=True)
class _Topic:
    """What is kept of one topic: records, and the number of the answer that had them last; the last used are last."""

    answers: int = 0
    records: dict[int, tuple[Any, int]] = field(default_factory=dict)


class Kept:
    """Records by topic and stamp, of all topics together so many; safe from any thread."""

    def __init__(self, most: int) -> None:
        """Keep nothing yet.

        Args:
            most: records; 0: none.
        """
        self._most = most
        self._topics: dict[Hashable, _Topic] = {}
        self._lock = threading.Lock()

    def of(self, topic: Hashable) -> dict[int, Any]:
        """Return what is kept of a topic, by stamp."""
        with self._lock:
            found = self._topics.get(topic)
            return {} if found is None else {stamp: record for stamp, (record, _) in found.records.items()}

    def keep(self, topic: Hashable, stamps: Sequence[int], records: Sequence[object]) -> None:
        """Keep the records of an answer, and let go of what was of no use for long.

        Args:
            topic: what the question is about; stamps of two topics have nothing to do with each other.
            stamps: of the records; none if their history has none, and they are not kept.
            records: all that the answer is about.
        """
        if not self._most or len(stamps) != len(records):
            return
        with self._lock:
            found = self._topics.pop(topic, None) or _Topic()
            self._topics[topic] = found
            found.answers += 1
            for stamp, record in zip(stamps, records, strict=True):
                found.records.pop(stamp, None)
                found.records[stamp] = (record, found.answers)
            _shorten(found, FORGET_AFTER)
            self._make_room()

    def _make_room(self) -> None:
        """Let go of records beyond the most, first those of the topic used longest ago."""
        beyond = sum(len(topic.records) for topic in self._topics.values()) - self._most
        for name in list(self._topics):
            records = self._topics[name].records
            for stamp in list(records)[: max(0, beyond)]:
                del records[stamp]
                beyond -= 1
            if not records:
                del self._topics[name]


def _shorten(topic: _Topic, answers: int) -> None:
    old = []
    for stamp, (_, used) in topic.records.items():
        if used > topic.answers - answers:
            break
        old.append(stamp)
    for stamp in old:
        del topic.records[stamp]


def whole(stamps: Collection[int], sent: Sequence[V], known: Mapping[int, V]) -> tuple[V, ...]:
    """Return all records of an answer: those sent, and those known at their places.

    Args:
        stamps: of all records, in order; none if the history has none, and everything is sent.
        sent: the records that were not known.
        known: what the history was told to be known, by stamp.

    Raises:
        InvalidBatchError: other records were sent than the stamps say.
    """
    if not stamps:
        return tuple(sent)
    missing = sum(stamp not in known for stamp in stamps)
    if missing != len(sent):
        raise InvalidBatchError(required("stamps", f"{len(sent)} records", f"{missing}, those not known"))
    new = iter(sent)
    return tuple(known[stamp] if stamp in known else next(new) for stamp in stamps)
