"""A dashboard's part of the sidecar's wire: all that it keeps, by its address alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterable
from types import TracebackType
from typing import TypeVar

from google.protobuf.message import Message

from satwatch import wire
from satwatch.addresses import check_address
from satwatch.client.connection import Connection
from satwatch.client.deadline import Deadline
from satwatch.client.forks import GATE
from satwatch.client.kept import Kept, whole
from satwatch.client.misses import Missed
from satwatch.client.settings import check_timeout
from satwatch.client.statuses import wrong_reply
from satwatch.errors import ConfigError, SatwatchError, UnavailableError, VersionOrderError, required
from satwatch.types import (
    BatchesQuery,
    BatchRecord,
    EngineRecord,
    EnginesQuery,
    Event,
    EventsQuery,
    RunInfo,
    RunRecord,
    ServerInfo,
    StepPoint,
    StepsQuery,
    VersionRecord,
    VersionsQuery,
)
from satwatch.v1 import satwatch_pb2 as pb

A = TypeVar("A", bound=Message)
V = TypeVar("V")


class HistoryClient:
    """A sidecar's history (:class:`satwatch.types.History`), asked for over its wire; nothing is changed by looking.

    A call waits for its answer, no longer than ``timeout``, and raises a SatwatchError without one: UnknownRunError for
    a run that isn't kept, UnavailableError where no sidecar answers, its history is off or it is too old to have one,
    ConfigError for an argument that can't be meant. Safe with any number of threads; a forked child connects anew. A
    context manager: leaving it closes it.

    One that keeps records is always told what is stored now, but what it knows already is not sent again: asking for a
    run again and again costs the sidecar what is new of it. A record that has not changed is the same object.
    """

    def __init__(self, address: str, timeout: float = 5.0, *, keep: int = 0) -> None:
        """Make it; nothing is opened or sent before the first call.

        Args:
            address: the sidecar's, ``HOST:PORT`` or ``unix:PATH``.
            timeout: seconds that one call may wait; above 0, an hour at most.
            keep: the most records that are kept to be not sent again, of all questions together; 100,000 at most.

        Raises:
            ConfigError: an argument that can't be meant.
        """
        check_address(address)
        check_timeout(timeout)
        _check_keep(keep)
        self._address, self._timeout, self._keep = address, timeout, keep
        # By process: a forked child asks through its own, and leaves its parent's alone.
        self._connections: dict[int, Connection] = {}
        self._kept: dict[int, Kept] = {}
        self._closed = False

    def __enter__(self) -> HistoryClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"HistoryClient({self._address!r}, timeout={self._timeout:g})"

    @property
    def address(self) -> str:
        """The sidecar's."""
        return self._address

    def server_info(self) -> tuple[ServerInfo, tuple[RunInfo, ...]]:
        """Return what the sidecar is, and the runs that it has open.

        Raises:
            SatwatchError: no answer.
        """
        return self._ask(
            "GetServerInfo",
            pb.GetServerInfoRequest(),
            pb.GetServerInfoResponse,
            lambda answer: (wire.decode_server_info(answer.server), wire.decode_run_infos(answer.runs)),
        )

    def runs(self) -> tuple[RunRecord, ...]:
        """Return all lives, the one heard of last first.

        Raises:
            SatwatchError: no answer.
        """
        return self._records(
            "QueryRuns",
            None,
            wire.encode_runs_query,
            pb.QueryRunsResponse,
            lambda answer: (answer.stamps, wire.decode_run_records(answer.runs)),
        )

    def steps(
        self,
        run: str,
        *,
        life: int = 0,
        first_step: int | None = None,
        last_step: int | None = None,
        max_points: int = 500,
    ) -> tuple[StepPoint, ...]:
        """Return the steps of a range, ascending; too many come as merged neighbours.

        Args:
            run: the run's name.
            life: which life; 0: the newest.
            first_step: the first step wanted; None: the first kept.
            last_step: the last step wanted; None: the last one.
            max_points: the most points returned, 1 to 5000.

        Raises:
            SatwatchError: no answer.
        """
        query = StepsQuery(run, life, first_step, last_step, max_points)
        return self._records(
            "QuerySteps",
            (run, life),
            lambda known: wire.encode_steps_query(query, known),
            pb.QueryStepsResponse,
            lambda answer: (answer.stamps, wire.decode_step_points(answer.points)),
        )

    def batches(self, run: str, step: int, *, life: int = 0) -> tuple[BatchRecord, ...]:
        """Return the batches of a step by rank and microbatch, each with its worst tokens.

        Raises:
            SatwatchError: no answer.
        """
        query = BatchesQuery(run, step, life)
        return self._records(
            "QueryBatches",
            (run, life),
            lambda known: wire.encode_batches_query(query, known),
            pb.QueryBatchesResponse,
            lambda answer: (answer.stamps, wire.decode_batch_records(answer.batches)),
        )

    def versions(self, run: str, *, life: int = 0, limit: int = 1000) -> tuple[VersionRecord, ...]:
        """Return the versions published, the newest ``limit`` (1 to 10,000) of them, oldest first.

        Raises:
            SatwatchError: no answer.
        """
        query = VersionsQuery(run, life, limit)
        return self._records(
            "QueryVersions",
            (run, life),
            lambda known: wire.encode_versions_query(query, known),
            pb.QueryVersionsResponse,
            lambda answer: (answer.stamps, wire.decode_version_records(answer.versions)),
        )

    def events(
        self, run: str = "", *, life: int = 0, after: int = 0, only_active: bool = False, limit: int = 1000
    ) -> tuple[Event, ...]:
        """Return alerts raised and resolved, oldest first.

        Args:
            run: of this run and of the engines; empty: of all.
            life: which life of the run; 0: all of them.
            after: only those with a greater id.
            only_active: only those raised and not yet resolved.
            limit: the newest so many, 1 to 10,000.

        Raises:
            SatwatchError: no answer.
        """
        query = EventsQuery(run, life, after, only_active, limit)
        return self._records(
            "QueryEvents",
            (run, life),
            lambda known: wire.encode_events_query(query, known),
            pb.QueryEventsResponse,
            lambda answer: (answer.stamps, wire.decode_events(answer.events)),
        )

    def engines(
        self, run: str = "", *, since: float = 0.0, until: float | None = None, limit: int = 10_000
    ) -> tuple[EngineRecord, ...]:
        """Return what was known of the engines, oldest first.

        Args:
            run: of the engines of this run and those of none; empty: all.
            since: Unix time in seconds.
            until: likewise; None: now.
            limit: the newest so many, 1 to 100,000.

        Raises:
            SatwatchError: no answer.
        """
        query = EnginesQuery(run, since, until, limit)
        return self._records(
            "QueryEngines",
            run,
            lambda known: wire.encode_engines_query(query, known),
            pb.QueryEnginesResponse,
            lambda answer: (answer.stamps, wire.decode_engine_records(answer.engines)),
        )

    def close(self) -> None:
        """End the connection; later calls raise. Closing again does nothing."""
        self._closed = True
        self._kept.clear()
        connection = self._connections.pop(os.getpid(), None)
        if connection is not None:
            connection.close()

    def _records(
        self,
        method: str,
        topic: Hashable,
        request: Callable[[Iterable[int]], Message],
        answer: type[A],
        decode: Callable[[A], tuple[Collection[int], tuple[V, ...]]],
    ) -> tuple[V, ...]:
        """Ask for records, and for none that is kept."""
        kept = self._kept.setdefault(os.getpid(), Kept(self._keep))
        known = kept.of((method, topic))

        def read(message: A) -> tuple[tuple[int, ...], tuple[V, ...]]:
            stamps, sent = decode(message)
            return wire.decode_stamps(stamps), whole(stamps, sent, known)

        stamps, records = self._ask(method, request(known), answer, read)
        kept.keep((method, topic), stamps, records)
        return records

    def _ask(self, method: str, request: Message, answer: type[A], decode: Callable[[A], V]) -> V:
        try:
            data = self._connection().query(method, request.SerializeToString(), Deadline.after(self._timeout))
        except Missed as miss:
            raise _as_asked(miss.error) from None
        try:
            return decode(wire.parse(answer, data))
        except SatwatchError as error:
            raise wrong_reply(str(error)).error from error

    def _connection(self) -> Connection:
        """Return this process's connection; of two threads that make one at once, setdefault takes the first's."""
        if GATE.is_broken:
            raise Missed(UnavailableError("gRPC did not survive the fork that made this process"), "fork")
        if self._closed:
            raise Missed(UnavailableError("the client is closed"), "closed")
        connection = self._connections.get(os.getpid())
        if connection is not None:
            return connection
        made = Connection(self._address, self._timeout)
        connection = self._connections.setdefault(os.getpid(), made)
        if connection is not made:
            made.close()
        return connection


def _check_keep(keep: object) -> None:
    if not isinstance(keep, int) or isinstance(keep, bool) or not 0 <= keep <= wire.MAX_STAMPS:
        raise ConfigError(required("keep", keep, f"a whole number from 0 to {wire.MAX_STAMPS}"))


def _as_asked(error: SatwatchError) -> SatwatchError:
    """Return an error of a question: the status of a version out of order says here that there is no history."""
    return UnavailableError(str(error)) if isinstance(error, VersionOrderError) else error
