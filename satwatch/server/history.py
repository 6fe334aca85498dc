"""A sidecar's history, of its parts: the recorder, what it is told, and what is answered about it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from satwatch.alerts.standing import resolved
from satwatch.history import EventSeen, Recorder, RecorderStats
from satwatch.server.engine_recording import EngineRecording
from satwatch.server.engines import EngineBoard
from satwatch.server.history_answers import HistoryAnswers
from satwatch.server.judging import RESTARTED
from satwatch.server.ledger import Ledger
from satwatch.server.recording import Recording
from satwatch.server.resuming import Past, engine_alerts, orphaned_alerts, resumed_lives
from satwatch.server.runs import RunRegistry
from satwatch.server.settings import Settings
from satwatch.server.storing import is_file, opened_store
from satwatch.types import RunRecord

logger = logging.getLogger(__name__)

# How often open steps are told of, and silence is looked for.
TICK_SECONDS: Final = 1.0
# How long a shutdown waits for what is not stored yet; a database that is gone is not waited for.
_CLOSE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ServedHistory:
    """The history of one sidecar.

    Attributes:
        recording: what it is told.
        engines: what it is told of engines; None: it is off.
        answers: what is answered about it; None: it is off.
        stats: how the writing goes; None while there is none.
        url: where it is, without a password; empty: it is off.
    """

    recording: Recording
    engines: EngineRecording | None = None
    answers: HistoryAnswers | None = None
    stats: Callable[[], RecorderStats | None] = lambda: None
    url: str = ""


@contextmanager
def keeping_history(settings: Settings) -> Iterator[ServedHistory]:
    """Keep a history until the block ends; then write what is left of it.

    Raises:
        ConfigError: a store that can't be opened.
    """
    with ExitStack() as stack:
        store = stack.enter_context(opened_store(settings.store, settings.listen[0]))
        if store is None:
            yield ServedHistory(Recording(None, step_timeout=settings.history.step_timeout_seconds))
            return
        recorder = Recorder(store, settings.history.limits)
        stack.callback(recorder.close, _CLOSE_SECONDS)
        resumed, is_shared = resumed_lives(store), not is_file(store.url)
        for event in () if is_shared else orphaned_alerts(store, resumed):
            recorder.put(EventSeen(None, resolved(event, time.time(), RESTARTED)))
        past = Past(store)
        stack.callback(past.close)
        recording = Recording(
            recorder.put,
            step_timeout=settings.history.step_timeout_seconds,
            resumed=resumed,
            read_past=past.read,
            is_shared=is_shared,
        )
        stack.callback(recording.finish)

        def is_open(record: RunRecord) -> bool:
            # By what is stored: so all that came before the end is stored too.
            key = recording.life(record.run)
            return record.ended_at is None and key is not None and recorder.life(key) == record.life

        yield ServedHistory(
            recording,
            EngineRecording(recorder.put, recording.newest_step, engine_alerts(store), is_shared=is_shared),
            HistoryAnswers(store, is_open),
            recorder.stats,
            store.url,
        )


@asynccontextmanager
async def keeping_time(
    history: ServedHistory,
    ledger: Ledger,
    registry: RunRegistry,
    board: EngineBoard,
    *,
    wall: Callable[[], float] = time.time,
    seconds: float = TICK_SECONDS,
) -> AsyncIterator[None]:
    """Have the ledger's thread do, again and again inside the block, what time brings to the history.

    Args:
        history: of the sidecar.
        ledger: whose thread it is.
        registry: the runs.
        board: the engines.
        wall: Unix time in seconds.
        seconds: between two times.
    """

    def tick() -> None:
        now = wall()
        history.recording.tick(now, [run.name for run in registry.runs()])
        if history.engines is not None:
            history.engines.observe(board.serving(), now)

    async def keep() -> None:
        while True:
            await asyncio.sleep(seconds)
            await ledger.settle(tick)

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
