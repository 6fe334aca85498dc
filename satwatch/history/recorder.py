"""The one way into a history: records are taken without waiting, and written by a thread of its own."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

import sqlalchemy as sa

from satwatch.errors import ConfigError, required
from satwatch.history.limits import Limits
from satwatch.history.outage import Insistence, is_outage
from satwatch.history.pending import Pending
from satwatch.history.records import KINDS, EngineSeen, LifeKey, Record, RecorderStats, kind_of
from satwatch.history.retention import Retention
from satwatch.history.store import Store, reason
from satwatch.history.thinning import EngineThinning
from satwatch.history.writer import Queued, Writer, Written

logger = logging.getLogger(__name__)

MAX_PENDING: Final = 10_000
COMMIT_SECONDS: Final = 0.5
# So many records are written at once, and make a commit due.
_GROUP: Final = 1000
_RETENTION_SECONDS: Final = 5.0
# As the accounts' thread: a request goes first.
_NICENESS: Final = 5


class Recorder:
    """Writes a store; :meth:`put` is for any thread.

    Records are committed together, at most ``commit_seconds`` after the first of them came. While the database fails
    they wait in memory, ``max_pending`` at most, and are written when it is back.
    """

    def __init__(
        self,
        store: Store,
        limits: Limits | None = None,
        *,
        max_pending: int = MAX_PENDING,
        commit_seconds: float = COMMIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the thread.

        Args:
            store: opened to be written; it is the caller's to close, after :meth:`close`.
            limits: how much is kept.
            max_pending: the most records that wait, 1 or more.
            commit_seconds: the longest that a record waits for others, above 0.
            clock: seconds, upwards; tells durations.

        Raises:
            ConfigError: a store opened read-only, or a number outside its range.
        """
        if store.read_only:
            raise ConfigError(required("store", f"{store.url}, read-only", "a store opened to be written"))
        if max_pending < 1 or not commit_seconds > 0:
            raise ConfigError(required("max_pending", f"{max_pending}, {commit_seconds} s", "1 or more, above 0 s"))
        self._store = store
        self._clock = clock
        self._commit_seconds = commit_seconds
        self._writer = Writer(store)
        self._retention = Retention(limits or Limits())
        self._thinning = EngineThinning()
        self._pending = Pending(max_pending)
        self._changed = threading.Condition()
        self._flushed = 0  # records that are not to wait for others
        self._closing = threading.Event()
        self._stored: Counter[str] = Counter()
        self._stored_steps: dict[LifeKey, int | None] = {}
        self._write_seconds = 0.0
        self._insist = Insistence(store.url, self._closing, clock, max_pending)
        self._more_to_remove = True
        self._next_removal = 0.0
        self._thread = threading.Thread(target=self._work, name="satwatch-history", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> None:
        """Take a record; never waits for the database and never raises. After :meth:`close` it is dropped."""
        with self._changed:
            if self._closing.is_set():
                self._pending.dropped[kind_of(record)] += 1
                return
            if isinstance(record, EngineSeen) and not self._thinning.keeps(record.record):
                return
            self._pending.add(record)
            if len(self._pending) == 1 or len(self._pending) >= _GROUP:
                self._changed.notify_all()

    def life(self, key: LifeKey) -> int | None:
        """Return the stored life of the server's; None before it is stored."""
        return self._writer.life(key)

    def stored_step(self, key: LifeKey) -> int | None:
        """Return the last closed step of a life that is on disk, with all that closed before it and weren't dropped."""
        return self._stored_steps.get(key)

    def stats(self) -> RecorderStats:
        """Return how the writing goes."""
        with self._changed:
            return RecorderStats(
                up=self._insist.down_since is None,
                pending=len(self._pending),
                stored={kind: self._stored[kind] for kind in KINDS},
                dropped={kind: self._pending.dropped[kind] for kind in KINDS},
                write_seconds=self._write_seconds,
                failures=self._insist.failures,
                last_error=self._insist.last_error,
            )

    def flush(self, timeout: float) -> bool:
        """Write what was put before now; tell whether that was done in time.

        Args:
            timeout: seconds to wait.
        """
        with self._changed:
            self._flushed = count = self._pending.count
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._pending.is_done(count), timeout)

    def close(self, timeout: float) -> bool:
        """Write what waits, then end the thread; tell whether it ended in time.

        A database that fails is tried once more; what can't be written is dropped, counted and said.

        Args:
            timeout: seconds to wait.
        """
        with self._changed:
            self._closing.set()
            self._changed.notify_all()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        if sys.platform == "linux":  # elsewhere niceness is the whole process's
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while (group := self._next_group()) is not None:
            if group:
                self._settle(self._insist(partial(self._write, group), self._dropped))
            if self._more_to_remove or self._clock() >= self._next_removal:
                self._remove_some()

    def _next_group(self) -> list[Queued] | None:
        """Return records to write, none to look after what is too old, or None at the end."""
        with self._changed:
            if not self._pending and not self._closing.is_set() and not self._more_to_remove:
                self._changed.wait_for(lambda: self._pending or self._closing.is_set())
            if not self._pending:
                return None if self._closing.is_set() else []
            self._changed.wait_for(self._is_due, self._commit_seconds)
            return self._pending.take(_GROUP)

    def _is_due(self) -> bool:
        waits_for_flush = not self._pending.is_done(self._flushed)
        return waits_for_flush or len(self._pending) >= _GROUP or self._closing.is_set()

    def _write(self, group: list[Queued]) -> Written:
        """Write a group; where one of its records can't be, all the others."""
        started = self._clock()
        try:
            return self._writer.write(group)
        except Exception as error:
            # The thread's edge: no record, whatever is in it, may keep those that come after it from being stored.
            if is_outage(error):
                raise
            if len(group) == 1:
                return self._refuse(group[0], error)
        finally:
            self._write_seconds += self._clock() - started
        half = len(group) // 2
        first, second = self._write(group[:half]), self._write(group[half:])
        return Written(first.stored + second.stored, first.unopened + second.unopened, {**first.lives, **second.lives})

    def _refuse(self, queued: Queued, error: Exception) -> Written:
        kind = kind_of(queued.record)
        logger.error("A record of the history, of the kind %s, can't be stored: %s", kind, reason(error))
        self._insist.failed(error)
        with self._changed:
            self._pending.dropped[kind] += 1
        return Written()

    def _settle(self, written: Written | None) -> None:
        """Let go of what is written; None: nothing more can be."""
        for key, life in () if written is None else written.lives.items():
            self._stored_steps[key] = life.stored_step
            self._retention.wrote(life.life)
        with self._changed:
            if written is None:
                self._pending.lost()
            else:
                self._stored.update(written.stored)
                self._pending.dropped.update(written.unopened)
                self._pending.done()
            self._changed.notify_all()
        self._insist.say_dropped(self._dropped(), is_calm=not self._pending)

    def _dropped(self) -> Counter[str]:
        with self._changed:
            return Counter(self._pending.dropped)

    def _remove_some(self) -> None:
        try:
            self._more_to_remove = bool(self._insist(partial(self._retention.remove_some, self._store), self._dropped))
        except sa.exc.SQLAlchemyError as error:
            logger.error("What is too old can't be removed from the history: %s", reason(error))  # noqa: TRY400
            self._insist.failed(error)
            self._more_to_remove = False
        self._next_removal = self._clock() + _RETENTION_SECONDS
