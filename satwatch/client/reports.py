"""What a trainer reports of its steps, said by a worker in its order: each at most once, since sums add up."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Collection
from concurrent.futures import Future, wait
from typing import Any, Final, TypeAlias

from satwatch.client.deadline import Deadline
from satwatch.client.link import Link
from satwatch.client.misses import Missed, MissKind
from satwatch.client.settings import Settings
from satwatch.client.stats import Tally
from satwatch.client.workers import Errand, Workers
from satwatch.types import StepReport

logger = logging.getLogger("satwatch")

# A few dozens of steps of a sidecar that is slow to hear them.
MAX_PENDING: Final = 64

Batches: TypeAlias = Collection[Future[Any]]

# Misses that the breaker's warning or the caller's own doing explains.
_EXPLAINED: Final[frozenset[MissKind]] = frozenset({"closed", "deadline", "fork", "open", "unavailable"})


class Reports:
    """The reports that wait to be said, and the worker that says them; for any number of threads of one process.

    A report that gets no answer is not said again: the sidecar may have added it up already.
    """

    def __init__(self, settings: Settings, link: Link, tally: Tally) -> None:
        """Start nothing yet."""
        self._settings = settings
        self._link = link
        self._tally = tally
        self._lock = threading.Lock()
        self._pending: deque[tuple[StepReport, Batches]] = deque()
        # A worker of its own: neither a batch nor a published version waits behind a sidecar that is slow with these.
        self._worker = Workers(1)
        self._errand = Errand(self._worker, self._say_pending)
        self._was_refused = False

    def add(self, report: StepReport, batches: Batches = ()) -> None:
        """Say a report: in the worker, or, where ``on_failure`` is ``raise``, at once.

        Args:
            report: what to say.
            batches: what is waited for before it is said, no longer than the deadline.

        Raises:
            SatwatchError: it was refused or not heard, and ``on_failure`` is ``raise``.
        """
        if self._settings.on_failure == "raise":
            miss = self._say(report, batches)
            if miss is not None:
                raise miss.again().error
            return
        with self._lock:
            if len(self._pending) == MAX_PENDING:
                self._pending.popleft()
                self._tally.report(heard=False)
            self._pending.append((report, batches))
        self._errand.run_soon()

    def finish(self) -> None:
        """Wait until all that has been added is said, no longer than one call may take."""
        self._errand.wait(self._settings.timeout)

    def close(self) -> None:
        """End the worker; what is added later is said by the thread that adds it."""
        self._worker.close()

    def _say_pending(self) -> None:
        while (entry := self._take()) is not None:
            self._say(*entry)

    def _take(self) -> tuple[StepReport, Batches] | None:
        with self._lock:
            return self._pending.popleft() if self._pending else None

    def _say(self, report: StepReport, batches: Batches) -> Missed | None:
        wait(batches, self._settings.timeout)
        try:
            self._link.say_report(report, Deadline.after(self._settings.timeout))
        except Missed as miss:
            self._tally.report(heard=False)
            if miss.kind not in _EXPLAINED and not self._was_refused:
                self._was_refused = True
                message = "The sidecar did not take a report of a step (%s: %s); further refusals are only counted."
                logger.warning(message, miss.kind, str(miss))
            return miss.again()
        self._tally.report(heard=True)
        return None
