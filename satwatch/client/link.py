"""One process's link to its sidecar: opened in the background, guarded by the breaker, opened again after a failure.

Every connection is made by the background thread, the first one too, and callers wait for it no longer than their
deadline: an attempt that outlives it is still of use to the batches that come after.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from satwatch.client.announcements import Announcements
from satwatch.client.breaker import Backoff, Breaker, BreakerState
from satwatch.client.connection import Connection
from satwatch.client.deadline import Deadline
from satwatch.client.forks import GATE
from satwatch.client.misses import Missed
from satwatch.client.settings import OnFailure, Settings
from satwatch.errors import UnavailableError, UnknownRunError
from satwatch.types import CanaryScores, ServerInfo, StepReport

logger = logging.getLogger("satwatch")

_INSTEAD: Final[dict[OnFailure, str]] = {
    "local": "the trainer computes the bounds",
    "nominal": "batches get PPO's interval",
    "raise": "calls raise",
}
_JOIN_SECONDS: Final = 1.0
# Chance from the operating system: with the trainer's seed, all its ranks would probe at once.
_CHANCE: Final = random.SystemRandom()


class Link:
    """The connection, the breaker and the thread that opens both; for any number of threads of one process.

    Attributes:
        has_spoken: a batch or a report of a step was to be sent: the sidecar may have heard of this rank from here.
    """

    def __init__(self, settings: Settings, backoff: Backoff, batches_missed: Callable[[], int]) -> None:
        """Make a link that connects when it is first needed.

        Args:
            settings: where to, and for which run.
            backoff: when an open breaker is probed.
            batches_missed: counts the batches that the sidecar has not bounded.
        """
        self._settings = settings
        self._backoff = backoff
        self._batches_missed = batches_missed
        # Entered as a lock, never as a condition: an interrupt in Condition.__enter__ leaves the lock taken for ever.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._breaker = Breaker()
        self._why: Missed | None = None
        self._missed_before = 0
        self._connection: Connection | None = None
        self._attempting: Connection | None = None
        self._thread: threading.Thread | None = None
        self._shut = False
        # The threads that a batch's connection is lent to.
        self._lent: set[int] = set()
        self.has_spoken = False
        self._announcements = Announcements(settings)

    @property
    def state(self) -> BreakerState:
        """The breaker's."""
        return self._breaker.state

    @property
    def server(self) -> ServerInfo | None:
        """What the sidecar last said of itself."""
        connection = self._connection
        return None if connection is None else connection.server

    @contextmanager
    def batch(self, deadline: Deadline) -> Iterator[Connection]:
        """Lend the open connection for one batch, which is the breaker's trial if that is half-open.

        The block raises a miss, or returns once the answer has been used.

        Raises:
            Missed: the block's, or as :meth:`acquire`, or another batch is the trial.
        """
        is_trial = self._admit(deadline)
        try:
            connection = self._lend(deadline)
            try:
                yield connection
            except Missed as miss:
                self.missed(connection, miss)
                raise
            self._answered(connection)
        finally:
            with self._lock:
                self._lent.discard(threading.get_ident())
                if self._shut:
                    self._changed.notify_all()
                if is_trial:
                    self._breaker = self._breaker.end_trial()

    def _lend(self, deadline: Deadline) -> Connection:
        """Return the open connection as :meth:`acquire` does, and note who has it."""
        connection = self.acquire(deadline)
        with self._lock:
            if self._shut:  # since it was acquired: nobody waits for this batch
                raise Missed(UnavailableError("the client is closed"), "closed")
            self._lent.add(threading.get_ident())
        self.has_spoken = True
        return connection

    def _admit(self, deadline: Deadline) -> bool:
        """Return whether the batch is the trial of a half-open breaker."""
        # Looked at before the lock is taken: nearly always there is nothing to do.
        if self._breaker.state != "half_open":
            return False
        with self._lock:
            before, now = self._breaker, time.monotonic()
            if before.state == "half_open" and not before.admits(now):
                raise Missed(UnavailableError("left alone while another batch tries it"), "open")
            self._breaker = before.begin_trial(now + deadline.remaining)
            return self._breaker is not before

    def acquire(self, deadline: Deadline) -> Connection:
        """Return the open connection; wait for the first one.

        Raises:
            Missed: the breaker is open, the first attempt failed, or the deadline passed.
        """
        if GATE.is_broken:
            raise Missed(UnavailableError("gRPC did not survive the fork that made this process"), "fork")
        with self._lock:
            if self._breaker.is_open:
                raise Missed(UnavailableError(f"left alone since it failed: {self._why}"), "open")
            self._ensure_thread()
            self._changed.wait_for(self._is_settled, deadline.remaining)
            connection = self._settled()
        if connection is not None:
            return connection
        late = deadline.missed(f"OpenRun at {self._settings.address}")
        self.missed(None, late)
        raise late.again()

    def _is_settled(self) -> bool:
        return self._shut or self._breaker.is_open or self._connection is not None

    def _settled(self) -> Connection | None:
        if self._shut:
            raise Missed(UnavailableError("the client is closed"), "closed")
        if self._breaker.is_open and self._why is not None:
            raise self._why.again()
        return self._connection

    def open_run(self, connection: Connection, deadline: Deadline) -> None:
        """Open the run, on a new connection or on one whose sidecar has forgotten it, and say what was announced.

        Raises:
            Missed: no answer, or a refusal.
        """
        connection.open_run(self._settings.opening, deadline)
        self._announcements.repeat(connection, deadline)

    def missed(self, connection: Connection | None, miss: Missed) -> None:
        """Open the breaker, unless the miss is harmless or of a connection that has been replaced."""
        with self._lock:
            if not miss.opens_breaker or self._shut or self._breaker.is_open or connection is not self._connection:
                return
            is_first = self._trip(miss)
        if is_first:
            self._warn(miss)

    def _answered(self, connection: Connection) -> None:
        """Close a half-open breaker: a batch was bounded with the sidecar's answer."""
        if self._breaker.state == "closed":
            return
        with self._lock:
            if connection is not self._connection or self._breaker.state != "half_open" or self._shut:
                return
            self._breaker = self._breaker.answered()
            missed = self._batches_missed() - self._missed_before
        # As loud as the warning it answers: a program that sets up no logging sees both or neither.
        logger.warning("The sidecar at %s answers again; it missed %d batches.", self._settings.address, missed)

    def _trip(self, miss: Missed) -> bool:
        """Open the breaker; return whether it was closed, and not just tried. The lock is held."""
        is_first = self._breaker.state == "closed"
        self._breaker = self._breaker.trip(time.monotonic(), self._backoff, _CHANCE.random())
        self._why = miss.again()
        if is_first:
            self._missed_before = self._batches_missed()
        self._ensure_thread()
        self._changed.notify_all()
        return is_first

    def _warn(self, miss: Missed) -> None:
        where, instead = self._settings.address, _INSTEAD[self._settings.on_failure]
        message = "No bounds from the sidecar at %s (%s: %s). Until it answers again, %s."
        # As text: a handler that keeps the record would keep the miss, and with it the batch.
        logger.warning(message, where, miss.kind, str(miss), instead)

    def publish(self, version: int) -> None:
        """Keep a version to say: :meth:`say_version` says it, and so does each opening of the run."""
        self._announcements.publish(version)

    def say_version(self, deadline: Deadline) -> None:
        """Say the version published last; one thread at a time, so that versions arrive in order.

        Raises:
            Missed: no answer, or a refusal.
        """
        with self._announcements.turn("PublishVersion", deadline):
            connection, version = self.acquire(deadline), self._announcements.version
            if version is None:
                return
            try:
                connection.publish_version(self._settings.opening, version, deadline)
            except Missed as miss:
                if not isinstance(miss.error, UnknownRunError):
                    self.missed(connection, miss)
                    raise
                self.open_run(connection, deadline)

    def report(self, scores: CanaryScores) -> None:
        """Keep the canary's scores to say: :meth:`say_scores` says them, and so does each opening of the run."""
        self._announcements.scores = scores

    def say_scores(self, deadline: Deadline) -> None:
        """Say the canary's scores reported last.

        A miss leaves the breaker alone: what a sidecar makes of a canary says nothing about its bounds.

        Raises:
            Missed: no answer, or a refusal.
        """
        with self._announcements.turn("ReportCanary", deadline):
            connection, scores = self.acquire(deadline), self._announcements.scores
            if scores is None:
                return
            try:
                connection.report_canary(self._settings.opening, scores, deadline)
            except Missed as miss:
                if not isinstance(miss.error, UnknownRunError):
                    raise
                self.open_run(connection, deadline)
                connection.report_canary(self._settings.opening, scores, deadline)

    def say_report(self, report: StepReport, deadline: Deadline) -> None:
        """Say what this rank reports of a step.

        A miss leaves the breaker alone: what a sidecar makes of a report says nothing about its bounds.

        Raises:
            Missed: no answer, or a refusal.
        """
        connection = self.acquire(deadline)
        self.has_spoken = True
        try:
            connection.report_step(report, deadline)
        except Missed as miss:
            if not isinstance(miss.error, UnknownRunError):
                raise
            self.open_run(connection, deadline)
            connection.report_step(report, deadline)

    def shut(self) -> None:
        """Lend the connection no more; calls in flight go on."""
        with self._lock:
            self._shut = True
            self._changed.notify_all()

    def wait_returned(self, timeout: float) -> None:
        """Wait until no other thread's batch has the connection, ``timeout`` seconds at most."""
        here = {threading.get_ident()}
        with self._lock:
            self._changed.wait_for(lambda: self._lent <= here, timeout)

    def say_closed(self, deadline: Deadline) -> None:
        """Say that this rank sends nothing more.

        The breaker isn't asked, for it says nothing of a sidecar that was only slow. A miss is no news: without a word
        the run ends there as that of a trainer that was killed.
        """
        connection = self._connection
        if connection is not None and not GATE.is_broken:
            with contextlib.suppress(Missed):
                connection.close_run(self._settings.opening, deadline)

    def close(self) -> None:
        """Close the connection and end the thread; calls in flight end with a miss."""
        self.shut()
        with self._lock:
            held, thread = (self._connection, self._attempting), self._thread
        for connection in held:
            if connection is not None:
                connection.close()
        # It may be the thread itself that lets go of a forgotten client and so comes here.
        if thread is not None and thread is not threading.current_thread():
            # A bound for what has none of its own, such as resolving a name; the thread is a daemon.
            thread.join(_JOIN_SECONDS)

    def _ensure_thread(self) -> None:
        """Start the thread if there is something to open; the lock is held."""
        wanted = self._breaker.is_open or self._connection is None
        if wanted and self._thread is None and not self._shut:
            thread = threading.Thread(target=self._open, name="satwatch-link", daemon=True)
            thread.start()
            self._thread = thread

    def _open(self) -> None:
        """Attempt until it succeeds or the link is closed."""
        while self._wait_until_due():
            outcome = self._attempt()
            if isinstance(outcome, Connection):
                self._succeeded(outcome)
                return
            self._failed(outcome)

    def _wait_until_due(self) -> bool:
        with self._lock:
            while not self._shut:
                pause = self._breaker.probe_at - time.monotonic() if self._breaker.is_open else 0.0
                if pause <= 0:
                    return True
                self._changed.wait(pause)
        return False

    def _attempt(self) -> Connection | Missed:
        connection: Connection | None = None
        try:
            connection = self._attempting = Connection(self._settings.address, self._settings.timeout)
            self.open_run(connection, Deadline.after(self._settings.timeout))
        except Missed as miss:
            outcome = miss.again()
        except Exception as error:  # noqa: BLE001 - the client's edge: a thread that died here would never probe again
            outcome = Missed(UnavailableError(f"{type(error).__name__}: {error}"), "internal")
        else:
            return connection
        if connection is not None:
            connection.close()
        return outcome

    def _failed(self, miss: Missed) -> None:
        with self._lock:
            self._attempting = None
            if self._breaker.is_open:
                self._breaker = self._breaker.probe_failed(time.monotonic(), self._backoff, _CHANCE.random())
                self._why = miss.again()
                return
            if self._shut:
                return
            is_first = self._trip(miss)
        if is_first:
            self._warn(miss)

    def _succeeded(self, connection: Connection) -> None:
        with self._lock:
            old, self._connection, self._attempting, self._thread = self._connection, connection, None, None
            was_open, self._breaker = self._breaker.is_open, self._breaker.probe_succeeded()
            shut = self._shut
            self._changed.notify_all()
        for retired in (old, connection if shut else None):
            if retired is not None:
                retired.close()
        if was_open and not shut:
            # It may do so for ever without answering a batch in time, so this is not the end of the warning.
            logger.debug("The sidecar at %s has opened the run again; one batch tries it.", self._settings.address)
