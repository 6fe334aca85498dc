"""A database that fails for a while: try again, ever less often, and say when it begins and when it is over."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

import sqlalchemy as sa
from tenacity import RetryCallState, Retrying, retry_if_exception, wait_exponential, wait_random

from satwatch.history.store import reason

logger = logging.getLogger(__name__)
T = TypeVar("T")

# Seconds to the second try, doubled from then on; up to FIRST_RETRY more at random.
FIRST_RETRY: Final = 0.5
LAST_RETRY: Final = 30.0

# What the database says of the records, not of itself: it would say so again.
_REFUSALS: Final = (sa.exc.DataError, sa.exc.IntegrityError, sa.exc.ProgrammingError, sa.exc.NotSupportedError)


def is_outage(error: BaseException) -> bool:
    """Tell whether the same may succeed later."""
    at_fault = isinstance(error, sa.exc.DBAPIError | sa.exc.TimeoutError | OSError)
    return at_fault and not isinstance(error, _REFUSALS)


class Insistence:
    """Does something until the database lets it; for one thread, what it has to tell for any.

    Attributes:
        failures: attempts that failed.
        last_error: why the last one did.
        down_since: the clock when the outage began; None while there is none.
    """

    def __init__(self, url: str, closing: threading.Event, clock: Callable[[], float], max_pending: int) -> None:
        """Know the database by a name without a password, and when to give up: ``closing`` ends a pause too."""
        self.failures = 0
        self.last_error = ""
        self.down_since: float | None = None
        self._url = url
        self._clock = clock
        self._max_pending = max_pending
        self._said: Counter[str] = Counter()
        self._is_dropping = False
        self._retrying = Retrying(
            retry=retry_if_exception(is_outage),
            wait=wait_exponential(multiplier=FIRST_RETRY, max=LAST_RETRY) + wait_random(0.0, FIRST_RETRY),
            stop=lambda _state: closing.is_set(),
            sleep=_pause_of(closing),
            after=self._failed,
            reraise=True,
        )

    def __call__(self, work: Callable[[], T], dropped: Callable[[], Counter[str]]) -> T | None:
        """Return what the work returns; None: it still fails, and there is no more time.

        Args:
            work: what may fail, and may be done twice.
            dropped: records dropped so far, by kind.
        """
        try:
            done = self._retrying(work)
        except Exception as error:
            if not is_outage(error):
                raise
            return None
        if self.down_since is not None:
            seconds, self.down_since = self._clock() - self.down_since, None
            lost = in_words(self._new(dropped()))
            logger.warning("The history is written again, after %.0f s. Dropped meanwhile: %s.", seconds, lost)
        return done

    def say_dropped(self, dropped: Counter[str], *, is_calm: bool) -> None:
        """Say that records are dropped without an outage when it begins, and again only after a calm."""
        lost = self._new(dropped)
        if lost and not self._is_dropping:
            text = "Records are dropped: more come than can be written, or their run was not opened here. So far: %s."
            logger.warning(text, in_words(lost))
        self._is_dropping = bool(lost) or (self._is_dropping and not is_calm)

    def _new(self, dropped: Counter[str]) -> Counter[str]:
        lost, self._said = dropped - self._said, dropped
        return lost

    def failed(self, error: BaseException) -> None:
        """Note a failure."""
        self.failures += 1
        self.last_error = reason(error)

    def _failed(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if error is None or not is_outage(error):
            return
        self.failed(error)
        if self.down_since is None:
            self.down_since = self._clock()
            text = (
                "The history at %s can't be written: %s. It is tried again; the newest %d records are kept meanwhile."
            )
            logger.error(text, self._url, self.last_error, self._max_pending)


def _pause_of(closing: threading.Event) -> Callable[[float], None]:
    def pause(seconds: float) -> None:
        closing.wait(seconds)

    return pause


def in_words(records: Counter[str]) -> str:
    """Return how many records of which kinds.

    >>> in_words(Counter(batch=3, step=1)), in_words(Counter())
    ('batch 3, step 1', 'nothing')
    """
    return ", ".join(f"{kind} {count}" for kind, count in sorted(records.items()) if count) or "nothing"
