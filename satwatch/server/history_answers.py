"""What is answered about a history; bytes in, bytes out, and nothing needed but the history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from satwatch import wire
from satwatch.errors import OverloadedError, UnavailableError, required
from satwatch.server.niceness import step_back
from satwatch.types import History, Query, RunRecord, RunsQuery, StampedHistory
from satwatch.v1 import satwatch_pb2 as pb

T = TypeVar("T")

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
        self._stamped = history if isinstance(history, StampedHistory) else None
        self._is_open = is_open

    def by_kind(self) -> Mapping[str, Callable[[bytes], bytes]]:
        """Return what answers each RPC, by its name."""
        answers = (self._runs, self._steps, self._batches, self._versions, self._events, self._engines)
        return dict(zip(QUERY_KINDS, answers, strict=True))

    def _runs(self, data: bytes) -> bytes:
        request = wire.parse(pb.QueryRunsRequest, data)
        stamps, found = self._answer(RunsQuery(), ())
        runs = [replace(run, is_open=self._is_open(run)) for run in found]
        if stamps:  # of what is stored, and whether a life is open is not
            stamps = [stamp ^ run.is_open for stamp, run in zip(stamps, runs, strict=True)]
            known = frozenset(wire.decode_stamps(request.known, "known"))
            runs = [run for stamp, run in zip(stamps, runs, strict=True) if stamp not in known]
        return pb.QueryRunsResponse(runs=wire.encode_run_records(runs), stamps=stamps).SerializeToString()

    def _steps(self, data: bytes) -> bytes:
        request = wire.parse(pb.QueryStepsRequest, data)
        stamps, points = self._answer(wire.decode_steps_query(request), request.known)
        return pb.QueryStepsResponse(points=wire.encode_step_points(points), stamps=stamps).SerializeToString()

    def _batches(self, data: bytes) -> bytes:
        request = wire.parse(pb.QueryBatchesRequest, data)
        stamps, batches = self._answer(wire.decode_batches_query(request), request.known)
        return pb.QueryBatchesResponse(batches=wire.encode_batch_records(batches), stamps=stamps).SerializeToString()

    def _versions(self, data: bytes) -> bytes:
        request = wire.parse(pb.QueryVersionsRequest, data)
        stamps, versions = self._answer(wire.decode_versions_query(request), request.known)
        answer = pb.QueryVersionsResponse(versions=wire.encode_version_records(versions), stamps=stamps)
        return answer.SerializeToString()

    def _events(self, data: bytes) -> bytes:
        request = wire.parse(pb.QueryEventsRequest, data)
        stamps, events = self._answer(wire.decode_events_query(request), request.known)
        return pb.QueryEventsResponse(events=wire.encode_events(events), stamps=stamps).SerializeToString()

    def _engines(self, data: bytes) -> bytes:
        request = wire.parse(pb.QueryEnginesRequest, data)
        stamps, engines = self._answer(wire.decode_engines_query(request), request.known)
        return pb.QueryEnginesResponse(engines=wire.encode_engine_records(engines), stamps=stamps).SerializeToString()

    def _answer(self, query: Query[T], known: Collection[int]) -> tuple[list[int], Sequence[T]]:
        """Return the stamps of all records asked for, none if the history has none, and the records not known."""
        if self._stamped is None:
            return [], query.ask(self._history)
        skipped = frozenset(wire.decode_stamps(known, "known"))
        found = self._stamped.stamped(query)
        return [each.stamp for each in found], [each.read() for each in found if each.stamp not in skipped]


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
