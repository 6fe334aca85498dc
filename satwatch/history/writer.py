"""Records in one transaction: all of them or none, and the same again if it is not known which."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa

from satwatch.history.lifebook import Life, LifeBook
from satwatch.history.records import (
    BatchSeen,
    EngineSeen,
    EventSeen,
    LifeEnded,
    LifeKey,
    LifeOpened,
    Record,
    StepSeen,
    VersionSeen,
    kind_of,
)
from satwatch.history.schema import batches, engines, events, one_at_a_time, upsert, versions
from satwatch.history.shown import batch_out, engine_out, event_out
from satwatch.history.step_rows import write_steps
from satwatch.history.store import Store

R = TypeVar("R")


class Queued(NamedTuple):
    """A record and its number among all records of this process."""

    ordinal: int
    record: Record


@dataclass(frozen=True, slots=True)
class Written:
    """What a transaction did.

    Attributes:
        stored: records written, by kind.
        unopened: records of lives that were never opened, by kind.
        lives: the lives that it wrote to.
    """

    stored: Counter[str] = field(default_factory=Counter)
    unopened: Counter[str] = field(default_factory=Counter)
    lives: Mapping[LifeKey, Life] = field(default_factory=dict)


class Writer:
    """Writes records into a store; for one thread."""

    def __init__(self, store: Store) -> None:
        """Take a store; the writer is another process to it than all before."""
        self._store = store
        self._number = secrets.randbits(62)
        self._book = LifeBook(self._number)

    def life(self, key: LifeKey) -> int | None:
        """Return the stored life of a key; None before it is stored."""
        return self._book.life(key)

    def write(self, queued: Sequence[Queued]) -> Written:
        """Write records, in one transaction.

        Raises:
            SQLAlchemyError: nothing is written, or all of it is and the database's word for it got lost; do it again.
        """
        for ordinal, record in queued:
            if isinstance(record, LifeOpened):
                self._book.remember(record, ordinal)
        with self._store.transaction() as connection:
            keys = dict.fromkeys(key for _, record in queued if (key := _key_of(record)) is not None)
            lives = self._book.find(connection, keys)
            kept = [each for each in queued if (key := _key_of(each.record)) is None or key in lives]
            self._write_all(connection, kept, lives)
            for life in {id(life): life for life in lives.values()}.values():
                life.save(connection)
        self._book.settle(lives)
        stored = _count(kept)
        return Written(stored, _count(queued) - stored, lives)

    def _write_all(self, connection: sa.Connection, queued: Sequence[Queued], lives: Mapping[LifeKey, Life]) -> None:
        for _, record in queued:  # a life may be opened again after its end, and may end again
            if isinstance(record, LifeOpened):
                lives[record.key].opened(record)
            elif isinstance(record, LifeEnded):
                lives[record.key].ended(record.at)
        steps: dict[int, tuple[Life, dict[int, StepSeen]]] = {}
        for step in _of(StepSeen, queued):
            life = lives[step.key]
            steps.setdefault(life.life, (life, {}))[1][step.step] = step
        for life, seen in steps.values():
            write_steps(connection, life, list(seen.values()), self._number)
        _write_batches(connection, _of(BatchSeen, queued), lives)
        _write_versions(connection, _of(VersionSeen, queued), lives)
        records = {(r.record.at, r.record.status.engine, r.record.run): r.record for r in _of(EngineSeen, queued)}
        upsert(connection, engines, [engine_out(record) for record in records.values()], replace=True)
        self._write_events(connection, queued, lives)

    def _write_events(self, connection: sa.Connection, queued: Sequence[Queued], lives: Mapping[LifeKey, Life]) -> None:
        told = {f"{self._number:016x}:{n}": record for n, record in queued if isinstance(record, EventSeen)}
        if not told:
            return
        one_at_a_time(connection)  # numbers ascend in the order in which they can be read
        known = connection.execute(sa.select(events.c.told_by).where(events.c.told_by.in_(told))).scalars().all()
        for token, seen in told.items():
            if token in known:
                continue
            life = seen.event.life if seen.key is None else lives[seen.key].life
            row = event_out(seen.event, life)
            connection.execute(sa.update(events).where(*_same_alert(row)).values(is_active=False))
            connection.execute(sa.insert(events).values(row | {"told_by": token}))


def _count(queued: Sequence[Queued]) -> Counter[str]:
    return Counter(str(kind_of(record)) for _, record in queued)


def _key_of(record: Record) -> LifeKey | None:
    return None if isinstance(record, EngineSeen) else record.key


def _of(cls: type[R], queued: Sequence[Queued]) -> list[R]:
    return [record for _, record in queued if isinstance(record, cls)]


def _same_alert(row: Mapping[str, Any]) -> tuple[sa.ColumnElement[bool], ...]:
    c = events.c
    same_life = c.life.is_(None) if row["life"] is None else c.life == row["life"]
    named = (c.alert == row["alert"], c.run == row["run"], c.engine == row["engine"])
    return (c.is_active.is_(True), *named, same_life)


def _write_batches(connection: sa.Connection, seen: Sequence[BatchSeen], lives: Mapping[LifeKey, Life]) -> None:
    rows = {}
    for each in seen:
        life, batch = lives[each.key], each.batch
        life.trained(batch.at)
        rows[life.life, batch.step, batch.rank, batch.microbatch] = batch_out(batch, life.life)
    upsert(connection, batches, list(rows.values()), replace=True)


def _write_versions(connection: sa.Connection, seen: Sequence[VersionSeen], lives: Mapping[LifeKey, Life]) -> None:
    rows = []
    for each in seen:
        life = lives[each.key]
        life.heard(each.at)
        life.version_published = each.version
        rows.append({"life": life.life, "version": each.version, "at": float(each.at), "step": each.step})
    upsert(connection, versions, rows, replace=False)
