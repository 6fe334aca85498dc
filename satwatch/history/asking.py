"""A question of :mod:`satwatch.types`, put to a database."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import sqlalchemy as sa

from satwatch.history import happenings, reading
from satwatch.history.found import Found
from satwatch.types import BatchesQuery, EnginesQuery, EventsQuery, Query, RunsQuery, StepsQuery, VersionsQuery

T = TypeVar("T")


def ask(connection: sa.Connection, query: Query[T]) -> list[Found[T]]:
    """Return what a query asks for, in the order of :class:`satwatch.types.History`.

    Raises:
        UnknownRunError: a run or a life that isn't kept.
        TypeError: no query of a history.
    """
    return cast("list[Found[T]]", _ask(connection, query))


def _ask(connection: sa.Connection, query: Query[Any]) -> list[Any]:
    match query:
        case RunsQuery():
            return reading.runs(connection)
        case StepsQuery():
            record = reading.find(connection, query.run, query.life)
            return reading.points(connection, record, query.first_step, query.last_step, query.max_points)
        case BatchesQuery():
            return happenings.batches(connection, reading.find(connection, query.run, query.life).life, query.step)
        case VersionsQuery():
            return happenings.versions(connection, reading.find(connection, query.run, query.life).life, query.limit)
        case EventsQuery():
            if query.run:
                reading.find(connection, query.run, query.life)
            which = {"after": query.after, "limit": query.limit}
            return happenings.events(connection, query.run, query.life, only_active=query.only_active, **which)
        case EnginesQuery():
            if query.run:
                reading.find(connection, query.run, 0)
            since, until = query.since, query.until
            return happenings.engines(connection, query.run, since=since, until=until, limit=query.limit)
    raise TypeError(query)
