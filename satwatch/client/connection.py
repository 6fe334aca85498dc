"""One gRPC channel to a sidecar: bytes and values in, values or a :class:`Missed` out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

import grpc

from satwatch import wire
from satwatch.client.forks import GATE
from satwatch.client.misses import Missed
from satwatch.errors import (
    BY_NAME,
    DeadlineError,
    InvalidBatchError,
    OverloadedError,
    SatwatchError,
    UnavailableError,
    UnknownRunError,
    VersionOrderError,
    required,
)
from satwatch.types import BoundsReply, RunOpening, ServerInfo
from satwatch.v1 import satwatch_pb2 as pb

_METHODS: Final = ("OpenRun", "ComputeBounds", "PublishVersion", "GetServerInfo")
ERROR_KEY: Final = "satwatch-error"

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
)

_BY_STATUS: Final[dict[str, type[SatwatchError]]] = {
    "FAILED_PRECONDITION": VersionOrderError,
    "INVALID_ARGUMENT": InvalidBatchError,
    "NOT_FOUND": UnknownRunError,
    "RESOURCE_EXHAUSTED": OverloadedError,
    "UNAVAILABLE": UnavailableError,
}


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of one call's patience; every part of the call shares it.

    Attributes:
        seconds: how long the call may take.
        ends: the clock's reading at its end.
        clock: counts seconds.
    """

    seconds: float
    ends: float
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """Start now."""
        return cls(seconds, clock() + seconds, clock)

    @property
    def remaining(self) -> float:
        """Seconds left, 0 or more."""
        return max(0.0, self.ends - self.clock())

    def missed(self, what: str) -> Missed:
        """Say that it has passed."""
        return Missed(DeadlineError(f"{what}: no answer within {self.seconds:g} s"))


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

    def publish_version(self, opening: RunOpening, version: int, deadline: Deadline) -> None:
        """Say that a version was published.

        Raises:
            Missed: no answer, or a refusal.
        """
        message = pb.PublishVersionRequest(run=opening.run, incarnation=opening.incarnation, version=version)
        self._call("PublishVersion", message.SerializeToString(), deadline)

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
            return _read_error(error, self._what(method), deadline)
        except (KeyError, ValueError):
            # Closed before the call began: here, or, while it was being made, by gRPC.
            return Missed(UnavailableError(f"{self._what(method)}: the connection is closed"))


def wrong_reply(message: str) -> Missed:
    """Say that an answer can't be used."""
    return Missed(UnavailableError(f"reply.{message}"), "reply")


def _read_error(error: grpc.RpcError, what: str, deadline: Deadline) -> Missed:
    """Translate gRPC's error: the class that the sidecar names, else the one that has the status."""
    call = cast(grpc.Call, error)
    status, details = call.code().name, call.details() or "no details"
    if status == DeadlineError.status:
        return deadline.missed(what)
    name = next((str(value) for key, value in call.trailing_metadata() or () if key == ERROR_KEY), "")
    named = BY_NAME.get(name)
    if named is not None and named.status == status:
        return Missed(named(details))
    if status == "UNIMPLEMENTED":
        return Missed(UnavailableError(f"{what}: the server there is no satwatch sidecar of this version"), "internal")
    if status in _BY_STATUS:
        return Missed(_BY_STATUS[status](f"{what}: {details}"))
    gone = UnavailableError(f"{what}: {status}: {details}")
    # A call in flight on a channel that is closed here ends as cancelled.
    return Missed(gone, "unavailable" if status == "CANCELLED" else "internal")
