"""Queries: what is asked for reaches the history, and too many at once are refused."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import ClassVar

import pytest

from satwatch import wire
from satwatch.errors import ConfigError, InvalidBatchError, OverloadedError, UnavailableError, UnknownRunError, required
from satwatch.server.history_answers import MAX_WAITING, QUERY_KINDS, THREADS, HistoryAnswers, Queries
from satwatch.types import (
    BatchesQuery,
    BatchRecord,
    EngineRecord,
    EnginesQuery,
    EngineStatus,
    Event,
    EventsQuery,
    History,
    Rule,
    RunRecord,
    RunsQuery,
    Stamped,
    StepPoint,
    StepsQuery,
    VersionRecord,
    VersionsQuery,
)
from satwatch.v1 import satwatch_pb2 as pb

RUN = RunRecord(1, "r", "a", Rule(), 2, 10.0, 20.0, last_step=7)
POINT = StepPoint(1, 3, 3, 1, 15.0, True, 2, 4, None, {"tokens": 8.0})
BATCH = BatchRecord(1, 3, 0, 1, 15.0, 6, {"tokens": 2.0})
VERSION = VersionRecord(1, 6, 14.0)
EVENT = Event("NanTokens", "critical", "raised", 15.0, "2 NaN tokens", run="r", life=1, id=5)
ENGINE = EngineRecord(15.0, EngineStatus("e", "serving", ""))


class Kept:
    """A history of one of each, that remembers what it was asked for."""

    def __init__(self):
        self.asked = None

    def runs(self):
        return [RUN]

    def steps(self, run, *, life=0, first_step=None, last_step=None, max_points=500):
        self.asked = (run, life, first_step, last_step, max_points)
        return [POINT]

    def batches(self, run, step, *, life=0):
        self.asked = (run, step, life)
        return [BATCH]

    def versions(self, run, *, life=0, limit=1000):
        self.asked = (run, life, limit)
        return [VERSION]

    def events(self, run="", *, life=0, after=0, only_active=False, limit=1000):
        self.asked = (run, life, after, only_active, limit)
        return [EVENT]

    def engines(self, run="", *, since=0.0, until=None, limit=10_000):
        self.asked = (run, since, until, limit)
        return [ENGINE]


@pytest.fixture
def kept():
    history = Kept()
    assert isinstance(history, History)
    return history


def test_the_runs(kept):
    answer = HistoryAnswers(kept, lambda run: run.life == 1).by_kind()["QueryRuns"](b"")
    (run,) = pb.QueryRunsResponse.FromString(answer).runs
    assert (run.run, run.last_step, run.is_open) == ("r", 7, True)
    (run,) = pb.QueryRunsResponse.FromString(HistoryAnswers(kept).by_kind()["QueryRuns"](b"")).runs
    assert not run.is_open


@pytest.mark.parametrize(
    ("kind", "query", "asked", "answer"),
    [
        (
            "QuerySteps",
            pb.QueryStepsRequest(run="r", life=2, first_step=-3, last_step=9, max_points=40),
            ("r", 2, -3, 9, 40),
            pb.QueryStepsResponse(points=wire.encode_step_points([POINT])),
        ),
        ("QuerySteps", pb.QueryStepsRequest(run="r"), ("r", 0, None, None, 500), None),
        (
            "QueryBatches",
            pb.QueryBatchesRequest(run="r", life=1, step=3),
            ("r", 3, 1),
            pb.QueryBatchesResponse(batches=wire.encode_batch_records([BATCH])),
        ),
        (
            "QueryVersions",
            pb.QueryVersionsRequest(run="r", limit=9),
            ("r", 0, 9),
            pb.QueryVersionsResponse(versions=wire.encode_version_records([VERSION])),
        ),
        (
            "QueryEvents",
            pb.QueryEventsRequest(run="r", life=1, after=4, only_active=True),
            ("r", 1, 4, True, 1000),
            pb.QueryEventsResponse(events=wire.encode_events([EVENT])),
        ),
        (
            "QueryEngines",
            pb.QueryEnginesRequest(since=5.0, until=6.0),
            ("", 5.0, 6.0, 10_000),
            pb.QueryEnginesResponse(engines=wire.encode_engine_records([ENGINE])),
        ),
    ],
)
def test_the_other_queries(kept, kind, query, asked, answer):
    data = HistoryAnswers(kept).by_kind()[kind](query.SerializeToString())
    assert kept.asked == asked
    if answer is not None:
        assert type(answer).FromString(data) == answer


class Unread(Kept):
    """The same with stamps, that remembers what was read."""

    STAMPS: ClassVar = {RunsQuery: 2**64 - 1, StepsQuery: 11, BatchesQuery: 12}
    STAMPS |= {VersionsQuery: 13, EventsQuery: 14, EnginesQuery: 15}

    def __init__(self):
        super().__init__()
        self.read = []

    def stamped(self, query):
        def read(record):
            self.read.append(record)
            return record

        return [Stamped(self.STAMPS[type(query)], partial(read, record)) for record in query.ask(self)]


STAMPED = (
    ("QuerySteps", pb.QueryStepsRequest, pb.QueryStepsResponse, "points", 11),
    ("QueryBatches", pb.QueryBatchesRequest, pb.QueryBatchesResponse, "batches", 12),
    ("QueryVersions", pb.QueryVersionsRequest, pb.QueryVersionsResponse, "versions", 13),
    ("QueryEvents", pb.QueryEventsRequest, pb.QueryEventsResponse, "events", 14),
    ("QueryEngines", pb.QueryEnginesRequest, pb.QueryEnginesResponse, "engines", 15),
)


@pytest.mark.parametrize(("kind", "request_of", "response", "name", "stamp"), STAMPED)
def test_a_record_that_the_asker_knows_is_neither_read_nor_sent(kind, request_of, response, name, stamp):
    history = Unread()
    ask = HistoryAnswers(history).by_kind()[kind]
    answer = response.FromString(ask(request_of(run="r", known=[stamp - 1]).SerializeToString()))
    assert (answer.stamps, len(getattr(answer, name)), len(history.read)) == ([stamp], 1, 1)
    answer = response.FromString(ask(request_of(run="r", known=[stamp, 99]).SerializeToString()))
    assert (answer.stamps, len(getattr(answer, name)), len(history.read)) == ([stamp], 0, 1)


@pytest.mark.parametrize(("kind", "request_of", "response", "name", "stamp"), STAMPED)
def test_more_stamps_than_can_be_known_are_refused(kind, request_of, response, name, stamp):
    ask = HistoryAnswers(Unread()).by_kind()[kind]
    with pytest.raises(InvalidBatchError, match="known: got 100001 stamps"):
        ask(request_of(run="r", known=range(100_001)).SerializeToString())


def test_a_life_that_ends_is_another_record_although_what_is_stored_is_the_same():
    is_open = True
    ask = HistoryAnswers(Unread(), lambda run: is_open).by_kind()["QueryRuns"]
    first = pb.QueryRunsResponse.FromString(ask(b""))
    assert [run.is_open for run in first.runs] == [True]
    known = pb.QueryRunsRequest(known=first.stamps).SerializeToString()
    again = pb.QueryRunsResponse.FromString(ask(known))
    assert (again.stamps, len(again.runs)) == (first.stamps, 0)
    is_open = False
    over = pb.QueryRunsResponse.FromString(ask(known))
    assert over.stamps != first.stamps
    assert [run.is_open for run in over.runs] == [False]


def test_what_can_not_be_meant_is_refused(kept):
    ask = HistoryAnswers(kept).by_kind()
    with pytest.raises(InvalidBatchError):
        ask["QueryRuns"](b"\xff")
    with pytest.raises(ConfigError, match="max_points: got 9000"):
        ask["QuerySteps"](pb.QueryStepsRequest(run="r", max_points=9000).SerializeToString())
    assert kept.asked is None


def test_a_history_that_is_off():
    async def ask_all():
        queries = Queries(None)
        assert set(queries.by_kind()) == set(QUERY_KINDS)
        for ask in queries.by_kind().values():
            with pytest.raises(UnavailableError, match="the history is off: start the sidecar with --store"):
                await ask(b"")
        queries.close()

    asyncio.run(ask_all())


def test_errors_come_through_and_leave_room(kept):
    def unknown(run, step, *, life=0):
        raise UnknownRunError(required("run", repr(run), "a run of this history"))

    kept.batches = unknown

    async def ask():
        queries = Queries(HistoryAnswers(kept))
        for _ in range(THREADS + MAX_WAITING + 1):
            with pytest.raises(UnknownRunError):
                await queries.ask("QueryBatches", pb.QueryBatchesRequest(run="x").SerializeToString())
        queries.close()

    asyncio.run(ask())


def test_more_than_may_wait_are_refused_and_those_that_leave_make_room(kept):
    gate = threading.Event()

    def held():
        gate.wait()
        return [RUN]

    kept.runs = held

    async def crowd():
        queries = Queries(HistoryAnswers(kept))
        waiting = [asyncio.ensure_future(queries.ask("QueryRuns", b"")) for _ in range(THREADS + MAX_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError, match=f"queries: got {THREADS + MAX_WAITING + 1} at once"):
            await queries.ask("QueryRuns", b"")
        waiting.pop().cancel()
        await asyncio.sleep(0)
        waiting.append(asyncio.ensure_future(queries.ask("QueryRuns", b"")))
        await asyncio.sleep(0)
        gate.set()
        answers = await asyncio.gather(*waiting)
        assert len(answers) == THREADS + MAX_WAITING
        queries.close()

    asyncio.run(crowd())
