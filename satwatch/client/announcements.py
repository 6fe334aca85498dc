"""What a trainer has announced: kept, because a sidecar that was away or has started again must hear it again."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from satwatch.client.connection import Connection
from satwatch.client.deadline import Deadline
from satwatch.client.misses import Missed
from satwatch.client.settings import Settings
from satwatch.errors import VersionOrderError
from satwatch.types import CanaryScores, PublishedVersion

# Of what a deadline has left, the part that the canary may take.
_SHARE: Final = 0.25


class Announcements:
    """The version published last and the canary scored last; for any number of threads of one process.

    Attributes:
        version: the version and when it was published, on the monotonic clock, or None.
        scores: the trainer's scores of the canary, or None.
    """

    def __init__(self, settings: Settings) -> None:
        """Start with nothing to say."""
        self._settings = settings
        self.version: PublishedVersion | None = None
        self.scores: CanaryScores | None = None
        # Entered as a lock, never as a condition: an interrupt in Condition.__enter__ leaves the lock taken for ever.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._turn_ends = 0.0

    def publish(self, version: int) -> None:
        """Keep a version; said twice, it is as old as it was."""
        if self.version is None or self.version.version != version:
            self.version = PublishedVersion(version, time.monotonic())

    @contextmanager
    def turn(self, method: str, deadline: Deadline) -> Iterator[None]:
        """Let one thread speak at a time, so that versions arrive in order.

        Raises:
            Missed: the deadline passed before this thread's turn came.
        """
        # A turn has an end, as a trial has: a thread that was interrupted in its own keeps others away no longer.
        with self._lock:
            if not self._changed.wait_for(lambda: time.monotonic() >= self._turn_ends, deadline.remaining):
                what = f"{method} at {self._settings.address}"
                raise deadline.missed(what)
            self._turn_ends = time.monotonic() + deadline.remaining
        try:
            yield
        finally:
            with self._lock:
                self._turn_ends = 0.0
                self._changed.notify_all()

    def repeat(self, connection: Connection, deadline: Deadline) -> None:
        """Say everything to a sidecar that has just opened the run.

        Raises:
            Missed: no answer, or the version was refused for another reason than its order.
        """
        version, scores = self.version, self.scores
        if version is not None:
            try:
                connection.publish_version(self._settings.opening, version, deadline)
            except Missed as miss:
                # Another rank has published a later one.
                if not isinstance(miss.error, VersionOrderError):
                    raise
        if scores is not None:
            # Bounds need no canary: a sidecar that doesn't take it, such as an older one, is as good as any.
            # And one that is slow to take it must not be late with the batch that this may be part of.
            with contextlib.suppress(Missed):
                connection.report_canary(self._settings.opening, scores, Deadline.after(_SHARE * deadline.remaining))
