"""A sidecar of a few lines that answers rightly, and wrongly where a test says so."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc

from satwatch import types, wire
from satwatch.sat import score_batch, unpack
from satwatch.v1 import satwatch_pb2 as pb

MESSAGES = {
    "OpenRun": pb.OpenRunRequest,
    "ComputeBounds": pb.ComputeBoundsRequest,
    "PublishVersion": pb.PublishVersionRequest,
    "GetServerInfo": pb.GetServerInfoRequest,
    "ReportCanary": pb.ReportCanaryRequest,
    "ReportEngines": pb.ReportEnginesRequest,
    "WatchEngines": pb.WatchEnginesRequest,
    "ReportStep": pb.ReportStepRequest,
    "CloseRun": pb.CloseRunRequest,
    "QueryRuns": pb.QueryRunsRequest,
    "QuerySteps": pb.QueryStepsRequest,
    "QueryBatches": pb.QueryBatchesRequest,
    "QueryVersions": pb.QueryVersionsRequest,
    "QueryEvents": pb.QueryEventsRequest,
    "QueryEngines": pb.QueryEnginesRequest,
}
STREAMS = {"WatchEngines"}
INFO = types.ServerInfo("9.9.9", "cpu", 64 * 2**20, 8 * 2**20, "", 1.0)

Fault = Callable[[Any, grpc.ServicerContext], bytes]


class Sidecar(grpc.GenericRpcHandler):
    """Serves from a thread pool; ``faults[method]`` answers in the place of the right answer."""

    def __init__(self, address: str = "127.0.0.1:0", info: types.ServerInfo = INFO) -> None:
        self.info = info
        self.faults: dict[str, Fault] = {}
        self.requests: list[tuple[str, Any]] = []
        self.rule = types.Rule()
        self.open = False
        self.facts = types.TrainerFacts()
        # What is known of each open run, and what the Query calls answer, by their name.
        self.runs: list[types.RunInfo] = []
        self.kept: dict[str, Any] = {}
        # What a stream of WatchEngines sends: statuses or bytes; None ends it.
        self.changes: queue.Queue[Any] = queue.Queue()
        self.watch_ended = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self,))
        port = self._server.add_insecure_port(address)
        self.address = address if address.startswith("unix:") else f"127.0.0.1:{port}"
        self._server.start()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        method = details.method.rpartition("/")[2]
        if method not in MESSAGES:
            return None
        if method in STREAMS:
            return grpc.unary_stream_rpc_method_handler(lambda data, context: self._stream(method, data, context))
        return grpc.unary_unary_rpc_method_handler(lambda data, context: self._answer(method, data, context))

    def received(self, method: str) -> list[Any]:
        """The messages of one method, in the order of their arrival."""
        return [message for name, message in self.requests if name == method]

    def stop(self) -> None:
        """Drop everything, as a killed process does."""
        self._server.stop(None).wait()

    def _answer(self, method: str, data: bytes, context: grpc.ServicerContext) -> bytes:
        message = MESSAGES[method].FromString(data)
        self.requests.append((method, message))
        fault = self.faults.get(method)
        if fault is not None:
            return fault(message, context)
        if method.startswith("Query"):
            return self.kept[method].SerializeToString()
        return getattr(self, f"answer_{method}")(message, context)

    def _stream(self, method: str, data: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        message = MESSAGES[method].FromString(data)
        self.requests.append((method, message))
        if method in self.faults:
            yield self.faults[method](message, context)
        context.add_callback(self.watch_ended.set)
        context.add_callback(lambda: self.changes.put(None))
        while (change := self.changes.get()) is not None:
            if callable(change):
                change(message, context)
            else:
                yield change if isinstance(change, bytes) else watched(change)

    def answer_OpenRun(self, message: pb.OpenRunRequest, context: grpc.ServicerContext) -> bytes:
        self.open, self.rule = True, wire.decode_opening(message).rule
        server = wire.encode_server_info(self.info)
        return pb.OpenRunResponse(rule=message.rule, server=server).SerializeToString()

    def answer_ComputeBounds(self, message: pb.ComputeBoundsRequest, context: grpc.ServicerContext) -> bytes:
        if not self.open:
            context.abort(grpc.StatusCode.NOT_FOUND, "run: not open")
        return wire.encode_reply(self.reply(message)).SerializeToString()

    def answer_PublishVersion(self, message: pb.PublishVersionRequest, context: grpc.ServicerContext) -> bytes:
        return pb.PublishVersionResponse().SerializeToString()

    def answer_GetServerInfo(self, message: pb.GetServerInfoRequest, context: grpc.ServicerContext) -> bytes:
        runs = [wire.encode_run_info(run) for run in self.runs]
        return pb.GetServerInfoResponse(server=wire.encode_server_info(self.info), runs=runs).SerializeToString()

    def answer_ReportCanary(self, message: pb.ReportCanaryRequest, context: grpc.ServicerContext) -> bytes:
        return pb.ReportCanaryResponse().SerializeToString()

    def answer_ReportStep(self, message: pb.ReportStepRequest, context: grpc.ServicerContext) -> bytes:
        if not self.open:
            context.abort(grpc.StatusCode.NOT_FOUND, "run: not open")
        return pb.ReportStepResponse().SerializeToString()

    def answer_CloseRun(self, message: pb.CloseRunRequest, context: grpc.ServicerContext) -> bytes:
        return pb.CloseRunResponse().SerializeToString()

    def answer_ReportEngines(self, message: pb.ReportEnginesRequest, context: grpc.ServicerContext) -> bytes:
        return pb.ReportEnginesResponse(facts=wire.encode_facts(self.facts, 0.0)).SerializeToString()

    def reply(self, message: pb.ComputeBoundsRequest) -> types.BoundsReply:
        """The right reply."""
        batch = wire.decode_request(message).batch
        assert isinstance(batch, types.TokenBatch)
        q = score_batch(unpack(batch.log_ratio), self.rule, None, batch.sequence_lengths or None).reference()
        return types.BoundsReply(replace(self.rule, scope="microbatch"), None if math.isnan(q) else q, batch.tokens)


def watched(statuses: tuple[types.EngineStatus, ...]) -> bytes:
    """One message of WatchEngines."""
    return pb.WatchEnginesResponse(engines=wire.encode_statuses(statuses), at=1.0).SerializeToString()


class Held:
    """A fault that answers rightly, but not before it is let go."""

    def __init__(self, sidecar: Sidecar, method: str = "ComputeBounds") -> None:
        self.arrived = threading.Semaphore(0)
        self.let_go = threading.Event()
        self._answer = getattr(sidecar, f"answer_{method}")

    def __call__(self, message: Any, context: grpc.ServicerContext) -> bytes:
        self.arrived.release()
        assert self.let_go.wait(120)
        return self._answer(message, context)


def abort(code: grpc.StatusCode, details: str, name: str | None = None) -> Fault:
    """A fault that refuses with a status, and names an error class as the sidecar does."""

    def fault(message: Any, context: grpc.ServicerContext) -> bytes:
        if name is not None:
            context.set_trailing_metadata((("satwatch-error", name),))
        context.abort(code, details)
        raise AssertionError  # abort raises

    return fault
