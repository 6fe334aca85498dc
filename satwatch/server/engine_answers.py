"""What the sidecar answers probes, trainers that score canaries, and watchers of the engines; bytes in, bytes out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from satwatch import wire
from satwatch.errors import InvalidBatchError, OverloadedError, required
from satwatch.server.engines import OWN_PROBE, EngineBoard
from satwatch.server.runs import RunRegistry
from satwatch.types import EngineStatus, TrainerFacts
from satwatch.v1 import satwatch_pb2 as pb

# A person reads no faster, and a fleet's probes report several times a second.
WATCH_SECONDS: Final = 0.5
# A few dashboards watch. More would be at the trainers' cost: each change is news to all, and each stream takes the
# place of a request.
MAX_WATCHERS: Final = 64
# More engines than this are read and written in a thread: on the event loop they would hold up a trainer's batch.
INLINE_ENGINES: Final = 64

T = TypeVar("T")
R = TypeVar("R")


class EngineAnswers:
    """The answers of one sidecar that are about engines."""

    def __init__(
        self,
        registry: RunRegistry,
        board: EngineBoard,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        watch_seconds: float = WATCH_SECONDS,
    ) -> None:
        """Answer from these parts.

        Args:
            registry: the runs.
            board: the engines.
            clock: the clock of both, seconds.
            wall: Unix time in seconds.
            watch_seconds: the least time between two answers to one watcher.
        """
        self._registry = registry
        self._board = board
        self._clock = clock
        self._wall = wall
        self._watch_seconds = watch_seconds
        self._letter = Letter()

    async def report_canary(self, data: bytes) -> bytes:
        """Answer ReportCanary."""
        message = wire.parse(pb.ReportCanaryRequest, data)
        scores = wire.decode_canary_scores(message.scores)
        self._registry.report_canary(message.run, message.incarnation, scores)
        return pb.ReportCanaryResponse().SerializeToString()

    async def report_engines(self, data: bytes) -> bytes:
        """Answer ReportEngines.

        Raises:
            InvalidBatchError: the name of the sidecar's own probe, whose engines it would replace, or what
                :func:`wire.decode_report` refuses.
        """
        message = wire.parse(pb.ReportEnginesRequest, data)
        report = await _do(len(message.engines), wire.decode_report, message)
        if report.probe == OWN_PROBE:
            raise InvalidBatchError(required("probe", repr(OWN_PROBE), "another name: the sidecar's own probe has it"))
        facts = self.exchange(report.probe, report.engines, report.period_seconds, report.run)
        facts_message = wire.encode_facts(facts, self._clock())
        return pb.ReportEnginesResponse(facts=facts_message).SerializeToString()

    def exchange(self, probe: str, statuses: tuple[EngineStatus, ...], period: float, run: str) -> TrainerFacts:
        """Take what a probe says, and return what the trainer of its engines has told; safe from any thread."""
        facts = self._registry.facts(run)
        self._board.report(probe, statuses, period, facts.run)
        return facts

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """Watch the engines inside the block, from the running event loop."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it the watcher
                loop.call_soon_threadsafe(news.set)

        self._letter.readers += 1
        try:
            with self._board.waking(wake):
                yield Watch(self._board, news, self._wall, self._watch_seconds, self._letter)
        finally:
            self._letter.readers -= 1


class Letter:
    """What all watchers are told of a change, written once; for one event loop.

    Attributes:
        readers: how many watch.
    """

    def __init__(self) -> None:
        """Have written nothing yet."""
        self.readers = 0
        self._said: tuple[EngineStatus, ...] | None = None
        self._written: asyncio.Future[bytes] | None = None

    async def write(self, statuses: tuple[EngineStatus, ...]) -> bytes:
        """Return the engines as a message without its moment."""
        if self._written is None or self._said != statuses:
            self._said, self._written = statuses, asyncio.ensure_future(_do(len(statuses), _written, statuses))
        # Of several who wait for it one may leave.
        return await asyncio.shield(self._written)


def _written(statuses: tuple[EngineStatus, ...]) -> bytes:
    return pb.WatchEnginesResponse(engines=wire.encode_statuses(statuses)).SerializeToString()


class Watch:
    """One watcher of the engines; for one event loop."""

    def __init__(
        self, board: EngineBoard, news: asyncio.Event, wall: Callable[[], float], seconds: float, letter: Letter
    ) -> None:
        """Have said nothing yet.

        Args:
            board: the engines.
            news: set when something may have changed.
            wall: Unix time in seconds.
            seconds: the least time between two answers.
            letter: what other watchers are told too.
        """
        self._board = board
        self._news = news
        self._wall = wall
        self._seconds = seconds
        self._letter = letter
        self._run = ""
        self._said: tuple[EngineStatus, ...] = ()

    async def first(self, data: bytes) -> bytes:
        """Answer WatchEngines with the engines as they are.

        Raises:
            OverloadedError: others watch already, as many as may.
        """
        if self._letter.readers > MAX_WATCHERS:
            raise OverloadedError(required("watchers", self._letter.readers, f"at most {MAX_WATCHERS} at once"))
        self._run = wire.parse(pb.WatchEnginesRequest, data).run
        self._news.clear()
        return await self._say(self._board.statuses(self._run))

    async def next(self) -> bytes:
        """Wait until the engines are not what was said last; several changes at once are one answer."""
        await asyncio.sleep(self._seconds)
        while True:
            self._news.clear()
            statuses = self._board.statuses(self._run)
            if statuses != self._said:
                return await self._say(statuses)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), self._board.expires_in())

    async def _say(self, statuses: tuple[EngineStatus, ...]) -> bytes:
        self._said = statuses
        engines = await self._letter.write(statuses)
        # Messages one after the other are one message.
        return engines + pb.WatchEnginesResponse(at=self._wall()).SerializeToString()


async def _do(engines: int, work: Callable[[T], R], value: T) -> R:
    """Work here, or, for many engines, in a thread."""
    return work(value) if engines <= INLINE_ENGINES else await asyncio.to_thread(work, value)
