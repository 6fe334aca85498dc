"""What is kept no longer, removed a little at a time, oldest first; the space is used again.

What grows with each step is let grow a little beyond its limit, and then cut by as much at once.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from satwatch.history.lifebook import lock_life
from satwatch.history.limits import Limits
from satwatch.history.schema import batches, engines, events, lives, steps, versions
from satwatch.history.step_rows import remove_before
from satwatch.history.store import Store

# What one transaction removes at most: steps, or a few times as many smaller rows.
SLICE: Final = 256
_SMALL: Final = 4 * SLICE
_LIVES: Final = 64


class Retention:
    """Keeps a history inside its limits; for one thread."""

    def __init__(self, limits: Limits) -> None:
        """Look at all lives first: the limits may have been wider before."""
        self._limits = limits
        self._lives: dict[int, None] | None = None

    def wrote(self, life: int) -> None:
        """Note that a life has grown."""
        if self._lives is not None:
            self._lives[life] = None

    def remove_some(self, store: Store) -> bool:
        """Remove what is too old, a slice of each kind, in a transaction; tell whether there is more.

        Raises:
            SQLAlchemyError: do the same again.
        """
        with store.transaction() as connection:
            waiting = _all_lives(connection) if self._lives is None else list(self._lives)
            unfinished = [life for life in waiting[:_LIVES] if self._shorten(connection, life)]
            more = self._remove_others(connection)
        self._lives = dict.fromkeys(waiting[_LIVES:] + unfinished)
        return more or bool(self._lives)

    def _shorten(self, connection: sa.Connection, life: int) -> bool:
        has_steps = _remove_steps(connection, life, self._limits.max_steps)
        return _remove_batches(connection, life, self._limits.max_batch_steps) or has_steps

    def _remove_others(self, connection: sa.Connection) -> bool:
        limits, inactive = self._limits, events.c.is_active.is_(False)
        found = [
            _remove_oldest_life(connection, limits.max_lives),
            _remove_rows(connection, events, events.c.id, limits.max_events, inactive),
            _remove_rows(connection, engines, engines.c.at, limits.max_engine_records, sa.true()),
        ]
        return any(found)


def _all_lives(connection: sa.Connection) -> list[int]:
    return list(connection.execute(sa.select(lives.c.life)).scalars())


def _remove_steps(connection: sa.Connection, life: int, keep: int) -> bool:
    count = connection.execute(sa.select(lives.c.steps).where(lives.c.life == life)).scalar()
    if count is None or count <= keep + min(SLICE, keep // 100):
        return False
    state = lock_life(connection, life)
    if state is None:
        return False
    removed = min(SLICE, state.steps - keep)
    c = steps.c
    level_0 = (c.life == life, c.level == 0)
    first = connection.execute(
        sa.select(c.block).where(*level_0).order_by(c.block).offset(removed).limit(1)
    ).scalar_one()
    remove_before(connection, state, first)
    connection.execute(sa.delete(batches).where(batches.c.life == life, batches.c.step < first))
    state.steps, state.first_step = state.steps - removed, first
    state.save(connection)
    return state.steps > keep


def _remove_batches(connection: sa.Connection, life: int, keep: int) -> bool:
    newest = sa.select(steps.c.block).where(steps.c.life == life, steps.c.level == 0)
    first = connection.execute(newest.order_by(steps.c.block.desc()).offset(keep - 1).limit(1)).scalar()
    if first is None:
        return False
    c = batches.c
    old = sa.select(c.step).where(c.life == life, c.step < first).order_by(c.step).limit(_SMALL)
    found = connection.execute(old).scalars().all()
    if found:
        connection.execute(sa.delete(batches).where(c.life == life, c.step <= found[-1]))
    return len(found) == _SMALL


def _remove_oldest_life(connection: sa.Connection, keep: int) -> bool:
    """Remove a slice of the life heard of longest ago, or, once it has no steps, the rest of it."""
    count = connection.execute(sa.select(sa.func.count()).select_from(lives)).scalar_one()
    if count <= keep:
        return False
    life = connection.execute(sa.select(lives.c.life).order_by(lives.c.last_at, lives.c.life).limit(1)).scalar_one()
    c = steps.c
    some = sa.select(c.level, c.block).where(c.life == life).order_by(c.level, c.block).limit(SLICE)
    found = connection.execute(some).all()
    for level in {row.level for row in found}:
        blocks = [row.block for row in found if row.level == level]
        connection.execute(sa.delete(steps).where(c.life == life, c.level == level, c.block.in_(blocks)))
    if len(found) < SLICE:
        for table in (batches, versions, events, lives):
            connection.execute(sa.delete(table).where(table.c.life == life))
    else:
        nothing = {"steps": 0, "first_step": None, "last_step": None}  # not half a life
        connection.execute(sa.update(lives).where(lives.c.life == life).values(nothing))
    return len(found) == SLICE or count - 1 > keep


def _remove_rows(
    connection: sa.Connection, table: sa.Table, order: sa.Column[Any], keep: int, which: sa.ColumnElement[bool]
) -> bool:
    count = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
    if count <= keep:
        return False
    oldest = sa.select(order).where(which).order_by(order).limit(min(_SMALL, count - keep))
    found = connection.execute(oldest).scalars().all()
    if found:
        connection.execute(sa.delete(table).where(which, order <= found[-1]))
    return len(found) == _SMALL
