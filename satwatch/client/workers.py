"""The threads that answer ``submit``, announce and report: started when first needed, ended with the client."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, TypeVar

# Two, so that one batch's numbers are packed while another's answer is waited for.
THREADS: Final = 2
# How long an end waits for the threads. They end all the same: but a signal's handler that ends the client may have
# interrupted whoever they wait for.
_JOIN_SECONDS: Final = 1.0

R = TypeVar("R")


class Workers:
    """A small pool that takes work even after its end: it is then done by the thread that brings it."""

    def __init__(self, threads: int = THREADS) -> None:
        """Start nothing yet; at most so many threads."""
        self._most = threads
        self._lock = threading.RLock()
        self._pool: ThreadPoolExecutor | None = None
        self._threads: set[threading.Thread] = set()
        self._closed = False
        # The thread that is in the pool's own code, under the pool's own lock.
        self._inside: threading.Thread | None = None

    def submit(self, work: Callable[[], R]) -> Future[R]:
        """Do the work in a worker, or here once the pool or the interpreter is ending."""
        # The pool's refusal at the interpreter's end is a RuntimeError, raised before the work begins.
        with contextlib.suppress(RuntimeError), self._lock:
            if not self._closed:
                return self._hand_over(work)
        return _done(work)

    def _hand_over(self, work: Callable[[], R]) -> Future[R]:
        self._inside = threading.current_thread()
        try:
            return self._started().submit(work)
        finally:
            self._inside = None
            if self._closed and self._pool is not None:  # by a handler that came in between
                self._pool.shutdown(wait=False)

    def _started(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._most, "satwatch-client", initializer=self._enlist)
        return self._pool

    def _enlist(self) -> None:
        self._threads.add(threading.current_thread())

    def close(self) -> None:
        """Finish what has been submitted and end the threads; waits for them a second at most.

        Safe from a future's callback, which runs in one of them, and from a signal's handler.
        """
        here = threading.current_thread()
        with self._lock:
            self._closed = True
            pool = None if self._inside is here else self._pool
        if pool is None:
            return
        pool.shutdown(wait=False)
        if here not in self._threads:
            ends = time.monotonic() + _JOIN_SECONDS
            for thread in list(self._threads):
                thread.join(max(0.0, ends - time.monotonic()))


class Errand:
    """One thing that a worker does over and over, such as saying the latest of something."""

    def __init__(self, workers: Workers, work: Callable[[], object]) -> None:
        """Have nothing done yet."""
        self._workers = workers
        self._work = work
        self._next: Future[object] | None = None

    def run_soon(self) -> bool:
        """Have it done once more, from its beginning; return False where that waits for a worker already."""
        waiting = self._next
        if waiting is not None and not (waiting.running() or waiting.done()):
            return False
        self._next = self._workers.submit(self._work)
        return True

    def wait(self, timeout: float) -> None:
        """Wait until it is done as often as was asked for, ``timeout`` seconds at most."""
        if self._next is not None:
            wait([self._next], timeout)


def _done(work: Callable[[], R]) -> Future[R]:
    future: Future[R] = Future()
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - as a worker does: what the work raises, the future raises
        future.set_exception(error)
    return future
