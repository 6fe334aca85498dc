"""What waits to be written: the newest state of each thing, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final

from satwatch.history.records import (
    BatchSeen,
    EngineSeen,
    EventSeen,
    Kind,
    LifeEnded,
    LifeOpened,
    Record,
    StepSeen,
    kind_of,
)
from satwatch.history.writer import Queued

# A life comes before what belongs to it.
_WRITTEN_FIRST: Final[tuple[Kind, ...]] = ("life", "step", "version", "event", "engine", "batch")
# What is told again, or can be done without, goes first.
_DROPPED_FIRST: Final[tuple[Kind, ...]] = ("batch", "engine", "step", "version", "event", "life")


class Pending:
    """Records in the order of their coming, by kind; not safe from threads.

    Attributes:
        max_records: the most that are held, those being written included.
        dropped: records dropped, by kind.
    """

    def __init__(self, max_records: int) -> None:
        """Hold nothing yet."""
        self.max_records = max_records
        self.dropped: Counter[str] = Counter()
        self._queues: dict[Kind, dict[Hashable, Queued]] = {kind: {} for kind in _WRITTEN_FIRST}
        self._in_flight: list[Queued] = []
        self._count = 0

    def __len__(self) -> int:
        return sum(map(len, self._queues.values())) + len(self._in_flight)

    @property
    def count(self) -> int:
        """Records added so far; the number of the newest."""
        return self._count

    def add(self, record: Record) -> None:
        """Add a record in the place of an older one of the same thing; if there are too many, drop some."""
        self._count += 1
        queue, name = self._queues[kind_of(record)], _name_of(record, self._count)
        # To the end, not in its place: what is written of closed steps is always a beginning of their order.
        queue.pop(name, None)
        queue[name] = Queued(self._count, record)
        while len(self) > self.max_records and self._drop():
            pass

    def _drop(self) -> bool:
        for kind in _DROPPED_FIRST:
            if queue := self._queues[kind]:
                del queue[next(iter(queue))]
                self.dropped[kind] += 1
                return True
        return False

    def take(self, most: int) -> list[Queued]:
        """Take records to be written; they are held until :meth:`done`."""
        for kind in _WRITTEN_FIRST:
            queue = self._queues[kind]
            for name in list(queue)[: most - len(self._in_flight)]:
                self._in_flight.append(queue.pop(name))
        return list(self._in_flight)

    def done(self) -> None:
        """Let go of what was taken."""
        self._in_flight.clear()

    def lost(self) -> None:
        """Give up what was taken and all that waits, counted as dropped."""
        self.dropped.update(kind_of(queued.record) for queued in self._in_flight)
        self.done()
        while self._drop():
            pass

    def is_done(self, count: int) -> bool:
        """Tell whether the first so many records are written, or dropped."""
        heads = [next(iter(queue.values())).ordinal for queue in self._queues.values() if queue]
        heads += [queued.ordinal for queued in self._in_flight]
        return min(heads, default=count + 1) > count


def _name_of(record: Record, ordinal: int) -> Hashable:
    """Return what a record is the state of; an alert is a thing of its own."""
    match record:
        case LifeOpened() | LifeEnded():
            return type(record), record.key
        case StepSeen():
            return record.key, record.step
        case BatchSeen():
            return record.key, record.batch.step, record.batch.rank, record.batch.microbatch
        case EngineSeen():
            return record.record.run, record.record.status.engine, record.record.at
        case EventSeen():
            return ordinal
    return record.key, record.version
