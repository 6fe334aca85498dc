"""A dashboard's part of the sidecar's wire: all engines at once, again after each change."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc

from satwatch import wire
from satwatch.addresses import check_address
from satwatch.client.connection import Connection
from satwatch.client.deadline import Deadline
from satwatch.client.settings import check_timeout
from satwatch.client.statuses import read_error
from satwatch.errors import SatwatchError, UnavailableError
from satwatch.types import EngineStatus, check_run_name
from satwatch.v1 import satwatch_pb2 as pb


def watch_engines(address: str, run: str = "", *, timeout: float = 5.0) -> Iterator[tuple[EngineStatus, ...]]:
    """Return what a sidecar knows of its engines: at once, and again after each change.

    Closing the iterator, or letting go of it, ends the stream. A process that watches must not fork.

    Args:
        address: the sidecar's, ``HOST:PORT`` or ``unix:PATH``.
        run: whose engines; empty: all.
        timeout: seconds until the first answer; the others come when they come.

    Raises:
        ConfigError: at once: an argument that can't be meant.
        SatwatchError: while iterating: the stream could not be opened, or broke, which is its only end.
    """
    check_address(address)
    check_timeout(timeout)
    if run:
        check_run_name(run)
    return _watch(address, run, timeout)


def _watch(address: str, run: str, timeout: float) -> Iterator[tuple[EngineStatus, ...]]:
    connection, deadline, what = Connection(address, timeout), Deadline.after(timeout), f"WatchEngines at {address}"
    late = threading.Event()
    try:
        stream = connection.watch_engines(run)

        def give_up() -> None:
            late.set()
            stream.cancel()

        # gRPC's own deadline would end the stream, first answer or not.
        timer = threading.Timer(timeout, give_up)
        timer.daemon = True
        timer.start()
        try:
            for data in stream:
                timer.cancel()
                yield _decode(data)
        except grpc.RpcError as error:
            raise (deadline.missed(what) if late.is_set() else read_error(error, what, deadline)).error from None
        finally:
            timer.cancel()
            stream.cancel()
    finally:
        connection.close()
    ended = f"{what}: the sidecar has ended the stream"
    raise UnavailableError(ended)


def _decode(data: bytes) -> tuple[EngineStatus, ...]:
    try:
        return wire.decode_statuses(wire.parse(pb.WatchEnginesResponse, data).engines)
    except SatwatchError as error:
        raise UnavailableError(f"reply.{error}") from error
