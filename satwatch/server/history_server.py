"""Serves a stored history to look at, over gRPC and without a sidecar: the same queries, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, NoReturn

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from satwatch import __version__, wire
from satwatch.errors import SatwatchError, UnavailableError
from satwatch.server.history_answers import THREADS, HistoryAnswers
from satwatch.server.servicer import ERROR_KEY, status_of
from satwatch.types import History, RunRecord, ServerInfo
from satwatch.v1 import satwatch_pb2 as pb

READ_ONLY: Final = "this is a stored history to look at, and no sidecar: it takes no batches"

_STOP_SECONDS: Final = 1.0
_REFUSED: Final = (
    "OpenRun",
    "ComputeBounds",
    "PublishVersion",
    "ReportCanary",
    "ReportEngines",
    "ReportStep",
    "CloseRun",
)


@contextmanager
def serving_history(history: History, is_open: Callable[[RunRecord], bool] | None = None) -> Iterator[str]:
    """Answer queries about a history on a free loopback port until the block ends.

    Args:
        history: what is looked at; several threads ask at once.
        is_open: tells whether a life is open now; None: none is, as of a stored history.

    Yields:
        The address, HOST:PORT. What only a sidecar can answer is refused.
    """
    server = grpc.server(ThreadPoolExecutor(2 * THREADS, "satwatch-history"), options=[("grpc.so_reuseport", 0)])
    answers = HistoryAnswers(history) if is_open is None else HistoryAnswers(history, is_open)
    server.add_generic_rpc_handlers((_handlers(answers, time.time()),))
    status = health.HealthServicer()
    status.set(wire.SERVICE, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(_STOP_SECONDS).wait()


def _handlers(answers: HistoryAnswers, started_at: float) -> grpc.GenericRpcHandler:
    info = ServerInfo(__version__, "none", 0, 0, "", started_at)
    server = pb.GetServerInfoResponse(server=wire.encode_server_info(info)).SerializeToString()
    by_kind: dict[str, Callable[[bytes], bytes]] = {
        **dict.fromkeys(_REFUSED, _refuse),
        **answers.by_kind(),
        "GetServerInfo": lambda data: server,
    }
    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        name: grpc.unary_unary_rpc_method_handler(_unary(answer)) for name, answer in by_kind.items()
    }
    return grpc.method_handlers_generic_handler(wire.SERVICE, methods)


def _refuse(data: bytes) -> NoReturn:
    raise UnavailableError(READ_ONLY)


def _unary(answer: Callable[[bytes], bytes]) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    def handle(data: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return answer(data)
        except SatwatchError as error:
            context.set_trailing_metadata(((ERROR_KEY, type(error).__name__),))
            context.abort(status_of(error), wire.error_text(error))

    return handle
