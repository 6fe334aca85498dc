"""The watcher: rounds of looks at all engines, judged together, told to whoever knows the trainer."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, Self, TypeAlias

from satwatch.probe.http.discovery import Discovery
from satwatch.probe.http.engine import Engine
from satwatch.probe.judge import JudgeConfig, conclude
from satwatch.probe.judge.memory import observe_response
from satwatch.probe.judge.pace import next_look, wants_canary, wants_checksum
from satwatch.probe.roster import Roster
from satwatch.probe.settings import ProbeSettings
from satwatch.probe.watched import Shared, Watched
from satwatch.types import EngineStatus, TrainerFacts, default_canary

Exchange: TypeAlias = Callable[[tuple[EngineStatus, ...]], TrainerFacts]

JITTER: Final = 0.1
# Figures and findings that compare two looks need a second one; `once` takes it after this, or a period if shorter.
SECOND_LOOK_SECONDS: Final = 1.0
# A look is due half a period after the last: rounds come by their own clock, and jitter must not skip one.
_DUE: Final = 0.5
_MAX_RESPONSES: Final = 4096
# Chance from the operating system: probes with one seed would all look at the same moment.
_CHANCE: Final = random.SystemRandom().random


def nothing_known(statuses: tuple[EngineStatus, ...]) -> TrainerFacts:
    """Return what is known of the trainer where nobody can be asked."""
    return TrainerFacts()


class Watcher:
    """Watches engines: looks at all of them every period, judges, tells, and learns what the trainer said.

    A round takes at most the time that a look may take: what is later is taken in when it comes. Nothing that an
    engine, a router or the exchange does ends the watch.

    Args:
        settings: which engines, how often, how politely.
        exchange: takes the statuses and gives what the trainer said; blocking, called in a thread, one call at a time,
            and bound to return by itself.
        discovery: says which engines there are; None: what the settings name.
        connect: makes an engine of a URL; None: over HTTP with the settings' keys.
        clock: the probe's, seconds; the versions that the exchange gives are published on it.
        wall: Unix time, seconds.
        sleep: waits for so many seconds.
        chance: a number from 0 to 1, of the jitter.

    Raises:
        ConfigError: a key file that can't be used, or a URL that can't be meant.
    """

    def __init__(
        self,
        settings: ProbeSettings,
        exchange: Exchange = nothing_known,
        *,
        discovery: Discovery | None = None,
        connect: Callable[[str], Engine] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = _CHANCE,
    ) -> None:
        self._settings, self._exchange = settings, exchange
        self._clock, self._wall, self._sleep, self._chance = clock, wall, sleep, chance
        self._config = JudgeConfig(
            canary_limit=settings.canary_limit,
            canary_pulse_seconds=settings.canary_pulse_seconds,
            max_load=settings.max_load,
            scores_sleepers=settings.score_sleepers,
        )
        self._facts = TrainerFacts()
        self._statuses: tuple[EngineStatus, ...] = ()
        self._responses: deque[tuple[str, float, Mapping[str, Any]]] = deque(maxlen=_MAX_RESPONSES)
        self._shared = Shared(settings, clock, lambda: self._facts)
        self._roster = Roster(self._shared, discovery, connect)
        self._telling: asyncio.Task[None] | None = None
        # Not the loop's threads: names that don't resolve can hold all of those, each for many seconds.
        self._teller = ThreadPoolExecutor(1, "satwatch-exchange")

    @property
    def statuses(self) -> tuple[EngineStatus, ...]:
        """What was last concluded, an engine each."""
        return self._statuses

    def observe(self, engine: str, meta_info: Mapping[str, Any]) -> None:
        """Give the judge a finished response's ``meta_info``: its weight versions are what the engine really served.

        Safe in any thread; taken in with the next round. Of an engine that is not watched it is dropped.
        """
        self._responses.append((engine, self._clock(), meta_info))

    async def once(self) -> tuple[EngineStatus, ...]:
        """Look at every engine, score and check what is wanted, look again, and return what is concluded.

        The second look comes a second after the first, or a period if that is shorter: the queue's figures and some
        findings compare two looks. A canary is due at once here, without the wait that a busy engine is granted.
        """
        await self._roster.find()
        began = self._clock()
        await _all(self._roster.look_at(self._roster.engines))
        await self._tell(wait=True)
        await _all(self._begin_scores(replace(self._config, canary_wait=0.0)))
        pause = min(SECOND_LOOK_SECONDS, self._settings.period_seconds)
        await self._sleep(max(0.0, began + pause - self._clock()))
        await _all(self._roster.look_at(self._roster.engines))
        await self._tell(wait=True)
        return self._statuses

    async def run(self, show: Callable[[tuple[EngineStatus, ...]], None] | None = None) -> None:
        """Make rounds until cancelled; then close.

        Args:
            show: called with the statuses after each round; what it raises ends the watch.
        """
        async with self:
            while True:
                began = self._clock()
                try:
                    await self._round()
                except Exception as error:  # noqa: BLE001 - the watcher's edge: a defect of one round must not end the watch
                    self._shared.defects.report("round", error)
                if show is not None:
                    show(self._statuses)
                jitter = 1 + JITTER * (2 * self._chance() - 1)
                await self._sleep(max(0.0, began + self._settings.period_seconds * jitter - self._clock()))

    async def _round(self) -> None:
        """Look at every engine that is due, and at those that have just been found; conclude and tell."""
        limit = self._settings.timeout_seconds
        known = self._roster.engines
        await asyncio.wait({self._roster.find(), *self._begin_looks(known)}, timeout=limit)
        if fresh := self._begin_looks([watched for watched in self._roster.engines if watched not in known]):
            await asyncio.wait(fresh, timeout=limit)
        self._begin_scores(self._config)
        await self._tell(wait=False)

    def _begin_looks(self, engines: Iterable[Watched]) -> list[asyncio.Task[None]]:
        now, period = self._clock(), self._settings.period_seconds * _DUE
        return self._roster.look_at(watched for watched in engines if self._is_due(watched, now, period))

    def _is_due(self, watched: Watched, now: float, period: float) -> bool:
        if watched.is_at("look"):
            return False
        try:
            return next_look(now, watched.memory, period, self._config) <= now
        except Exception as error:  # noqa: BLE001 - as in run; looked at every round then, as an engine without memory is
            self._shared.defects.report("pace", error)
            return True

    def _begin_scores(self, config: JudgeConfig) -> list[asyncio.Task[None]]:
        """Begin the canaries and checksums that are wanted."""
        self._take_responses()
        begun: list[asyncio.Task[None]] = []
        for watched in self._roster.engines:
            try:
                begun += self._begin_scores_of(watched, config)
            except Exception as error:  # noqa: BLE001 - as in run
                self._shared.defects.report("pace", error)
        return begun

    def _begin_scores_of(self, watched: Watched, config: JudgeConfig) -> Iterator[asyncio.Task[None]]:
        now, facts, memory = self._clock(), self._facts, watched.memory
        canary = facts.canary or default_canary()
        if self._settings.canary and not watched.is_at("canary") and wants_canary(now, memory, canary, facts, config):
            yield watched.score(canary)
        if self._settings.checksum and not watched.is_at("checksum") and wants_checksum(now, memory, config):
            yield watched.check()

    def _take_responses(self) -> None:
        by_name = {watched.engine.name: watched for watched in self._roster.engines}
        while self._responses:
            name, at, meta_info = self._responses.popleft()
            if (watched := by_name.get(name)) is not None:
                watched.take("judgement of a response", observe_response, at, meta_info)

    async def _tell(self, *, wait: bool) -> None:
        """Conclude and exchange; a slow exchange is left to itself, and the next one begins when it is done."""
        self._take_responses()
        self._statuses = self._conclude()
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._exchange_facts(), name="exchange")
        limit = min(self._settings.timeout_seconds, self._settings.period_seconds / 2)
        await asyncio.wait({self._telling}, timeout=None if wait else limit)

    async def _exchange_facts(self) -> None:
        """Tell the statuses and learn the trainer's facts; news are judged at once, not a period later."""
        for _ in range(2):
            before, loop = _gist(self._facts), asyncio.get_running_loop()
            try:
                self._facts = await loop.run_in_executor(self._teller, self._exchange, self._statuses)
            except Exception as error:  # noqa: BLE001 - the exchange is another's code, and no reason to end the watch
                self._shared.defects.report("exchange", error)
                return
            if _gist(self._facts) == before:
                return
            self._statuses = self._conclude()

    def _conclude(self) -> tuple[EngineStatus, ...]:
        """Judge all engines together, or each by itself if the judge fails: one oddity hides one engine."""
        engines = self._roster.engines
        sound = [watched for watched in engines if not watched.defect]
        try:
            statuses = self._judge(sound)
        except Exception as error:  # noqa: BLE001 - as in run
            reason = self._shared.defects.report("judgement", error)
            statuses = tuple(status for watched in sound for status in self._judge_alone(watched, reason))
        unsound = tuple(EngineStatus(w.engine.name, reason=w.defect) for w in engines if w.defect)
        return tuple(sorted(statuses + unsound, key=lambda status: status.engine))

    def _judge(self, engines: Iterable[Watched]) -> tuple[EngineStatus, ...]:
        now = self._clock()
        memories = {watched.engine.name: watched.memory for watched in engines}
        return conclude(now, memories, self._facts, self._config, wall=self._wall() - now)

    def _judge_alone(self, watched: Watched, reason: str) -> tuple[EngineStatus, ...]:
        try:
            return self._judge([watched])
        except Exception:  # noqa: BLE001 - as in run; said by the caller
            return (EngineStatus(watched.engine.name, reason=reason),)

    async def close(self) -> None:
        """End what is in flight, and close every connection."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
        await self._roster.close()
        self._teller.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()


async def _all(tasks: list[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)


def _gist(facts: TrainerFacts) -> tuple[object, ...]:
    """Return what of the facts would be judged otherwise; ages that crossed a wire differ a little every time."""
    return facts.run, facts.version_published, facts.canary, tuple(scores.version for scores in facts.canaries)
