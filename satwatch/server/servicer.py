"""The gRPC edge: bytes to answers, errors to statuses, streams, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, cast

import grpc
import grpc.aio

from satwatch import wire
from satwatch.errors import InvalidBatchError, OverloadedError, SatwatchError, UnavailableError, required
from satwatch.server.answers import Answers
from satwatch.server.engine_answers import EngineAnswers
from satwatch.server.history_answers import Queries
from satwatch.server.traffic import Traffic
from satwatch.v1 import satwatch_pb2 as pb

logger = logging.getLogger(__name__)

ERROR_KEY: Final = "satwatch-error"
# What gRPC has received and not yet handed over when it stops ends as CANCELLED, which says nothing to a caller. So
# the sidecar goes on refusing until no request has come for this long, but not for ever.
_CALM_SECONDS: Final = 0.05
_REFUSING_SECONDS: Final = 1.0
_CLOSING: Final = "the sidecar is shutting down"
_DEFECT: Final = "the sidecar failed on this request and serves on; its log says why"

Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
Answer: TypeAlias = Callable[[bytes], Awaitable[bytes]]
T = TypeVar("T")


class InternalError(SatwatchError):
    """A defect of the sidecar, met by one request."""

    status = "INTERNAL"


class Servicer:
    """Serves one sidecar's answers over gRPC; for one event loop."""

    def __init__(
        self,
        answers: Answers,
        engines: EngineAnswers,
        traffic: Traffic,
        *,
        queries: Queries | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Serve these answers, and count; the clock counts seconds. Without queries the history is off."""
        self._answers = answers
        self._engines = engines
        self._queries = queries or Queries(None)
        self._traffic = traffic
        self._clock = clock
        self._active = 0
        self._requests = 0
        self._closing = False
        self._quiet = asyncio.Event()
        self._idle_streams: set[asyncio.Task[Any]] = set()

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the service's methods, bytes in and bytes out.

        gRPC's own deserializer would answer garbage with INTERNAL, before anything here could say what was wrong.
        """
        unary: dict[str, Answer] = {
            "OpenRun": self._answers.open_run,
            "ComputeBounds": self._answers.compute_bounds,
            "PublishVersion": self._answers.publish_version,
            "GetServerInfo": self._answers.get_server_info,
            "ReportCanary": self._engines.report_canary,
            "ReportEngines": self._engines.report_engines,
            "ReportStep": self._answers.report_step,
            "CloseRun": self._answers.close_run,
            **self._queries.by_kind(),
        }
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: grpc.unary_unary_rpc_method_handler(self._unary(name, answer)) for name, answer in unary.items()
        }
        methods["StreamBounds"] = grpc.stream_stream_rpc_method_handler(self._stream)
        methods["WatchEngines"] = grpc.unary_stream_rpc_method_handler(self._watch)
        return grpc.method_handlers_generic_handler(wire.SERVICE, methods)

    async def close(self, timeout: float) -> None:
        """Take nothing more, end the streams that wait for a message or for news, and wait for what is in flight.

        Args:
            timeout: seconds to wait at most.
        """
        self._closing = True
        for stream in list(self._idle_streams):
            stream.cancel()
        self._quiet.clear()
        if self._active:
            try:
                await asyncio.wait_for(self._quiet.wait(), timeout)
            except TimeoutError:
                logger.warning("%d requests were still in flight after %.1f s.", self._active, timeout)
        await self._refuse_until_calm()

    async def _refuse_until_calm(self) -> None:
        ends, seen = time.monotonic() + _REFUSING_SECONDS, -1
        while seen != self._requests and time.monotonic() < ends:
            seen = self._requests
            await asyncio.sleep(_CALM_SECONDS)

    async def attempt(self, kind: str, answer: Answer, data: bytes) -> bytes:
        """Answer a request, and count it.

        Args:
            kind: the RPC's name.
            answer: makes the answer.
            data: the request.

        Raises:
            SatwatchError: the request is refused; a defect is an InternalError.
        """
        started = self._clock()
        self._active += 1
        self._requests += 1
        reply = b""
        try:
            self._check_open()
            self._check_size(data)
            reply = await answer(data)
        except SatwatchError as error:
            self._traffic.failed(error)
            raise
        except Exception as error:
            # The servicer's edge: whatever goes wrong with one request, the others are served.
            logger.exception("%s failed.", kind)
            self._traffic.failed(error)
            raise InternalError(_DEFECT) from error
        finally:
            self._traffic.answered(kind, self._clock() - started, len(data), len(reply))
            self._active -= 1
            if not self._active:
                self._quiet.set()
        return reply

    def _check_open(self) -> None:
        if self._closing:
            raise UnavailableError(_CLOSING)

    def _check_size(self, data: bytes) -> None:
        limit = self._answers.max_message_bytes
        if len(data) > limit:
            requirement = f"at most {limit} (max_message_bytes)"
            raise OverloadedError(required("message", f"{len(data)} bytes", requirement))

    def _unary(self, kind: str, answer: Answer) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def handle(data: bytes, context: Context) -> bytes:
            try:
                return await self.attempt(kind, answer, data)
            except SatwatchError as error:
                await _abort(context, error)

        return handle

    async def _stream(self, _requests: object, context: Context) -> None:
        async def serve() -> None:
            while isinstance(data := await self._idle(context.read), bytes):
                await context.write(await self._answer_item(data))

        await self._until_its_end(serve, context)

    async def _watch(self, data: bytes, context: Context) -> None:
        async def serve() -> None:
            with self._engines.watching() as watch:
                await context.write(await self.attempt("WatchEngines", watch.first, data))
                while True:
                    reply = await self._idle(watch.next)
                    self._traffic.pushed(len(reply))
                    await context.write(reply)

        await self._until_its_end(serve, context)

    async def _until_its_end(self, serve: Callable[[], Awaitable[None]], context: Context) -> None:
        self._traffic.streams += 1
        try:
            await serve()
        except (asyncio.CancelledError, UnavailableError):
            # Either the client left, and nothing is to be said, or close() ended the wait for the next message.
            if not self._closing:
                raise
            await _abort(context, UnavailableError(_CLOSING))
        except SatwatchError as error:
            await _abort(context, error)
        finally:
            self._traffic.streams -= 1

    async def _idle(self, wait: Callable[[], Awaitable[T]]) -> T:
        """Wait for a stream's next message; meanwhile nothing is in flight, and close() may cancel the wait."""
        self._check_open()
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._idle_streams.add(task)
        try:
            return await wait()
        finally:
            self._idle_streams.discard(task)

    async def _answer_item(self, data: bytes) -> bytes:
        request_id: int | None = None

        async def answer(data: bytes) -> bytes:
            nonlocal request_id
            item = await self._answers.parse(pb.StreamBoundsRequest, data)
            request_id = item.request_id
            reply = wire.encode_reply(await self._answers.bound(item.request, len(data)))
            return pb.StreamBoundsResponse(request_id=request_id, response=reply).SerializeToString()

        try:
            return await self.attempt("StreamBounds", answer, data)
        except SatwatchError as error:
            refusal = wire.encode_error(error, status_of(error).value[0])
            if request_id is None:
                request_id = _request_id(data)
            return pb.StreamBoundsResponse(request_id=request_id, error=refusal).SerializeToString()


def status_of(error: SatwatchError) -> grpc.StatusCode:
    """Return the gRPC status of an error."""
    return grpc.StatusCode[error.status]


async def _abort(context: Context, error: SatwatchError) -> NoReturn:
    await context.abort(status_of(error), wire.error_text(error), ((ERROR_KEY, type(error).__name__),))


def _request_id(data: bytes) -> int:
    """Return the id of a message refused before it was read; 0 when it does not parse."""
    try:
        return wire.parse(pb.StreamBoundsRequest, data).request_id
    except InvalidBatchError:
        return 0
