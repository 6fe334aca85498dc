"""A life from its first step to its last, read in slices, each of one state of the database.

Whoever reads a long life takes long. A single transaction would keep the write-ahead log of SQLite and the dead rows of
PostgreSQL from being cleared meanwhile, and a single query would hold all of it in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, TypeAlias

import sqlalchemy as sa

from satwatch.history.reading import find
from satwatch.history.schema import Row, batches, steps
from satwatch.history.shown import batch_in, point_in
from satwatch.types import BatchRecord, StepPoint

Snapshot: TypeAlias = Callable[[], AbstractContextManager[sa.Connection]]

SLICE: Final = 500

_SHOWN: Final = [column for column in steps.c if column.name not in ("writer", "before")]


def steps_of(
    snapshot: Snapshot, run: str, life: int, first_step: int | None, last_step: int | None
) -> Iterator[tuple[StepPoint, bytes]]:
    """Yield the steps of a range, ascending, each with its totals as :func:`satwatch.sat.codec.encode_totals` has them.

    Raises:
        UnknownRunError: a life that isn't kept, or no longer.
        DamagedError: a row that can't be read.
    """
    c = steps.c
    query = _inside(sa.select(*_SHOWN).where(c.level == 0), c.block, first_step, last_step)
    for row in _slices(snapshot, run, life, query, c.life, [c.block]):
        yield point_in(row), row.totals


def batches_of(
    snapshot: Snapshot, run: str, life: int, first_step: int | None, last_step: int | None
) -> Iterator[BatchRecord]:
    """Yield the batches of a range of steps, by step, rank and microbatch.

    Raises:
        UnknownRunError: a life that isn't kept, or no longer.
        DamagedError: a row that can't be read.
    """
    c = batches.c
    query = _inside(sa.select(batches), c.step, first_step, last_step)
    for row in _slices(snapshot, run, life, query, c.life, [c.step, c.rank, c.microbatch]):
        yield batch_in(row)


def _inside(query: sa.Select[Any], step: sa.Column[Any], first: int | None, last: int | None) -> sa.Select[Any]:
    if first is not None:
        query = query.where(step >= first)
    return query if last is None else query.where(step <= last)


def _slices(
    snapshot: Snapshot, run: str, life: int, query: sa.Select[Any], of: sa.Column[Any], keys: list[sa.Column[Any]]
) -> Iterator[Row]:
    """Yield the rows of a life in the order of keys that tell them apart; a row that comes late may be missed."""
    after: sa.ColumnElement[bool] = sa.true()
    while True:
        with snapshot() as connection:
            life = find(connection, run, life).life
            part = query.where(of == life, after).order_by(*keys).limit(SLICE)
            rows = connection.execute(part).all()
        yield from rows
        if len(rows) < SLICE:
            return
        after = sa.tuple_(*keys) > sa.tuple_(*(getattr(rows[-1], key.name) for key in keys))
