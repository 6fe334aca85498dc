"""What the sidecar answers: bytes in, bytes out or a SatwatchError; gRPC is not known here."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, ParamSpec, TypeVar

from google.protobuf.message import Message

from satwatch import types as t
from satwatch import wire
from satwatch.errors import InvalidBatchError, required
from satwatch.sat.scores import Gated
from satwatch.server.compute import Selection, Selector, score
from satwatch.server.ledger import Ledger
from satwatch.server.recording import Origin, Recording
from satwatch.server.runs import Run, RunRegistry
from satwatch.server.stats import Account
from satwatch.server.traffic import Traffic
from satwatch.v1 import satwatch_pb2 as pb

logger = logging.getLogger(__name__)

# Up to this size a batch is read and computed on the event loop: a thread's hop would cost more than it frees.
INLINE_BYTES: Final = 1 << 19

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Judged:
    """A batch under its rule."""

    selection: Selection
    seconds: float
    reply: t.BoundsReply
    account: Account


class Answers:
    """The answers of one sidecar; for one event loop."""

    def __init__(
        self,
        info: t.ServerInfo,
        registry: RunRegistry,
        selector: Selector,
        ledger: Ledger,
        traffic: Traffic,
        *,
        recording: Recording | None = None,
        clock: Callable[[], float] = time.perf_counter,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Answer from these parts.

        Args:
            info: what the sidecar is.
            registry: the runs.
            selector: selects q.
            ledger: accounts for what was answered.
            traffic: counts.
            recording: tells the history; None: it is off.
            clock: seconds of work, upwards.
            wall: Unix time in seconds.
        """
        self._info = info
        self._registry = registry
        self._selector = selector
        self._ledger = ledger
        self._recording = recording or Recording(None)
        self._traffic = traffic
        self._clock = clock
        self._wall = wall
        self._pool = ThreadPoolExecutor(1, "satwatch-compute")

    @property
    def max_message_bytes(self) -> int:
        """The largest request that is answered."""
        return self._info.max_message_bytes

    def close(self) -> None:
        """End the thread that computes large batches."""
        self._pool.shutdown()

    async def open_run(self, data: bytes) -> bytes:
        """Answer OpenRun."""
        opening = wire.decode_opening(wire.parse(pb.OpenRunRequest, data))
        run, change = self._registry.open(opening)
        if change != "none":
            logger.info(
                "Run %r is open (%s), incarnation %r, %s.", run.name, change, run.incarnation, _described(run.rule)
            )
        self._ledger.post(partial(self._recording.opened, Origin.of(run, self._wall())))
        server = wire.encode_server_info(self._info)
        return pb.OpenRunResponse(rule=wire.encode_rule(run.rule), server=server).SerializeToString()

    async def publish_version(self, data: bytes) -> bytes:
        """Answer PublishVersion."""
        message = wire.parse(pb.PublishVersionRequest, data)
        age = wire.read_age("age_seconds", message.age_seconds)
        previous = self._registry.publish(message.run, message.incarnation, message.version, age)
        if previous != message.version:
            run = self._registry.find(message.run, message.incarnation)
            origin = Origin.of(run, self._wall())
            self._ledger.post(partial(self._recording.published, origin, message.version, age))
        return pb.PublishVersionResponse(previous_version=previous).SerializeToString()

    async def report_step(self, data: bytes) -> bytes:
        """Answer ReportStep.

        Raises:
            InvalidBatchError: a report that can't be meant.
            UnknownRunError: a run that is not open.
        """
        report = wire.decode_step_report(wire.parse(pb.ReportStepRequest, data))
        run = self._registry.find(report.run, report.incarnation)
        run.check_rank(report.rank)
        origin = self._heard(run, report.rank)
        await self._ledger.room(0)
        self._ledger.post(partial(self._recording.report, origin, report))
        return pb.ReportStepResponse().SerializeToString()

    async def close_run(self, data: bytes) -> bytes:
        """Answer CloseRun.

        Raises:
            InvalidBatchError: a rank outside the run's world.
            UnknownRunError: a run that is not open.
        """
        message = wire.parse(pb.CloseRunRequest, data)
        run, ends = self._registry.close(message.run, message.incarnation, message.rank)
        if ends:
            logger.info("Run %r has ended, incarnation %r: all ranks have closed it.", run.name, run.incarnation)
            self._ledger.post(partial(self._recording.closed, Origin.of(run, self._wall())))
        return pb.CloseRunResponse().SerializeToString()

    async def get_server_info(self, data: bytes) -> bytes:
        """Answer GetServerInfo."""
        wire.parse(pb.GetServerInfoRequest, data)
        runs = [wire.encode_run_info(run.info()) for run in self._registry.runs()]
        return pb.GetServerInfoResponse(server=wire.encode_server_info(self._info), runs=runs).SerializeToString()

    async def compute_bounds(self, data: bytes) -> bytes:
        """Answer ComputeBounds."""
        reply = await self.bound(await self.parse(pb.ComputeBoundsRequest, data), len(data))
        return wire.encode_reply(reply).SerializeToString()

    async def parse(self, message: type[M], data: bytes) -> M:
        """Parse a message that may be large.

        Raises:
            InvalidBatchError: the bytes are not such a message.
        """
        return await self._do(len(data) <= INLINE_BYTES, wire.parse, message, data)

    async def bound(self, message: pb.ComputeBoundsRequest, size: int) -> t.BoundsReply:
        """Bound one batch, and account for it.

        Args:
            message: the batch and where it belongs.
            size: its bytes on the wire.

        Raises:
            InvalidBatchError: a batch that can't be meant, or one above a limit.
            UnknownRunError: a run that is not open.
        """
        small = size <= INLINE_BYTES
        request = await self._do(small, wire.decode_request, message)
        batch = self._admit(request)
        run = self._registry.find(request.run, request.incarnation)
        run.check_rank(request.rank)
        window = self._registry.place(run, request)
        origin = self._heard(run, request.rank)
        here = small and self._selector.device.type == "cpu"
        judged = await self._do(here, self._judge, request, batch, run.applied_rule, window)
        self._traffic.computed(judged.selection, judged.seconds)
        # A client that leaves while it waits has not been answered, and its batch is not counted either.
        await self._ledger.room(batch.tokens)
        told = run.client_fallbacks
        if self._registry.count(run, request, batch.tokens, judged.reply.quantile_reference):
            self._enter(origin, judged.account, run.client_fallbacks - told)
        return judged.reply

    def _enter(self, origin: Origin, account: Account, fallbacks: int) -> None:
        if fallbacks:  # rare; what was computed of the batch is computed again
            account = replace(account, client_fallbacks=fallbacks)
        self._ledger.enter(origin.stats, account, partial(self._recording.batch, origin, account))

    def _heard(self, run: Run, rank: int) -> Origin:
        """Return where a rank's message belongs that has just come.

        What was on its way when its run ended does not open it again, for that is told of here, and in this order.
        """
        reopens, origin = self._registry.hear(run, rank), Origin.of(run, self._wall())
        if reopens:
            logger.info("Run %r goes on after its end, incarnation %r.", run.name, run.incarnation)
            self._ledger.post(partial(self._recording.reopened, origin))
        return origin

    async def _do(self, here: bool, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Work here, on the event loop, or in the thread for what would hold it up."""
        if here:
            return work(*args, **kwargs)
        return await asyncio.wrap_future(self._pool.submit(work, *args, **kwargs))

    def _admit(self, request: t.BoundsRequest) -> t.TokenBatch:
        """Return the batch, if it is one that this sidecar takes."""
        batch = request.batch
        if isinstance(batch, t.PackedSketch):
            raise InvalidBatchError(required("batch", "a sketch", "tokens: this version takes no sketches"))
        if batch.tokens > self._info.max_tokens:
            came, limit = f"{batch.tokens} tokens", f"at most {self._info.max_tokens} (max_tokens)"
            raise InvalidBatchError(required("log_ratio", came, limit))
        for layer in request.routing.layers if request.routing else ():
            if layer.layer >= wire.MAX_LAYERS:
                raise InvalidBatchError(
                    required("routing.layers", f"layer {layer.layer}", f"0 to {wire.MAX_LAYERS - 1}")
                )
        return batch

    def _judge(self, request: t.BoundsRequest, batch: t.TokenBatch, rule: t.Rule, window: int) -> Judged:
        started = self._clock()
        scores = score(batch, rule)
        selection = self._selector.select(scores)
        q = selection.quantile_reference
        account = Account(request, batch, scores, q, window)
        low, high = (t.GatedTokens(),) * 2 if request.rule_only else map(_gated_tokens, scores.gated(q))
        reply = t.BoundsReply(
            rule=rule,
            quantile_reference=None if math.isnan(q) else q,
            tokens=batch.tokens,
            gated_low=low,
            gated_high=high,
            diagnostics=account.summary.diagnostics() if request.with_diagnostics else None,
        )
        return Judged(selection, self._clock() - started, reply, account)


def _described(rule: t.Rule) -> str:
    """Return a rule as a person reads it."""
    return (
        f"quantile={rule.quantile:g} eps={rule.eps_low:g}/{rule.eps_high:g} exponent={rule.exponent:g} "
        f"level={rule.level} scope={rule.scope} min_reference={rule.min_reference:g}{'' if rule.enabled else ' off'}"
    )


def _gated_tokens(gated: Gated) -> t.GatedTokens:
    return t.GatedTokens(tuple(gated.index.tolist()), tuple(gated.factor.tolist()))
