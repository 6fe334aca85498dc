"""What a microbatch's round trip through a real sidecar costs, against a bare gRPC server and the bounds in process.

Client, sidecar and bare server are processes of their own, and take turns in one loop without a pause: the sidecar is
still at the diagnostics of its last batch while the next call runs, whichever that is.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import grpc

import satwatch
from satwatch import wire
from satwatch.bench.children import child
from satwatch.bench.echo import ECHO, UPLOAD
from satwatch.bench.timing import Timing, take_turns
from satwatch.bench.workload import MICROBATCH, log_ratios
from satwatch.sat import clip_bounds
from satwatch.sat.packed import pack
from satwatch.types import BoundsRequest, TokenBatch

AIM: Final = 1.3


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """One transport.

    Attributes:
        transport: tcp or unix.
        request_bytes: the size of a request.
        sidecar: the client's clip_bounds, answered by the sidecar: checked, and made into every token's bounds.
        reply: the same request and the sidecar's reply, as bytes, without a client.
        echo: a bare gRPC server that sends the same bytes back.
        upload: a bare gRPC server that takes the same bytes and sends none.
        local: clip_bounds in process.
        ratio: sidecar / (echo + local), medians.
        upload_ratio: sidecar / (upload + local), medians: the harder comparison, since the sidecar's answer is small.
        aim: what ratio is meant to stay below.
        fallbacks: calls that the sidecar did not answer; above 0 the numbers mean nothing.
    """

    transport: str
    request_bytes: int
    sidecar: Timing
    reply: Timing
    echo: Timing
    upload: Timing
    local: Timing
    ratio: float
    upload_ratio: float
    aim: float
    fallbacks: int


@dataclass(frozen=True, slots=True)
class FailOpen:
    """What a call costs when no sidecar is there and the breaker is open.

    Attributes:
        call: the client's clip_bounds.
        local: satwatch.sat.clip_bounds.
        overhead_seconds: the difference of the medians.
    """

    call: Timing
    local: Timing
    overhead_seconds: float


def measure_round_trips(*, quick: bool) -> list[RoundTrip]:
    """Start a sidecar and a bare server and measure both transports.

    Raises:
        UnavailableError: one of the two did not start.
    """
    with TemporaryDirectory() as folder:
        sockets = [f"unix:{Path(folder, name)}" for name in ("sidecar", "echo")]
        listen = ("--listen", "127.0.0.1:0", "--listen", sockets[0])
        options = ("--metrics-port", "0", "--device", "cpu", "--log-level", "warning")
        with (
            child("satwatch", "serve", *listen, *options) as sidecar,
            child("satwatch.bench.echo", "127.0.0.1:0", sockets[1]) as echo,
        ):
            pairs = zip(("tcp", "unix"), sidecar["grpc"], echo["grpc"], strict=True)
            return [_measure(transport, served, bare, quick=quick) for transport, served, bare in pairs]


def _measure(transport: str, sidecar: str, bare: str, *, quick: bool) -> RoundTrip:
    log_ratio = log_ratios(MICROBATCH)
    request = BoundsRequest(run="bench", batch=TokenBatch(pack(log_ratio)), rule_only=True)
    message = wire.encode_request(request).SerializeToString()
    with (
        satwatch.connect(sidecar, run="bench") as client,
        grpc.insecure_channel(sidecar) as served,
        grpc.insecure_channel(bare) as channel,
    ):
        client.clip_bounds(log_ratio)  # opens the run
        calls: dict[str, Callable[[], object]] = {
            "sidecar": lambda: client.clip_bounds(log_ratio),
            "reply": _caller(served, f"/{wire.SERVICE}/ComputeBounds", message),
            "echo": _caller(channel, ECHO, message),
            "upload": _caller(channel, UPLOAD, message),
            "local": lambda: clip_bounds(log_ratio),
        }
        timings = take_turns(calls, repeats=10 if quick else 1000)
        fallbacks = client.stats.bounds_from_fallback
    medians = {name: timing.median for name, timing in timings.items()}
    return RoundTrip(
        transport=transport,
        request_bytes=len(message),
        ratio=medians["sidecar"] / (medians["echo"] + medians["local"]),
        upload_ratio=medians["sidecar"] / (medians["upload"] + medians["local"]),
        aim=AIM,
        fallbacks=fallbacks,
        **timings,
    )


def _caller(channel: grpc.Channel, method: str, message: bytes) -> Callable[[], object]:
    # No serializers: bytes go in and come out.
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
    return lambda: call(message, timeout=10.0)


def measure_fail_open(*, quick: bool) -> FailOpen:
    """Measure calls to a sidecar that isn't there."""
    log_ratio = log_ratios(MICROBATCH)
    # Bound and never listened on: the port is free, and nobody else takes it meanwhile.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        with satwatch.connect(f"127.0.0.1:{held.getsockname()[1]}", run="bench") as client:
            client.clip_bounds(log_ratio)
            calls = {"call": lambda: client.clip_bounds(log_ratio), "local": lambda: clip_bounds(log_ratio)}
            timings = take_turns(calls, repeats=20 if quick else 500)
    return FailOpen(**timings, overhead_seconds=timings["call"].median - timings["local"].median)
