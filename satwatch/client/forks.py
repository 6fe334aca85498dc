"""Forks and gRPC.

gRPC's core survives a fork, parent and child alike, if it is up and no call is inside it at that moment. Else the
parent's fork can hang, and the child can crash or hang for good (all seen with grpcio 1.85). So each call of a client
passes a gate: a fork waits until the calls that are inside have left, which they do within their deadline.

A signal handler may raise anywhere, in the gate's own lines too, and then a call is over without having said so. So
what the gate has noted is believed only of a thread whose stack shows that it is inside.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, TypeVar

PATIENCE: Final = 5.0  # seconds; a fork is never held up for longer
_LOOK_AGAIN: Final = 0.02  # seconds; for a call that left without a word

R = TypeVar("R")


def native_threads() -> int | None:
    """Count this process's threads, those that Python did not start included; None where there is no /proc."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return None


class ForkGate:
    """Lets calls in while no fork happens, and a fork happen while no call is in."""

    def __init__(self, patience: float = PATIENCE, threads: Callable[[], int | None] = native_threads) -> None:
        """Make a gate.

        Args:
            patience: how many seconds a fork waits at most.
            threads: counts the threads of this process.
        """
        self._patience = patience
        self._threads = threads
        self._open_lock()
        self._used = False
        self.is_broken = False

    def _open_lock(self) -> None:
        # Entered as a lock, never as a condition: an interrupt in Condition.__enter__ leaves the lock taken for ever.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._inside: set[int] = set()
        self._forking = False

    def run(self, call: Callable[[], R]) -> R:
        """Make a call and hold off forks meanwhile. Calls nest: garbage freed in one may close another's connection."""
        thread = threading.get_ident()
        if thread in self._inside and _is_running(sys._getframe(1)):
            return call()
        try:
            with self._lock:
                # A fork that has begun goes first, or calls without a pause would keep it waiting.
                self._changed.wait_for(lambda: not self._forking)
                self._inside.add(thread)
                self._used = True
            return call()
        finally:
            with self._lock:
                self._inside.discard(thread)
                self._changed.notify_all()

    def before_fork(self) -> None:
        """Wait until no call is inside, and keep further ones out.

        A signal handler that forks in the middle of a call can't wait for that call: its own child must not call.
        """
        self._lock.acquire()
        self._forking = True
        ends, here = time.monotonic() + self._patience, {threading.get_ident()}
        while (remaining := ends - time.monotonic()) > 0:
            self._forget_gone()
            if self._inside <= here:
                return
            self._changed.wait(min(remaining, _LOOK_AGAIN))
        self._forget_gone()

    def _forget_gone(self) -> None:
        """Strike off the threads that are not inside any more; the lock is held."""
        if self._inside:
            frames = sys._current_frames()
            self._inside = {thread for thread in self._inside if _is_running(frames.get(thread))}

    def after_in_parent(self) -> None:
        """Let calls in again."""
        self._forking = False
        self._changed.notify_all()
        self._lock.release()

    def after_in_child(self) -> None:
        """Begin anew: the parent's threads are not here, and its lock can't be released.

        The child must not use gRPC if the fork lost patience, or if gRPC has not started its threads again: then its
        fork support is switched off, or had to be skipped.
        """
        alone = self._used and self._threads() == 1
        self.is_broken = self.is_broken or bool(self._inside) or alone
        self._open_lock()


_RUN: Final = ForkGate.run.__code__


def _is_running(frame: FrameType | None) -> bool:
    """Tell whether a stack, from its innermost frame on, passes a gate."""
    while frame is not None and frame.f_code is not _RUN:
        frame = frame.f_back
    return frame is not None


GATE: Final = ForkGate()

os.register_at_fork(before=GATE.before_fork, after_in_parent=GATE.after_in_parent, after_in_child=GATE.after_in_child)
