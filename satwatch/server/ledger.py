"""The accounts behind the answers: diagnostics are computed after a batch is answered, in one thread.

Nothing answered is lost: a batch that finds the backlog full waits for its answer. A scrape queues behind
the batches answered before it, so that what a trainer has been told is what it can read.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final

from satwatch.server.niceness import step_back
from satwatch.server.runs import Run
from satwatch.server.stats import Account, RunStats, Snapshot

logger = logging.getLogger(__name__)

# An account costs this many tokens' memory at least.
_LEAST_COST: Final = 4096

_UNACCOUNTED: Final = "A batch was answered and could not be accounted for."
_UNRECORDED: Final = "A message was answered and could not be recorded."


class Ledger:
    """Accounts for answered batches.

    :meth:`room`, :meth:`enter` and :meth:`post` are for one event loop, :meth:`read` for any other thread.

    Attributes:
        seconds: time spent on accounts.
        failures: accounts and records that a defect kept from being made.
    """

    def __init__(self, max_pending_tokens: int, *, clock: Callable[[], float] = time.perf_counter) -> None:
        """Start with empty accounts.

        Args:
            max_pending_tokens: the most tokens whose accounts may be pending.
            clock: seconds of work, upwards.
        """
        self._max_pending = max_pending_tokens
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "satwatch-ledger", initializer=step_back)
        self._lock = threading.Lock()
        self._pending = 0
        self._waiters: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last: dict[str, Snapshot] = {}
        self.seconds = 0.0
        self.failures = 0

    async def room(self, tokens: int) -> None:
        """Wait until the backlog takes a batch of so many tokens, first come, first served.

        An empty backlog takes any batch, however large. Nothing is reserved: enter the batch before the next await.
        """
        while (turn := self._turn(_cost(tokens))) is not None:
            await turn

    def _turn(self, cost: int) -> asyncio.Future[None] | None:
        """Return what to wait for, or None when there is room."""
        with self._lock:
            fits = self._pending + cost <= self._max_pending and not self._waiters
            if fits or not self._pending:
                return None
            loop = asyncio.get_running_loop()
            turn: asyncio.Future[None] = loop.create_future()
            self._waiters.append((loop, turn))
            return turn

    def enter(self, stats: RunStats, account: Account, then: Callable[[], None] | None = None) -> None:
        """Take an account, to be made soon: once the answer, which the caller makes next, is on its way.

        Args:
            stats: where it goes.
            account: the batch.
            then: what else is to be done about it, afterwards and in the same thread.
        """
        self._schedule(_cost(account.batch.tokens), partial(self._account, stats, account, then), _UNACCOUNTED)

    def post(self, work: Callable[[], None]) -> None:
        """Take any other work of that thread; it is done after the accounts of what was answered before."""
        self._schedule(_cost(0), work, _UNRECORDED)

    async def settle(self, work: Callable[[], None]) -> None:
        """Have work done as :meth:`post` does, and wait until it is, whatever came of it."""
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        def then_tell() -> None:
            try:
                work()
            finally:
                loop.call_soon_threadsafe(done.set)

        self.post(then_tell)
        await done.wait()

    def _schedule(self, cost: int, work: Callable[[], None], failure: str) -> None:
        with self._lock:
            self._pending += cost
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._start, cost, work, failure)

    def _start(self, cost: int, work: Callable[[], None], failure: str) -> None:
        self._thread.submit(self._timed, work).add_done_callback(lambda done: self._settle(cost, done, failure))

    @staticmethod
    def _account(stats: RunStats, account: Account, then: Callable[[], None] | None) -> None:
        stats.add(account)
        if then is not None:
            then()

    def _timed(self, work: Callable[[], None]) -> None:
        started = self._clock()
        work()
        self.seconds += self._clock() - started

    def _settle(self, cost: int, done: Future[None], failure: str) -> None:
        with self._lock:
            self._pending -= cost
            waiters, self._waiters = self._waiters, deque()
        for loop, turn in waiters:
            loop.call_soon_threadsafe(_wake, turn)
        if (error := done.exception()) is not None:
            logger.error(failure, exc_info=error)
            self.failures += 1

    def read(self, runs: Sequence[Run], timeout: float) -> dict[str, Snapshot]:
        """Return the accounts of runs by name, every batch answered before this call included.

        Args:
            runs: the runs.
            timeout: seconds to wait; after that, and after :meth:`close`, the accounts last read are returned.
        """
        reading: Future[dict[str, Snapshot]] | None = None
        deadline = time.monotonic() + timeout
        try:
            self._wait_for_started(timeout)
            reading = self._thread.submit(lambda: {run.name: run.stats.snapshot() for run in runs})
            self._last = reading.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            if reading is not None:
                reading.cancel()
            logger.warning("The accounts are more than %.1f s behind; the last ones are shown.", timeout)
        except RuntimeError:  # closed
            pass
        return self._last

    def _wait_for_started(self, timeout: float) -> None:
        """Wait for the loop to start what was entered before; it does so in order."""
        if self._loop is None or self._loop.is_closed():
            return
        started: Future[None] = Future()
        self._loop.call_soon_threadsafe(started.set_result, None)
        started.result(timeout)

    def close(self) -> None:
        """Finish what is pending, then end the thread."""
        self._thread.shutdown()


def _cost(tokens: int) -> int:
    return max(tokens, _LEAST_COST)


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():  # a client that left has cancelled it
        turn.set_result(None)
