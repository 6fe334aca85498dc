"""Questions to a history: each comes back as it went, 0 and absent take the default, and limits are kept."""

from __future__ import annotations

import inspect
import math

import pytest

from satwatch import errors, wire
from satwatch import types as t
from satwatch.v1 import satwatch_pb2 as pb

CASES = {
    "steps": (t.StepsQuery("r", 2, 0, -1, 5000), wire.encode_steps_query, wire.decode_steps_query),
    "steps, all": (t.StepsQuery("r"), wire.encode_steps_query, wire.decode_steps_query),
    "batches": (t.BatchesQuery("r", -7, 2), wire.encode_batches_query, wire.decode_batches_query),
    "versions": (t.VersionsQuery("r", 2, 10_000), wire.encode_versions_query, wire.decode_versions_query),
    "events": (t.EventsQuery("r", 2, 9, True, 10_000), wire.encode_events_query, wire.decode_events_query),
    "events, all": (t.EventsQuery(), wire.encode_events_query, wire.decode_events_query),
    "engines": (t.EnginesQuery("r", 1.5, 0.0, 100_000), wire.encode_engines_query, wire.decode_engines_query),
    "engines, all": (t.EnginesQuery(), wire.encode_engines_query, wire.decode_engines_query),
}


@pytest.mark.parametrize("name", CASES)
def test_each_comes_back_as_it_went(name):
    query, encode, decode = CASES[name]
    message = encode(query)
    assert decode(wire.parse(type(message), message.SerializeToString())) == query


@pytest.mark.parametrize("name", CASES)
def test_each_goes_with_the_stamps_that_its_asker_knows(name):
    query, encode, decode = CASES[name]
    known = {2**64 - 1: "a", 0: "b", 7: "c"}
    message = encode(query, known)
    sent = wire.parse(type(message), message.SerializeToString())
    assert wire.decode_stamps(sent.known) == tuple(known)
    assert decode(sent) == query
    assert wire.encode_runs_query(known).known == sent.known


def test_more_stamps_than_there_can_be_records_are_refused():
    many = pb.QueryStepsRequest(run="r", known=range(wire.MAX_STAMPS + 1)).known
    with pytest.raises(errors.InvalidBatchError, match=r"^known: got 100001 stamps, required at most 100000"):
        wire.decode_stamps(many, "known")


@pytest.mark.parametrize(
    ("decode", "message", "query"),
    [
        (wire.decode_steps_query, pb.QueryStepsRequest(run="r"), t.StepsQuery("r", 0, None, None, 500)),
        (wire.decode_batches_query, pb.QueryBatchesRequest(run="r"), t.BatchesQuery("r", 0, 0)),
        (wire.decode_versions_query, pb.QueryVersionsRequest(run="r"), t.VersionsQuery("r", 0, 1000)),
        (wire.decode_events_query, pb.QueryEventsRequest(), t.EventsQuery("", 0, 0, False, 1000)),
        (wire.decode_engines_query, pb.QueryEnginesRequest(), t.EnginesQuery("", 0.0, None, 10_000)),
    ],
)
def test_what_is_absent_is_the_default(decode, message, query):
    assert decode(message) == query


@pytest.mark.parametrize(
    ("method", "query"),
    [
        ("steps", t.StepsQuery),
        ("batches", t.BatchesQuery),
        ("versions", t.VersionsQuery),
        ("events", t.EventsQuery),
        ("engines", t.EnginesQuery),
    ],
)
def test_a_question_is_what_a_history_takes(method, query):
    taken = list(inspect.signature(getattr(t.History, method)).parameters.values())[1:]
    asked = list(inspect.signature(query).parameters.values())
    assert [(p.name, p.default) for p in taken] == [(p.name, p.default) for p in asked]


REFUSALS = {
    "steps of no run": (wire.decode_steps_query, pb.QueryStepsRequest(), "run: got ''"),
    "too many points": (
        wire.decode_steps_query,
        pb.QueryStepsRequest(run="r", max_points=5001),
        "max_points: got 5001, required a whole number from 1 to 5000",
    ),
    "a life beyond every database's numbers": (
        wire.decode_steps_query,
        pb.QueryStepsRequest(run="r", life=2**63),
        "life: got 9223372036854775808",
    ),
    "a step below every database's numbers": (
        wire.decode_batches_query,
        pb.QueryBatchesRequest(run="r", step=-(2**63)),
        "step: got -9223372036854775808",
    ),
    "too many versions": (
        wire.decode_versions_query,
        pb.QueryVersionsRequest(run="r", limit=10_001),
        "limit: got 10001",
    ),
    "too many events": (wire.decode_events_query, pb.QueryEventsRequest(limit=10_001), "limit: got 10001"),
    "an id beyond": (wire.decode_events_query, pb.QueryEventsRequest(after=2**63), "after: got"),
    "a life without its run": (
        wire.decode_events_query,
        pb.QueryEventsRequest(life=3),
        "run: got '', required the run whose life 3 is",
    ),
    "events of a run that can't be": (wire.decode_events_query, pb.QueryEventsRequest(run="a\nb"), "run: got"),
    "too many engines": (wire.decode_engines_query, pb.QueryEnginesRequest(limit=100_001), "limit: got 100001"),
    "since never": (
        wire.decode_engines_query,
        pb.QueryEnginesRequest(since=math.nan),
        "since: got nan, required Unix time, finite seconds",
    ),
    "until never": (wire.decode_engines_query, pb.QueryEnginesRequest(until=math.inf), "until: got inf"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_can_t_be_meant_is_refused_by_name(name):
    decode, message, words = REFUSALS[name]
    with pytest.raises(errors.ConfigError, match=f"^{words}"):
        decode(message)


@pytest.mark.parametrize(
    ("query", "fields", "words"),
    [
        (t.StepsQuery, {"run": "r", "max_points": 0}, "max_points: got 0"),
        (t.StepsQuery, {"run": "r", "first_step": 1.5}, "first_step: got 1.5"),
        (t.VersionsQuery, {"run": "r", "life": -1}, "life: got -1"),
        (t.EventsQuery, {"limit": True}, "limit: got True"),
    ],
)
def test_whoever_asks_hears_it_at_once(query, fields, words):
    with pytest.raises(errors.ConfigError, match=f"^{words}"):
        query(**fields)
