"""What a history is asked for. A number that is absent takes its default, and one above its limit is refused."""

from __future__ import annotations

from satwatch import types as t
from satwatch.v1 import satwatch_pb2 as pb
from satwatch.wire.reading import read_known


def encode_steps_query(query: t.StepsQuery) -> pb.QueryStepsRequest:
    """Encode a question for the steps of a range."""
    return pb.QueryStepsRequest(
        run=query.run,
        life=query.life,
        first_step=query.first_step,
        last_step=query.last_step,
        max_points=query.max_points,
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


def encode_batches_query(query: t.BatchesQuery) -> pb.QueryBatchesRequest:
    """Encode a question for the batches of a step."""
    return pb.QueryBatchesRequest(run=query.run, life=query.life, step=query.step)


def decode_batches_query(message: pb.QueryBatchesRequest) -> t.BatchesQuery:
    """Decode a question for the batches of a step.

    Raises:
        ConfigError: a value that can't be meant.
    """
    return t.BatchesQuery(run=message.run, step=message.step, life=message.life)


def encode_versions_query(query: t.VersionsQuery) -> pb.QueryVersionsRequest:
    """Encode a question for the versions of a run."""
    return pb.QueryVersionsRequest(run=query.run, life=query.life, limit=query.limit)


def decode_versions_query(message: pb.QueryVersionsRequest) -> t.VersionsQuery:
    """Decode a question for the versions of a run.

    Raises:
        ConfigError: a value that can't be meant.
    """
    return t.VersionsQuery(run=message.run, life=message.life, **_limit(message.limit))


def encode_events_query(query: t.EventsQuery) -> pb.QueryEventsRequest:
    """Encode a question for alerts raised and resolved."""
    return pb.QueryEventsRequest(
        run=query.run, life=query.life, after=query.after, only_active=query.only_active, limit=query.limit
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


def encode_engines_query(query: t.EnginesQuery) -> pb.QueryEnginesRequest:
    """Encode a question for what was known of engines."""
    return pb.QueryEnginesRequest(run=query.run, since=query.since, until=query.until, limit=query.limit)


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
