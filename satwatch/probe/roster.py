"""Which engines are watched: those that a discovery names, connected when they come and closed when they go."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from typing import Final

from satwatch.errors import ConfigError, ProbeError
from satwatch.probe.http.discovery import Discoveries, Discovery, FileEngines, ListedEngines, RouterEngines
from satwatch.probe.http.engine import Engine, HttpEngine
from satwatch.probe.http.keys import EngineKeys, read_keys
from satwatch.probe.settings import ProbeSettings
from satwatch.probe.watched import Shared, Watched

logger = logging.getLogger(__name__)

# Looks begun together, and the pause before the next ones: each takes some milliseconds of this process.
TOGETHER: Final = 4
GAP_SECONDS: Final = 0.025


class Roster:
    """The engines that are watched, by the URL that named each.

    Args:
        shared: what they have in common.
        discovery: as :class:`satwatch.probe.watch.Watcher`'s.
        connect: likewise.

    Raises:
        ConfigError: as :class:`satwatch.probe.watch.Watcher`.
    """

    def __init__(
        self, shared: Shared, discovery: Discovery | None = None, connect: Callable[[str], Engine] | None = None
    ) -> None:
        self._shared = shared
        keys = _keys(shared.settings)
        self._connect = connect or _connector(shared, keys)
        # Around whatever there is: it says once when a way fails, and when it works again.
        self._discovery = Discoveries([discovery] if discovery else _discoveries(shared.settings, keys))
        self._watched: dict[str, Watched] = {}
        self._finding: asyncio.Task[None] | None = None
        self._left_out = 0
        self._refused: set[str] = set()

    @property
    def engines(self) -> tuple[Watched, ...]:
        """All of them, in the order in which they were named."""
        return tuple(self._watched.values())

    def look_at(self, engines: Iterable[Watched]) -> list[asyncio.Task[None]]:
        """Begin a look at each, a few at a time.

        A look's time is taken for what it costs the engine. Were all begun at once, each would wait for the others in
        this process, and engines would be looked at less often than they could bear.
        """
        due = list(engines)
        settings = self._shared.settings
        groups = max(1, -(-len(due) // TOGETHER))
        gap = min(GAP_SECONDS, min(settings.period_seconds, settings.timeout_seconds) / 2 / groups)
        return [watched.look(after=i // TOGETHER * gap) for i, watched in enumerate(due)]

    def find(self) -> asyncio.Task[None]:
        """Ask which engines there are, in the background, once at a time."""
        if self._finding is None or self._finding.done():
            self._finding = asyncio.create_task(self._find(), name="discovery")
        return self._finding

    async def _find(self) -> None:
        # Each way of discovery has its own timeout; this is for one that has none.
        limit = 2 * self._shared.settings.timeout_seconds
        try:
            async with asyncio.timeout(limit):
                urls = await self._discovery.urls()
        except (ProbeError, TimeoutError):
            return  # said by Discoveries; the engines known are watched on
        except Exception as error:  # noqa: BLE001 - the watcher's edge: as above
            self._shared.defects.report("discovery", error)
            return
        await self._update(tuple(dict.fromkeys(urls)))

    async def _update(self, urls: tuple[str, ...]) -> None:
        """Watch these and no others."""
        gone = [self._watched.pop(url) for url in self._watched.keys() - set(urls)]
        self._refused &= set(urls)
        await asyncio.gather(*(watched.close() for watched in gone))
        left_out = 0
        for url in urls:
            if url in self._watched or url in self._refused:
                continue
            if len(self._watched) >= self._shared.settings.max_engines:
                left_out += 1
            else:
                await self._add(url)
        if left_out and not self._left_out:
            most = self._shared.settings.max_engines
            logger.warning("More engines than max_engines: %d are watched, %d are left out.", most, left_out)
        self._left_out = left_out

    async def _add(self, url: str) -> None:
        try:
            engine = self._connect(url)
        except ConfigError as error:
            self._refused.add(url)
            logger.warning("An engine is left out: %s", error)
            return
        if any(watched.engine.name == engine.name for watched in self._watched.values()):
            self._refused.add(url)
            logger.warning("An engine is named twice and watched once: %s", engine.name)
            await engine.close()
            return
        self._watched[url] = Watched(engine, self._shared)

    async def close(self) -> None:
        """End all that is in flight, and close every connection."""
        if self._finding is not None:
            self._finding.cancel()
            await asyncio.gather(self._finding, return_exceptions=True)
        await asyncio.gather(*(watched.close() for watched in self._watched.values()))
        self._watched.clear()


def _discoveries(settings: ProbeSettings, keys: EngineKeys) -> list[Discovery]:
    """Return what finds the engines that the settings name."""
    several: list[Discovery] = []
    if settings.engines:
        several.append(ListedEngines(settings.engines))
    if settings.engines_file is not None:
        several.append(FileEngines(settings.engines_file))
    if settings.router is not None:
        several.append(RouterEngines(settings.router, keys, settings.timeout_seconds))
    return several


def _connector(shared: Shared, keys: EngineKeys) -> Callable[[str], Engine]:
    settings = shared.settings

    def connect(url: str) -> Engine:
        return HttpEngine(
            url,
            keys=keys,
            timeout=settings.timeout_seconds,
            canary_timeout=settings.canary_timeout_seconds,
            clock=shared.clock,
        )

    return connect


def _keys(settings: ProbeSettings) -> EngineKeys:
    return read_keys(settings.api_key_file, settings.admin_key_file, os.environ)
