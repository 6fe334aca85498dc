"""Watching: the watcher in a thread of its own, so that nothing of it slows whoever it watches for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

from satwatch.probe.http.discovery import Discovery
from satwatch.probe.http.engine import Engine
from satwatch.probe.settings import ProbeSettings
from satwatch.probe.watcher import Exchange, Watcher, nothing_known

__all__ = ["Exchange", "Watcher", "nothing_known", "watching"]


@contextmanager
def watching(
    settings: ProbeSettings,
    exchange: Exchange = nothing_known,
    *,
    discovery: Discovery | None = None,
    connect: Callable[[str], Engine] | None = None,
) -> Iterator[Watcher]:
    """Watch engines in a thread with an event loop of its own until the block ends.

    Leaving ends what is in flight and waits for no engine; an exchange in flight is waited for.

    Args:
        settings: as :class:`Watcher`'s, and so the others.
        exchange: called in another thread yet.
        discovery: which engines there are.
        connect: makes an engine of a URL.

    Raises:
        ConfigError: as :class:`Watcher`.
    """
    watcher = Watcher(settings, exchange, discovery=discovery, connect=connect)
    ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()

    async def main() -> None:
        task = asyncio.create_task(watcher.run())
        ready.set_result((asyncio.get_running_loop(), task))
        with suppress(asyncio.CancelledError):
            await task

    with ThreadPoolExecutor(1, "satwatch-probe") as thread:
        finished = thread.submit(asyncio.run, main())
        loop, task = ready.result()
        try:
            yield watcher
        finally:
            with suppress(RuntimeError):  # its loop is closed: it has ended by itself, and says why
                loop.call_soon_threadsafe(task.cancel)
            finished.result()
