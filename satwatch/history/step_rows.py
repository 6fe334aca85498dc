"""Steps and the blocks above them, as they are written."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import reduce
from typing import Final

import sqlalchemy as sa

from satwatch.history.damage import DamagedError
from satwatch.history.levels import Blocks, block_of, complete_above
from satwatch.history.lifebook import Life
from satwatch.history.parts import decode_parts, encode_parts, readable_totals
from satwatch.history.points import Block, merge_blocks
from satwatch.history.reading import block_in, block_rows
from satwatch.history.records import StepSeen
from satwatch.history.schema import Row, steps, upsert
from satwatch.history.shown import shown_of
from satwatch.sat import StepTotals
from satwatch.sat.codec import Json, encode_totals

logger = logging.getLogger(__name__)

_PLACE: Final = ("life", "level", "block", "source_level", "source_block")
_DATA: Final = tuple(column.name for column in steps.c if column.name not in _PLACE)


def write_steps(connection: sa.Connection, life: Life, seen: Sequence[StepSeen], writer: int) -> None:
    """Write steps of a life, and the complete blocks that hold them.

    What other processes have told of a step is kept apart, so that each may tell the same step again and again.

    Args:
        connection: of a transaction.
        life: the life; its sums are brought up to date, not saved.
        seen: its steps, each once.
        writer: the number of this process.
    """
    stored = _stored(connection, life.life, [step.step for step in seen], writer)
    rows = [_step_row(life.life, step, stored.get(step.step), writer) for step in seen]
    upsert(connection, steps, rows, replace=True)
    newest_before = life.last_step
    for step, row in zip(seen, rows, strict=True):
        _count(life, step, row, stored.get(step.step))
    touched = [step.step for step in seen] + ([] if newest_before is None else [newest_before])
    rebuild_above(connection, life, touched)


def rebuild_above(connection: sa.Connection, life: Life, touched: Sequence[int]) -> None:
    """Sum up anew the complete blocks that hold some steps, from below."""
    assert life.last_step is not None
    for level, blocks in enumerate(complete_above(touched, life.last_step), 1):
        for block in blocks:
            _rebuild(connection, life.life, level, block)


def _stored(connection: sa.Connection, life: int, wanted: Sequence[int], writer: int) -> dict[int, Row]:
    """Return what is stored of steps; ``whole`` is what another process alone wrote, which its ``before`` lacks."""
    c = steps.c
    mine_or_parted = sa.or_(c.writer == writer, c.before.is_not(None))
    whole = sa.case((mine_or_parted, None), else_=c.totals).label("whole")
    query = sa.select(c.block, c.ranks, c.at, c.policy_version, c.batches, c.tokens, c.writer, c.before, whole)
    found = connection.execute(query.where(c.life == life, c.level == 0, c.block.in_(wanted)))
    return {row.block: row for row in found}


def _step_row(life: int, seen: StepSeen, stored: Row | None, writer: int) -> Json:
    parts = {} if stored is None else _parts_of_others(stored, writer, f"life {life}, step {seen.step}")
    if not parts or seen.totals.batches or seen.totals.measures:
        parts[writer] = seen.totals
    versions = [seen.policy_version, None if stored is None else stored.policy_version]
    block = Block(
        first_step=seen.step,
        last_step=seen.step,
        steps=1,
        at=float(seen.at) if stored is None else max(float(seen.at), stored.at),
        is_closed=seen.is_closed,
        ranks=seen.ranks if stored is None else max(seen.ranks, stored.ranks),
        policy_version=max((version for version in versions if version is not None), default=None),
        totals=reduce(StepTotals.merge, parts.values()),
    )
    before = encode_parts(parts) if len(parts) > 1 else None
    return _row(life, 0, seen.step, block) | {"writer": next(reversed(parts)), "before": before}


def _parts_of_others(stored: Row, writer: int, place: str) -> dict[int, StepTotals]:
    """Return what other processes have told of a step, by their numbers."""
    if stored.before is not None:
        parts = decode_parts(stored.before, place)
    elif stored.whole is not None and (whole := readable_totals(stored.whole, place)) is not None:
        parts = {stored.writer: whole}
    else:
        parts = {}
    return {number: totals for number, totals in parts.items() if number != writer}


def _row(life: int, level: int, block: int, data: Block) -> Json:
    return {
        "life": life,
        "level": level,
        "block": block,
        "source_level": level,
        "source_block": block,
        "first_step": data.first_step,
        "last_step": data.last_step,
        "steps": data.steps,
        "at": data.at,
        "is_closed": data.is_closed,
        "ranks": data.ranks,
        "batches": data.totals.batches,
        "policy_version": data.policy_version,
        "tokens": data.tokens,
        "writer": None,
        "shown": shown_of(data.point(life)),
        "totals": encode_totals(data.totals),
        "before": None,
    }


def _count(life: Life, step: StepSeen, row: Json, stored: Row | None) -> None:
    life.trained(step.at)
    life.steps += stored is None
    life.batches += row["batches"] - (0 if stored is None else stored.batches)
    life.tokens += row["tokens"] - (0 if stored is None else stored.tokens)
    life.first_step = step.step if life.first_step is None else min(life.first_step, step.step)
    life.last_step = step.step if life.last_step is None else max(life.last_step, step.step)
    if step.is_closed:
        life.stored_step = step.step if life.stored_step is None else max(life.stored_step, step.step)


def _rebuild(connection: sa.Connection, life: int, level: int, block: int) -> None:
    c = steps.c
    below = Blocks(level - 1, 4 * block, 4 * block + 3)
    held = (c.life == life, c.level == below.level, c.block.between(below.first, below.last))
    sources = connection.execute(sa.select(c.source_level, c.source_block).where(*held)).all()
    if not sources:
        connection.execute(sa.delete(steps).where(c.life == life, c.level == level, c.block == block))
        return
    place = {"life": life, "level": level, "block": block}
    if len(sources) == 1:
        source = {"source_level": sources[0].source_level, "source_block": sources[0].source_block}
        upsert(connection, steps, [place | source | dict.fromkeys(_DATA)], replace=True)
        return
    blocks = _readable(connection, life, below)
    if blocks:
        upsert(connection, steps, [_row(life, level, block, merge_blocks(blocks))], replace=True)


def _readable(connection: sa.Connection, life: int, wanted: Blocks) -> list[Block]:
    blocks = []
    for row in block_rows(connection, life, wanted):
        try:
            blocks.append(block_in(row))
        except DamagedError as error:
            logger.warning("A sum goes without a row: %s", error)
    return blocks


def remove_before(connection: sa.Connection, life: Life, first: int) -> None:
    """Remove the steps before one that is kept, and their part of the blocks above."""
    assert life.last_step is not None
    c = steps.c
    levels = connection.execute(sa.select(sa.func.max(c.level)).where(c.life == life.life)).scalar() or 0
    for level in range(levels + 1):
        old = (c.life == life.life, c.level == level, c.block < block_of(first, level))
        connection.execute(sa.delete(steps).where(*old))
    rebuild_above(connection, life, [first])
