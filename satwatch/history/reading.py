"""The lives of a history, and their steps at the level that shows a range in so many points.

A level is read row by row as it is stored; only the block that holds the newest step is summed here, from at most three
rows a level. What a question costs follows from the points it shows, not from the steps that are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import partial
from typing import Final

import sqlalchemy as sa

from satwatch.errors import UnknownRunError, required
from satwatch.history.damage import totals_in
from satwatch.history.found import Found
from satwatch.history.levels import MAX_LEVEL, Blocks, block_of, parts_of_open
from satwatch.history.points import Block, merge_blocks
from satwatch.history.schema import Row, lives, steps
from satwatch.history.shown import place_of, point_in, rule_in
from satwatch.types import RunRecord, StepPoint

_own = steps.alias("own")
_source = steps.alias("source")
_JOINED: Final = _own.join(
    _source,
    sa.and_(
        _source.c.life == _own.c.life,
        _source.c.level == _own.c.source_level,
        _source.c.block == _own.c.source_block,
    ),
)
_SHOWN: Final = [column for column in _source.c if column.name not in ("totals", "before")]
# Lives that a refusal names.
_NAMED: Final = 10
_RUN_FIELDS: Final = frozenset(f.name for f in fields(RunRecord))


def runs(connection: sa.Connection) -> list[Found[RunRecord]]:
    """Return all lives, the one heard of last first."""
    query = sa.select(lives).order_by(lives.c.last_at.desc(), lives.c.life.desc())
    return [Found(tuple(row), partial(run_record, row)) for row in connection.execute(query).all()]


def run_record(row: Row) -> RunRecord:
    """Return a row of the lives."""
    known = {name: value for name, value in row._mapping.items() if name in _RUN_FIELDS}
    return RunRecord(**known | {"rule": rule_in(row.rule)})


def find(connection: sa.Connection, run: str, life: int) -> RunRecord:
    """Return a run's life: the one asked for, or with 0 the one heard of last.

    Raises:
        UnknownRunError: it isn't kept.
    """
    query = sa.select(lives).where(lives.c.run == run)
    if life:
        query = query.where(lives.c.life == life)
    row = connection.execute(query.order_by(lives.c.last_at.desc(), lives.c.life.desc()).limit(1)).first()
    if row is None:
        raise _not_kept(connection, run, life)
    return run_record(row)


def _not_kept(connection: sa.Connection, run: str, life: int) -> UnknownRunError:
    """Refuse a run, or a life by the lives that the run has: they are numbered across all runs."""
    query = sa.select(lives.c.life).where(lives.c.run == run).order_by(lives.c.life.desc()).limit(_NAMED + 1)
    kept = connection.execute(query).scalars().all()
    if not life or not kept:
        came = f"{run!r}, life {life}" if life else repr(run)
        return UnknownRunError(required("run", came, "a run of this history"))
    names = ", ".join(map(str, kept[:_NAMED])) + (", ..." if len(kept) > _NAMED else "")
    return UnknownRunError(required("run", f"{run!r}, life {life}", f"one of its lives: {names}"))


def points(
    connection: sa.Connection, record: RunRecord, first_step: int | None, last_step: int | None, max_points: int
) -> list[Found[StepPoint]]:
    """Return the steps of a range at the finest level that shows it in at most so many points."""
    if record.first_step is None or record.last_step is None:
        return []
    first = record.first_step if first_step is None else max(first_step, record.first_step)
    last = record.last_step if last_step is None else min(last_step, record.last_step)
    if first > last:
        return []
    level = _finest(connection, record, first, last, max_points)
    wanted = Blocks(level, block_of(first, level), block_of(last, level))
    if level == MAX_LEVEL:  # steps on both sides of 0, which no block of any level holds together
        return [_merged(connection, record.life, [Blocks(0, first, last)])]
    shown = [Found(tuple(row), partial(point_in, row)) for row in _rows(connection, record.life, wanted)]
    if level and wanted.last == block_of(record.last_step, level):
        shown.append(_merged(connection, record.life, parts_of_open(record.last_step, level)))
    return shown


def _merged(connection: sa.Connection, life: int, parts: Iterable[Blocks]) -> Found[StepPoint]:
    rows = [row for part in parts for row in block_rows(connection, life, part)]

    def read() -> StepPoint:
        return merge_blocks([block_in(row) for row in rows]).point(life)

    return Found(tuple(tuple(row) for row in rows), read)


def _finest(connection: sa.Connection, record: RunRecord, first: int, last: int, max_points: int) -> int:
    """Return the finest level with few enough points; looks at one index entry more than that of each level."""
    for level in range(MAX_LEVEL):
        wanted = Blocks(level, block_of(first, level), block_of(last, level))
        some = sa.select(sa.literal(1)).where(*_inside(steps, record.life, wanted)).limit(max_points + 1)
        found = connection.execute(sa.select(sa.func.count()).select_from(some.subquery())).scalar_one()
        is_open = level > 0 and record.last_step is not None and wanted.last == block_of(record.last_step, level)
        if found + is_open <= max_points:
            return level
    return MAX_LEVEL


def _inside(table: sa.FromClause, life: int, wanted: Blocks) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        table.c.life == life,
        table.c.level == wanted.level,
        table.c.block.between(wanted.first, wanted.last),
    )


def _rows(connection: sa.Connection, life: int, wanted: Blocks) -> Sequence[Row]:
    query = sa.select(*_SHOWN).select_from(_JOINED).where(*_inside(_own, life, wanted)).order_by(_own.c.block)
    return connection.execute(query).all()


def block_rows(connection: sa.Connection, life: int, wanted: Blocks) -> Sequence[Row]:
    """Return the rows of blocks that are there, ascending."""
    query = sa.select(_source).select_from(_JOINED).where(*_inside(_own, life, wanted)).order_by(_own.c.block)
    return connection.execute(query).all()


def block_in(row: Row) -> Block:
    """Return a row of the steps with its sums.

    Raises:
        DamagedError: a row that can't be read.
    """
    return Block(
        first_step=row.first_step,
        last_step=row.last_step,
        steps=row.steps,
        at=row.at,
        is_closed=row.is_closed,
        ranks=row.ranks,
        policy_version=row.policy_version,
        totals=totals_in(row.totals, place_of(row)),
    )
