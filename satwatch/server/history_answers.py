"""What is answered about a history; bytes in, bytes out, and nothing needed but the history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final

from satwatch import wire
from satwatch.errors import OverloadedError, UnavailableError, required
from satwatch.server.niceness import step_back
from satwatch.types import History, RunRecord
from satwatch.v1 import satwatch_pb2 as pb

QUERY_KINDS: Final = ("QueryRuns", "QuerySteps", "QueryBatches", "QueryVersions", "QueryEvents", "QueryEngines")
# Queries that are read at once, and those that may wait for it: a handful of dashboards ask for less.
THREADS: Final = 2
MAX_WAITING: Final = 32

_OFF: Final = "the history is off: start the sidecar with --store"


class HistoryAnswers:
    """The answers about one history; each blocks while the history is read, and is safe from any thread."""

    def __init__(self, history: History, is_open: Callable[[RunRecord], bool] = lambda record: False) -> None:
        """Answer from a history.

        Args:
            history: what is looked at.
            is_open: tells whether a life is open now, where the history is read.
        """
        self._history = history
        self._is_open = is_open

    def by_kind(self) -> Mapping[str, Callable[[bytes], bytes]]:
        """Return what answers each RPC, by its name."""
        answers = (self._runs, self._steps, self._batches, self._versions, self._events, self._engines)
        return dict(zip(QUERY_KINDS, answers, strict=True))

    def _runs(self, data: bytes) -> bytes:
        wire.parse(pb.QueryRunsRequest, data)
        runs = [replace(run, is_open=self._is_open(run)) for run in self._history.runs()]
        return pb.QueryRunsResponse(runs=wire.encode_run_records(runs)).SerializeToString()

    def _steps(self, data: bytes) -> bytes:
        query = wire.decode_steps_query(wire.parse(pb.QueryStepsRequest, data))
        points = self._history.steps(
            query.run,
            life=query.life,
            first_step=query.first_step,
            last_step=query.last_step,
            max_points=query.max_points,
        )
        return pb.QueryStepsResponse(points=wire.encode_step_points(points)).SerializeToString()

    def _batches(self, data: bytes) -> bytes:
        query = wire.decode_batches_query(wire.parse(pb.QueryBatchesRequest, data))
        batches = self._history.batches(query.run, query.step, life=query.life)
        return pb.QueryBatchesResponse(batches=wire.encode_batch_records(batches)).SerializeToString()

    def _versions(self, data: bytes) -> bytes:
        query = wire.decode_versions_query(wire.parse(pb.QueryVersionsRequest, data))
        versions = self._history.versions(query.run, life=query.life, limit=query.limit)
        return pb.QueryVersionsResponse(versions=wire.encode_version_records(versions)).SerializeToString()

    def _events(self, data: bytes) -> bytes:
        query = wire.decode_events_query(wire.parse(pb.QueryEventsRequest, data))
        events = self._history.events(
            query.run, life=query.life, after=query.after, only_active=query.only_active, limit=query.limit
        )
        return pb.QueryEventsResponse(events=wire.encode_events(events)).SerializeToString()

    def _engines(self, data: bytes) -> bytes:
        query = wire.decode_engines_query(wire.parse(pb.QueryEnginesRequest, data))
        engines = self._history.engines(query.run, since=query.since, until=query.until, limit=query.limit)
        return pb.QueryEnginesResponse(engines=wire.encode_engine_records(engines)).SerializeToString()


class Queries:
    """Answers queries in threads of their own, so that no trainer's batch waits for one; for one event loop."""

    def __init__(self, answers: HistoryAnswers | None) -> None:
        """Answer from a history; None: it is off, and every query is refused."""
        self._answers = None if answers is None else answers.by_kind()
        self._threads = ThreadPoolExecutor(THREADS, "satwatch-query", initializer=step_back)
        self._asked = 0

    def by_kind(self) -> Mapping[str, Callable[[bytes], Awaitable[bytes]]]:
        """Return what answers each RPC, by its name."""
        return {kind: partial(self.ask, kind) for kind in QUERY_KINDS}

    async def ask(self, kind: str, data: bytes) -> bytes:
        """Answer a query.

        Args:
            kind: the RPC's name.
            data: the request.

        Raises:
            UnavailableError: the history is off, or can't be read.
            OverloadedError: as many wait as may.
            UnknownRunError: a run that isn't kept.
        """
        if self._answers is None:
            raise UnavailableError(_OFF)
        if self._asked >= THREADS + MAX_WAITING:
            raise OverloadedError(required("queries", f"{self._asked + 1} at once", f"at most {THREADS + MAX_WAITING}"))
        self._asked += 1
        try:
            return await asyncio.wrap_future(self._threads.submit(self._answers[kind], data))
        finally:
            self._asked -= 1

    def close(self) -> None:
        """End the threads; what still waits is not answered."""
        self._threads.shutdown(cancel_futures=True)
