"""An engine over HTTP, whichever it is: found out at the first look, and again after one that failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import httpx

from satwatch.probe.address import engine_name
from satwatch.probe.http.fetch import Fetcher, FetchError
from satwatch.probe.http.keys import NO_KEYS, EngineKeys
from satwatch.probe.http.scores import Scores
from satwatch.probe.http.sglang import SGLang
from satwatch.probe.http.vllm import VLLM
from satwatch.probe.snapshot import CanaryAnswer, EngineSnapshot, Problem
from satwatch.types import Canary

__all__ = ["Engine", "HttpEngine", "engine_name"]


class Engine(Protocol):
    """One engine that can be looked at, over HTTP or in this process."""

    @property
    def name(self) -> str:
        """The engine's name, without keys and credentials."""

    async def look(self) -> EngineSnapshot:
        """Look once; an engine's faults are the snapshot's ``problem``, and are never raised."""

    async def score(self, canary: Canary) -> CanaryAnswer:
        """Have it score a canary.

        Raises:
            ProbeError: it can't, or it answered something else.
        """

    async def checksum(self) -> str | None:
        """Return the checksum of its weights; None: it doesn't grant one, or has none.

        Raises:
            ProbeError: it failed to compute it.
        """

    async def close(self) -> None:
        """Let go of it."""


class Dialect(Protocol):
    """How one kind of engine is asked."""

    async def look(self, name: str) -> EngineSnapshot | None:
        """Look once; None: another kind answers there."""

    async def score(self, canary: Canary, timeout: float) -> Scores:
        """Have it score a canary."""

    async def checksum(self, timeout: float) -> str | None:
        """Return the checksum of its weights, if it grants one."""


class HttpEngine:
    """One engine over HTTP, SGLang or vLLM."""

    def __init__(
        self,
        url: str,
        *,
        keys: EngineKeys = NO_KEYS,
        timeout: float = 2.0,
        canary_timeout: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Make one; nothing is sent yet.

        Args:
            url: http://HOST:PORT, or https, with a path in front of its pages if it has one.
            keys: of the engine.
            timeout: for a page, seconds; a look takes two or three of them at most.
            canary_timeout: for a canary or a checksum, seconds.
            clock: the probe's, seconds.
            transport: instead of the network, for tests.

        Raises:
            ConfigError: a URL that can't be meant; the message names ``engine``.
        """
        self._name = engine_name(url)
        self._fetcher = Fetcher(url, keys=keys, timeout=timeout, transport=transport)
        self._canary_timeout = canary_timeout
        self._clock = clock
        self._kinds: tuple[Dialect, ...] = (SGLang(self._fetcher), VLLM(self._fetcher))
        self._known: Dialect | None = None

    @property
    def name(self) -> str:
        """Host and port."""
        return self._name

    async def look(self) -> EngineSnapshot:
        """Look once; an engine's faults are the snapshot's ``problem``."""
        began = self._clock()
        try:
            snapshot = self._clean(await self._look())
        except FetchError as failure:
            self._known = None
            snapshot = EngineSnapshot(self._name, at=0.0, problem=failure.problem)
        ended = self._clock()
        return replace(snapshot, at=ended, took=ended - began)

    async def score(self, canary: Canary) -> CanaryAnswer:
        """Have it score a canary.

        Raises:
            ProbeError: it can't, or it answered something else.
        """
        kind = await self._kind()
        began = self._clock()
        scores = await kind.score(canary, self._canary_timeout)
        ended = self._clock()
        return CanaryAnswer(ended, self._hidden(scores.version_label), scores.logprobs, ended - began)

    async def checksum(self) -> str | None:
        """Return the checksum of its weights; None: it doesn't grant one, or has none.

        Raises:
            ProbeError: it failed to compute it.
        """
        kind = await self._kind()
        return self._hidden(await kind.checksum(self._canary_timeout))

    async def close(self) -> None:
        """Close the connections."""
        await self._fetcher.close()

    async def _kind(self) -> Dialect:
        if self._known is None:
            await self._look()
        return self._known or self._kinds[0]

    async def _look(self) -> EngineSnapshot:
        # The kind that answered last is asked first; after a failure another may come back on that port.
        for kind in sorted(self._kinds, key=lambda kind: kind is not self._known):
            snapshot = await kind.look(self._name)
            if snapshot is not None:
                self._known = kind
                return snapshot
        raise FetchError(Problem("garbage", "neither SGLang's /model_info nor vLLM's /version is there"))

    def _clean(self, snapshot: EngineSnapshot) -> EngineSnapshot:
        """Strike the keys out of whatever the engine calls itself."""
        return replace(
            snapshot,
            release=self._hidden(snapshot.release),
            version_label=self._hidden(snapshot.version_label),
            model_path=self._hidden(snapshot.model_path),
        )

    def _hidden(self, text: str | None) -> str | None:
        return None if text is None else self._fetcher.hide(text)
