"""What a history has beside its steps: batches, versions, alerts and engines."""

from __future__ import annotations

from functools import partial

import sqlalchemy as sa

from satwatch.history.found import Found
from satwatch.history.schema import Row
from satwatch.history.schema import batches as batch_rows
from satwatch.history.schema import engines as engine_rows
from satwatch.history.schema import events as event_rows
from satwatch.history.schema import versions as version_rows
from satwatch.history.shown import batch_in, engine_in, event_in
from satwatch.types import BatchRecord, EngineRecord, Event, VersionRecord


def batches(connection: sa.Connection, life: int, step: int) -> list[Found[BatchRecord]]:
    """Return the batches of a step by rank and microbatch."""
    c = batch_rows.c
    query = sa.select(batch_rows).where(c.life == life, c.step == step).order_by(c.rank, c.microbatch)
    return [Found(tuple(row), partial(batch_in, row)) for row in connection.execute(query).all()]


def versions(connection: sa.Connection, life: int, limit: int) -> list[Found[VersionRecord]]:
    """Return the newest versions published, oldest first."""
    c = version_rows.c
    newest = sa.select(version_rows).where(c.life == life).order_by(c.at.desc(), c.version.desc()).limit(limit)
    rows = reversed(connection.execute(newest).all())
    return [Found(tuple(row), partial(_version_in, row)) for row in rows]


def _version_in(row: Row) -> VersionRecord:
    return VersionRecord(row.life, row.version, row.at, row.step)


def events(
    connection: sa.Connection, run: str, life: int, *, after: int, only_active: bool, limit: int
) -> list[Found[Event]]:
    """Return the newest alerts, oldest first."""
    c = event_rows.c
    query = sa.select(event_rows).where(c.id > after)
    if run:
        query = query.where(c.run.in_((run, "")))
    if life:
        query = query.where(sa.or_(c.life == life, c.life.is_(None)))
    if only_active:
        query = query.where(c.is_active.is_(True))
    rows = reversed(connection.execute(query.order_by(c.id.desc()).limit(limit)).all())
    return [Found(tuple(row), partial(event_in, row)) for row in rows]


def engines(
    connection: sa.Connection, run: str, *, since: float, until: float | None, limit: int
) -> list[Found[EngineRecord]]:
    """Return the newest records of engines of a span of time, oldest first."""
    c = engine_rows.c
    query = sa.select(engine_rows).where(c.at >= since)
    if until is not None:
        query = query.where(c.at <= until)
    if run:
        query = query.where(c.run.in_((run, "")))
    rows = reversed(connection.execute(query.order_by(c.at.desc(), c.engine.desc(), c.run.desc()).limit(limit)).all())
    return [Found(tuple(row), partial(engine_in, row)) for row in rows]
