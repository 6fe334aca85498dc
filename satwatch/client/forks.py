"""Forks and gRPC.

gRPC's core survives a fork, parent and child alike, if it is up and no call is inside it at that moment. Else the
parent's fork can hang, and the child can crash or hang for good (all seen with grpcio 1.85). So each call of a client
passes a gate: a fork waits until the calls that are inside have left, which they do within their deadline.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

PATIENCE: Final = 5.0  # seconds; a fork is never held up for longer


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
        self._changed = threading.Condition()
        self._inside: Counter[int] = Counter()
        self._forking = False
        self._used = False
        self.is_broken = False

    @contextmanager
    def call(self) -> Iterator[None]:
        """Hold off forks inside the block. Blocks nest: garbage collected inside one may close another's connection."""
        thread = threading.get_ident()
        with self._changed:
            if thread not in self._inside:
                # A fork that has begun goes first, or calls without a pause would keep it waiting.
                self._changed.wait_for(lambda: not self._forking)
            self._inside[thread] += 1
            self._used = True
        try:
            yield
        finally:
            with self._changed:
                self._inside[thread] -= 1
                self._inside = +self._inside
                self._changed.notify_all()

    def before_fork(self) -> None:
        """Wait until no call is inside, and keep further ones out."""
        self._changed.acquire()
        self._forking = True
        self._changed.wait_for(lambda: not self._inside, self._patience)

    def after_in_parent(self) -> None:
        """Let calls in again."""
        self._forking = False
        self._changed.notify_all()
        self._changed.release()

    def after_in_child(self) -> None:
        """Begin anew: the parent's threads are not here, and its lock can't be released.

        The child must not use gRPC if the fork lost patience, or if gRPC has not started its threads again: then its
        fork support is switched off, or had to be skipped.
        """
        alone = self._used and self._threads() == 1
        self.is_broken = self.is_broken or bool(self._inside) or alone
        self._changed = threading.Condition()
        self._inside, self._forking = Counter(), False


GATE: Final = ForkGate()

os.register_at_fork(before=GATE.before_fork, after_in_parent=GATE.after_in_parent, after_in_child=GATE.after_in_child)
