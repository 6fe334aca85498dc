"""One gRPC channel to a sidecar: bytes and values in, values or a :class:`Missed` out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import grpc

from satwatch import wire
from satwatch.client.deadline import Deadline
from satwatch.client.forks import GATE
from satwatch.client.misses import Missed
from satwatch.client.statuses import read_error, wrong_reply
from satwatch.errors import InvalidBatchError, SatwatchError, UnavailableError, required
from satwatch.types import (
    BoundsReply,
    CanaryScores,
    EnginesReport,
    PublishedVersion,
    RunOpening,
    ServerInfo,
    StepReport,
    TrainerFacts,
)
from satwatch.v1 import satwatch_pb2 as pb

_METHODS: Final = (
    "OpenRun",
    "ComputeBounds",
    "PublishVersion",
    "GetServerInfo",
    "ReportCanary",
    "ReportEngines",
    "ReportStep",
    "CloseRun",
    "QueryRuns",
    "QuerySteps",
    "QueryBatches",
    "QueryVersions",
    "QueryEvents",
    "QueryEngines",
)

_OPTIONS: Final = (
    # A proxy in the environment is for the internet; a sidecar is a neighbour.
    ("grpc.enable_http_proxy", 0),
    # A new channel is a new connection: a probe must not inherit the old one's back-off or its half-dead socket.
    ("grpc.use_local_subchannel_pool", 1),
    # The pauses between one channel's attempts. The breaker's probes are further apart, each with a channel of its own.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # What the sidecar takes is known from OpenRun and checked before sending. No keepalive: each call has a deadline.
    ("grpc.max_send_message_length", -1),
    # What a sidecar answers to a probe or a dashboard grows with its engines and steps; gRPC's own limit is 4 MiB.
    ("grpc.max_receive_message_length", 64 * 2**20),
)

_KEPT: Final[list[grpc.Channel]] = []


def _keep_grpc_up() -> None:
    """Hold one channel, never used, for as long as the process lives.

    gRPC's core stops when the last channel goes and starts again with the next one, in threads of its own. A fork in
    the middle of that leaves a child in which gRPC hangs; a core that stays up is at rest between calls.
    """
    if not _KEPT:
        _KEPT.append(grpc.insecure_channel("127.0.0.1:0", _OPTIONS))


def _options(timeout: float) -> tuple[tuple[str, int], ...]:
    """Return a channel's options; gRPC's name for the end of its patience with a handshake is misleading."""
    return (*_OPTIONS, ("grpc.min_reconnect_backoff_ms", max(100, math.ceil(timeout * 1000))))


class _Unary(Protocol):
    def __call__(self, request: bytes, *, timeout: float) -> bytes: ...


class Watch(Protocol):
    """A stream of messages; iterating raises gRPC's error when it breaks."""

    def __iter__(self) -> Iterator[bytes]: ...

    def cancel(self) -> bool:
        """End the stream; safe in any thread, and more than once."""


class Connection:
    """A channel on which a run can be opened; for any number of threads of one process."""

    def __init__(self, address: str, timeout: float) -> None:
        """Make a channel. It connects with its first call.

        Args:
            address: ``HOST:PORT`` or ``unix:PATH``.
            timeout: seconds that a handshake may take; no call has longer.
        """
        self._address = address
        self.server: ServerInfo | None = None
        self._lacks_reports: Missed | None = None
        self._channel: grpc.Channel | None = None
        self._unary: dict[str, _Unary] = {}
        GATE.run(lambda: self._make_channel(_options(timeout)))

    def _make_channel(self, options: tuple[tuple[str, int], ...]) -> None:
        _keep_grpc_up()
        self._channel = channel = grpc.insecure_channel(self._address, options)
        # Bytes in and bytes out: gRPC logs a traceback for a reply that does not parse.
        methods: dict[str, Any] = {name: channel.unary_unary(f"/{wire.SERVICE}/{name}") for name in _METHODS}
        self._unary = methods

    def close(self) -> None:
        """Close the channel; calls in flight end with a miss, and so do later ones."""
        GATE.run(self._close_channel)

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel, self._unary = None, {}

    def open_run(self, opening: RunOpening, deadline: Deadline) -> None:
        """Open a run, and learn what the sidecar is.

        Raises:
            Missed: no answer, a refusal, or an answer with another rule.
        """
        data = self._call("OpenRun", wire.encode_opening(opening).SerializeToString(), deadline)
        self._lacks_reports = None  # it may be another release that has started there
        try:
            message = wire.parse(pb.OpenRunResponse, data)
            rule = wire.decode_rule(message.rule)
        except SatwatchError as error:
            raise wrong_reply(str(error)) from error
        if rule != opening.rule:
            raise wrong_reply(required("rule", rule, f"{opening.rule}, as sent"))
        self.server = wire.decode_server_info(message.server)

    def compute_bounds(self, request: bytes, deadline: Deadline) -> BoundsReply:
        """Ask for the rule that bounds a batch.

        Raises:
            Missed: no answer, a refusal, or an answer that does not parse.
        """
        data = self._call("ComputeBounds", request, deadline)
        try:
            return wire.decode_reply(wire.parse(pb.ComputeBoundsResponse, data))
        except SatwatchError as error:
            raise wrong_reply(str(error)) from error

    def publish_version(self, opening: RunOpening, published: PublishedVersion, deadline: Deadline) -> None:
        """Say that a version was published, and how long ago.

        Raises:
            Missed: no answer, or a refusal.
        """
        message = pb.PublishVersionRequest(
            run=opening.run,
            incarnation=opening.incarnation,
            version=published.version,
            age_seconds=max(0.0, time.monotonic() - published.at),
        )
        self._call("PublishVersion", message.SerializeToString(), deadline)

    def report_canary(self, opening: RunOpening, scores: CanaryScores, deadline: Deadline) -> None:
        """Say how the trainer scores the canary.

        Raises:
            Missed: no answer, or a refusal.
        """
        message = pb.ReportCanaryRequest(
            run=opening.run, incarnation=opening.incarnation, scores=wire.encode_canary_scores(scores)
        )
        self._call("ReportCanary", message.SerializeToString(), deadline)

    def report_step(self, report: StepReport, deadline: Deadline) -> None:
        """Say what this rank reports of a step; a sidecar that is too old for it is not asked again.

        Raises:
            Missed: no answer, a refusal, or an older sidecar.
        """
        if self._lacks_reports is not None:
            raise self._lacks_reports.again()
        try:
            self._call("ReportStep", wire.encode_step_report(report).SerializeToString(), deadline)
        except Missed as miss:
            if miss.is_unimplemented:
                self._lacks_reports = self._older("ReportStep", "takes no reports of steps")
                raise self._lacks_reports.again() from None
            raise

    def close_run(self, opening: RunOpening, deadline: Deadline) -> None:
        """Say that this rank sends nothing more; said again, it changes nothing.

        Raises:
            Missed: no answer, a refusal, or an older sidecar.
        """
        message = pb.CloseRunRequest(run=opening.run, incarnation=opening.incarnation, rank=opening.rank)
        self._call("CloseRun", message.SerializeToString(), deadline)

    def query(self, method: str, request: bytes, deadline: Deadline) -> bytes:
        """Ask for what a dashboard shows.

        Args:
            method: one of the Query calls, or GetServerInfo.
            request: its message.
            deadline: of the call.

        Raises:
            Missed: no answer, a refusal, or an older sidecar.
        """
        try:
            return self._call(method, request, deadline)
        except Missed as miss:
            if miss.is_unimplemented:
                raise self._older(method, "keeps no history") from None
            raise

    def _older(self, method: str, lack: str) -> Missed:
        older = f"{self._what(method)}: the sidecar there is older than this client and {lack}"
        return Missed(UnavailableError(older), "internal", is_unimplemented=True)

    def report_engines(
        self, report: EnginesReport, deadline: Deadline, clock: Callable[[], float] = time.monotonic
    ) -> TrainerFacts:
        """Say what a probe knows of its engines, and learn what the trainer has told.

        Args:
            report: the probe's round.
            deadline: of the call.
            clock: what the facts' moments shall count on.

        Raises:
            Missed: no answer, a refusal, or an answer that does not parse.
        """
        data = self._call("ReportEngines", wire.encode_report(report).SerializeToString(), deadline)
        try:
            return wire.decode_facts(wire.parse(pb.ReportEnginesResponse, data).facts, clock())
        except SatwatchError as error:
            raise wrong_reply(str(error)) from error

    def server_info(self, deadline: Deadline) -> ServerInfo:
        """Ask what the sidecar is.

        Raises:
            Missed: no answer, a refusal, or an answer that does not parse.
        """
        data = self._call("GetServerInfo", b"", deadline)
        try:
            self.server = wire.decode_server_info(wire.parse(pb.GetServerInfoResponse, data).server)
        except InvalidBatchError as error:
            raise wrong_reply(str(error)) from error
        return self.server

    def watch_engines(self, run: str) -> Watch:
        """Begin to watch the engines; the caller ends the stream.

        The gate is passed only to begin: a wait without an end would hold up forks.

        Raises:
            Missed: the connection is closed.
        """
        channel, request = self._channel, pb.WatchEnginesRequest(run=run).SerializeToString()
        if channel is None:
            raise Missed(UnavailableError(f"{self._what('WatchEngines')}: the connection is closed"))
        watch: Any = channel.unary_stream(f"/{wire.SERVICE}/WatchEngines")
        stream: Watch = GATE.run(lambda: watch(request))
        return stream

    def _call(self, method: str, request: bytes, deadline: Deadline) -> bytes:
        if deadline.remaining <= 0:
            raise deadline.missed(self._what(method))
        outcome = GATE.run(lambda: self._exchange(method, request, deadline))
        if isinstance(outcome, Missed):
            # Out here and without gRPC's exception, which holds the call: what gRPC frees, it frees inside the gate.
            raise outcome.again()
        return outcome

    def _what(self, method: str) -> str:
        return f"{method} at {self._address}"

    def _exchange(self, method: str, request: bytes, deadline: Deadline) -> bytes | Missed:
        try:
            return self._unary[method](request, timeout=deadline.remaining)
        except grpc.RpcError as error:
            return read_error(error, self._what(method), deadline)
        except (KeyError, ValueError):
            # Closed before the call began: here, or, while it was being made, by gRPC.
            return Missed(UnavailableError(f"{self._what(method)}: the connection is closed"))
