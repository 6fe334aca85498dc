"""One engine while it is watched: its looks, canaries and checksums as tasks, and the memory that they fill."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Concatenate, Final, ParamSpec

from satwatch.errors import ProbeError
from satwatch.probe.http.engine import Engine
from satwatch.probe.judge.memory import (
    EngineMemory,
    observe,
    observe_canary,
    observe_canary_failure,
    observe_checksum,
)
from satwatch.probe.settings import ProbeSettings
from satwatch.probe.snapshot import EngineSnapshot, Problem, ProblemKind
from satwatch.types import Canary, TrainerFacts

logger = logging.getLogger(__name__)

P = ParamSpec("P")

AT_ONCE: Final = 32
# By then it is no page that failed, but what the engine says.
_LOOKS_TO_SAY: Final = 3
_CLOSE_SECONDS: Final = 1.0


class Defects:
    """Faults of the probe's own: each kind is logged once, with its traceback, and the watch goes on."""

    def __init__(self) -> None:
        self._said: set[tuple[str, type[Exception]]] = set()

    def report(self, where: str, error: Exception) -> str:
        """Log a fault if its kind is new, and return what to say of it: its kind, for its text may hold anything."""
        kind = (where, type(error))
        if kind not in self._said:
            self._said.add(kind)
            logger.error("A defect of the probe, in its %s: please report it.", where, exc_info=error)
        return f"a defect of the probe, in its {where}: {type(error).__name__}"


@dataclass(frozen=True, slots=True)
class Shared:
    """What the watched engines of one watcher have in common.

    Attributes:
        settings: the probe's.
        clock: seconds, the probe's.
        facts: what the trainer has said, as of now.
        defects: where faults of the probe's own go.
        looks: bounds the looks in flight.
        retries: bounds those at engines that failed, apart: of two hundred that hang, none keeps a sound one waiting.
        scores: bounds the canaries and checksums in flight, apart: a canary takes longer.
    """

    settings: ProbeSettings
    clock: Callable[[], float]
    facts: Callable[[], TrainerFacts]
    defects: Defects = field(default_factory=Defects)
    looks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    retries: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    scores: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))


class Watched:
    """An engine and what is remembered of it.

    Attributes:
        memory: what the judge remembers.
        defect: the fault of the probe's own that keeps the engine from being judged; empty: none.
    """

    def __init__(self, engine: Engine, shared: Shared) -> None:
        self.engine = engine
        self.memory = EngineMemory.new(engine.name)
        self.defect = ""
        self._shared = shared
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._sleepy_looks = 0

    def look(self, after: float = 0.0) -> asyncio.Task[None]:
        """Look in the background, so many seconds from now; one look at a time."""
        return self._begin("look", lambda: self._look(after))

    def score(self, canary: Canary) -> asyncio.Task[None]:
        """Have the canary scored in the background; one at a time."""
        return self._begin("canary", lambda: self._score(canary))

    def check(self) -> asyncio.Task[None]:
        """Ask for the weights' checksum in the background; one at a time."""
        return self._begin("checksum", self._check)

    def is_at(self, what: str) -> bool:
        """Tell whether a look, a canary or a checksum is in flight."""
        task = self._tasks.get(what)
        return task is not None and not task.done()

    def take(
        self,
        where: str,
        learn: Callable[Concatenate[EngineMemory, P], EngineMemory],
        *told: P.args,
        **named: P.kwargs,
    ) -> None:
        """Let the memory learn; a judge that fails starts again with an empty one, and says so."""
        try:
            self.memory, self.defect = learn(self.memory, *told, **named), ""
        except Exception as error:  # noqa: BLE001 - the watcher's edge: one engine's oddity must not end the watch
            self.memory, self.defect = EngineMemory.new(self.engine.name), self._shared.defects.report(where, error)

    async def close(self) -> None:
        """End what is in flight, and the engine's connections."""
        tasks = [task for task in self._tasks.values() if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.engine.close()
        except TimeoutError:
            logger.debug("%s: its connections did not close in time.", self.engine.name)
        except Exception as error:  # noqa: BLE001 - as in take
            self._shared.defects.report("closing", error)

    def _begin(self, what: str, work: Callable[[], Coroutine[None, None, None]]) -> asyncio.Task[None]:
        if not self.is_at(what):
            self._tasks[what] = asyncio.create_task(work(), name=f"{what} {self.engine.name}")
        return self._tasks[what]

    async def _look(self, after: float) -> None:
        if after:
            await asyncio.sleep(after)
        async with self._shared.retries if self.memory.failures else self._shared.looks:
            snapshot = await self._snapshot()
        self._say_what_is_left_out(snapshot)
        self.take("judgement of a look", observe, snapshot, self._shared.facts())

    def _say_what_is_left_out(self, snapshot: EngineSnapshot) -> None:
        settings = self._shared.settings
        if not snapshot.may_sleep or settings.score_sleepers or not (settings.canary or settings.checksum):
            return
        self._sleepy_looks += 1
        if self._sleepy_looks == _LOOKS_TO_SAY:
            why = "a trainer may take its memory away between rollouts, and a request in that moment would end it"
            logger.warning("%s is not asked for canaries and checksums: %s (score_sleepers).", self.engine.name, why)

    async def _snapshot(self) -> EngineSnapshot:
        """Return what the engine says; whatever goes wrong is its problem."""
        began, limit = self._shared.clock(), self._shared.settings.timeout_seconds
        kind: ProblemKind = "failing"
        try:
            async with asyncio.timeout(limit):
                return await self.engine.look()
        except TimeoutError:
            kind, message = "timeout", f"no answer within {limit:g} s"
        except Exception as error:  # noqa: BLE001 - as in take
            message = self._shared.defects.report("look", error)
        now = self._shared.clock()
        return EngineSnapshot(self.engine.name, now, now - began, Problem(kind, message))

    async def _score(self, canary: Canary) -> None:
        limit = self._shared.settings.canary_timeout_seconds
        async with self._shared.scores:
            try:
                async with asyncio.timeout(limit):
                    answer = await self.engine.score(canary)
            except TimeoutError:
                failure = f"no answer within {limit:g} s"
            except ProbeError as error:
                failure = str(error)
            except Exception as error:  # noqa: BLE001 - as in take
                failure = self._shared.defects.report("canary", error)
            else:
                self.take("judgement of a canary", observe_canary, canary, answer, self._shared.facts())
                return
        self.take("judgement of a canary", observe_canary_failure, self._shared.clock(), failure)

    async def _check(self) -> None:
        """Ask for the checksum; one that can't be had is as one that is not granted: asked for at the next version."""
        began, limit = self._shared.clock(), self._shared.settings.canary_timeout_seconds
        checksum = None
        async with self._shared.scores:
            try:
                async with asyncio.timeout(limit):
                    checksum = await self.engine.checksum()
            except (ProbeError, TimeoutError) as error:
                logger.debug("%s: no checksum: %s", self.engine.name, error)
            except Exception as error:  # noqa: BLE001 - as in take
                self._shared.defects.report("checksum", error)
        now = self._shared.clock()
        self.take("judgement of a checksum", observe_checksum, now, checksum, now - began)
