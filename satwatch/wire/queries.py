"""What a history is asked for. A number that is absent takes its default, and one above its limit is refused.

A question goes with the stamps of the records that its asker knows already (:mod:`satwatch.types.stamped`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from satwatch import types as t
from satwatch.v1 import satwatch_pb2 as pb
from satwatch.wire.reading import read_known, require_at_most

# As many as the largest answer has records.
MAX_STAMPS: Final = max(
    t.MAX_RUN_RECORDS,
    t.MAX_STEP_POINTS,
    t.MAX_BATCH_RECORDS,
    t.MAX_VERSION_RECORDS,
    t.MAX_EVENTS,
    t.MAX_ENGINE_RECORDS,
)


def decode_stamps(stamps: Collection[int], name: str = "stamps") -> tuple[int, ...]:
    """Decode the stamps of an answer's records, or, by the name ``known``, those that its asker knows.

    Raises:
        InvalidBatchError: too many.
    """
    require_at_most(name, len(stamps), "stamps", MAX_STAMPS)
    return tuple(stamps)


def encode_runs_query(known: Iterable[int] = ()) -> pb.QueryRunsRequest:
    """Encode a question for all lives."""
    return pb.QueryRunsRequest(known=known)


def encode_steps_query(query: t.StepsQuery, known: Iterable[int] = ()) -> pb.QueryStepsRequest:
    """Encode a question for the steps of a range."""
    return pb.QueryStepsRequest(
        run=query.run,
        life=query.life,
        first_step=query.first_step,
        last_step=query.last_step,
        max_points=query.max_points,
        known=known,
    )


def decode_steps_query(message: pb.QueryStepsRequest) -> t.StepsQuery:
    """Decode a question for the steps of a range.

    Raises:
        ConfigError: a value that can't be meant.
    """
    return t.StepsQuery(
        run=message.run,
        life=message.life,
        **read_known(message, ("first_step", "last_step")),
        **({"max_points": message.max_points} if message.max_points else {}),
    )


def encode_batches_query(query: t.BatchesQuery, known: Iterable[int] = ()) -> pb.QueryBatchesRequest:
    """Encode a question for the batches of a step."""
    return pb.QueryBatchesRequest(run=query.run, life=query.life, step=query.step, known=known)


def decode_batches_query(message: pb.QueryBatchesRequest) -> t.BatchesQuery:
    """Decode a question for the batches of a step.

    Raises:
        ConfigError: a value that can't be meant.
    """
    return t.BatchesQuery(run=message.run, step=message.step, life=message.life)


def encode_versions_query(query: t.VersionsQuery, known: Iterable[int] = ()) -> pb.QueryVersionsRequest:
    """Encode a question for the versions of a run."""
    return pb.QueryVersionsRequest(run=query.run, life=query.life, limit=query.limit, known=known)


def decode_versions_query(message: pb.QueryVersionsRequest) -> t.VersionsQuery:
    """Decode a question for the versions of a run.

    Raises:
        ConfigError: a value that can't be meant.
    """
    return t.VersionsQuery(run=message.run, life=message.life, **_limit(message.limit))


def encode_events_query(query: t.EventsQuery, known: Iterable[int] = ()) -> pb.QueryEventsRequest:
    """Encode a question for alerts raised and resolved."""
    return pb.QueryEventsRequest(
        run=query.run,
        life=query.life,
        after=query.after,
        only_active=query.only_active,
        limit=query.limit,
        known=known,
    )


def decode_events_query(message: pb.QueryEventsRequest) -> t.EventsQuery:
    """Decode a question for alerts raised and resolved.

    Raises:
        ConfigError: a value that can't be meant.
    """
    return t.EventsQuery(
        run=message.run,
        life=message.life,
        after=message.after,
        only_active=message.only_active,
        **_limit(message.limit),
    )


def encode_engines_query(query: t.EnginesQuery, known: Iterable[int] = ()) -> pb.QueryEnginesRequest:
    """Encode a question for what was known of engines."""
    return pb.QueryEnginesRequest(run=query.run, since=query.since, until=query.until, limit=query.limit, known=known)


def decode_engines_query(message: pb.QueryEnginesRequest) -> t.EnginesQuery:
    """Decode a question for what was known of engines.

    Raises:
        ConfigError: a value that can't be meant.
    """
    return t.EnginesQuery(
        run=message.run, since=message.since, **read_known(message, ("until",)), **_limit(message.limit)
    )


def _limit(limit: int) -> dict[str, int]:
    return {"limit": limit} if limit else {}
