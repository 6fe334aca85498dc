"""A probe's part of the sidecar's wire: what it knows of its engines goes, what the trainer has told comes."""

from __future__ import annotations

import logging
import math
import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Final

from satwatch.addresses import check_address
from satwatch.client.breaker import Backoff, Breaker
from satwatch.client.connection import Connection
from satwatch.client.deadline import Deadline
from satwatch.client.forks import GATE
from satwatch.client.misses import Missed, MissKind
from satwatch.client.settings import check_timeout
from satwatch.errors import UnavailableError
from satwatch.types import EnginesReport, EngineStatus, TrainerFacts

logger = logging.getLogger("satwatch")

# A step's length: what was published before that says little of now.
KEPT_SECONDS: Final = 60.0
# The sidecar is well and may take the next report: a run that isn't open yet is opened some time.
_ANSWERED: Final[frozenset[MissKind]] = frozenset({"client", "config", "invalid_batch", "unknown_run"})
# Chance from the operating system: with one seed, all probes would come back at once.
_CHANCE: Final = random.SystemRandom()


class EngineReporter:
    """Reports engines to a sidecar; called once a round, with all that the probe watches.

    It has no thread of its own: a call waits for the answer, no longer than ``timeout``. A sidecar that doesn't answer
    is left alone for 1 s, then for 2, 4, ... 30 s, and calls meanwhile cost nothing. For any number of threads.
    """

    def __init__(
        self,
        address: str,
        *,
        probe: str,
        period_seconds: float,
        run: str = "",
        timeout: float = 1.0,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a reporter; nothing is opened or sent before the first call.

        Args:
            address: the sidecar's, ``HOST:PORT`` or ``unix:PATH``.
            probe: this probe's name, 1 to 200 printable characters; it tells its reports from another's.
            period_seconds: from one call to the next, so that the sidecar knows when this probe is late; above 0.
            run: the run that the engines serve; empty: the only one that has published a version or scored a canary.
            timeout: seconds that a call may wait for the sidecar.
            backoff: when a sidecar that did not answer is asked again.
            clock: counts seconds; what the facts' moments count on.

        Raises:
            ConfigError: an address, a run or a timeout that can't be meant.
            InvalidBatchError: a probe or a period that can't be meant.
        """
        check_address(address)
        check_timeout(timeout)
        EnginesReport(probe, (), period_seconds, run)
        self._address, self._probe, self._run = address, probe, run
        self._period, self._timeout = period_seconds, timeout
        self._backoff = Backoff() if backoff is None else backoff
        self._clock = clock
        # By process: a forked child reports on a channel of its own, and leaves its parent's alone. The lock too: one
        # that was taken at the fork would never be free there.
        self._locks: dict[int, threading.Lock] = {}
        self._connections: dict[int, Connection] = {}
        self._breaker = Breaker()
        self._is_failing = self._closed = False
        self.facts = TrainerFacts(run)
        self._answered_at = math.inf
        self.reports = self.failures = 0

    def __enter__(self) -> EngineReporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, statuses: tuple[EngineStatus, ...]) -> TrainerFacts:
        """Report, and return what the trainer has told; without an answer, what it had told before.

        After a minute without an answer the versions published are left out: the trainer has gone on, and a lag behind
        an old version is none. Scores of a version stay true.

        Never raises: whether the sidecar is there is not the probe's fault, and it goes on without.
        """
        with self._own_lock():
            if not self._closed and not (self._breaker.is_open and self._clock() < self._breaker.probe_at):
                self._report(statuses)
            is_old = self._clock() - self._answered_at > KEPT_SECONDS
            return replace(self.facts, published=()) if is_old else self.facts

    def close(self) -> None:
        """End the connection. Later calls return the last facts."""
        with self._own_lock():
            self._closed = True
            self._drop()

    def _own_lock(self) -> threading.Lock:
        """Return this process's lock; of two threads that make one at once, setdefault takes the first's."""
        return self._locks.setdefault(os.getpid(), threading.Lock())

    def _report(self, statuses: tuple[EngineStatus, ...]) -> None:
        try:
            report = EnginesReport(self._probe, statuses, self._period, self._run)
            self.facts = self._connection().report_engines(
                report, Deadline.after(self._timeout, self._clock), self._clock
            )
        except Missed as miss:
            self._missed(miss)
        except Exception as error:  # noqa: BLE001 - the client's edge: no fault in here may stop the probe
            self._missed(Missed(UnavailableError(f"{type(error).__name__}: {error}"), "client"), error)
        else:
            self._answered()

    def _connection(self) -> Connection:
        if GATE.is_broken:
            raise Missed(UnavailableError("gRPC did not survive the fork that made this process"), "fork")
        connection = self._connections.get(os.getpid())
        if connection is None:
            connection = self._connections[os.getpid()] = Connection(self._address, self._timeout)
        return connection

    def _drop(self) -> None:
        connection = self._connections.pop(os.getpid(), None)
        if connection is not None:
            connection.close()

    def _missed(self, miss: Missed, fault: Exception | None = None) -> None:
        self.failures += 1
        if miss.kind not in _ANSWERED:
            now, chance = self._clock(), _CHANCE.random()
            again = self._breaker.probe_failed if self._breaker.is_open else self._breaker.trip
            self._breaker = again(now, self._backoff, chance)
            self._drop()
        if not self._is_failing:
            self._is_failing = True
            message = "The sidecar at %s does not take this probe's reports (%s: %s); the probe goes on without it."
            logger.warning(message, self._address, miss.kind, str(miss), exc_info=fault)

    def _answered(self) -> None:
        self.reports += 1
        self._answered_at = self._clock()
        self._breaker = Breaker()
        if self._is_failing:
            self._is_failing = False
            # As loud as the warning it answers: a program that sets up no logging sees both or neither.
            logger.warning("The sidecar at %s takes this probe's reports again.", self._address)
