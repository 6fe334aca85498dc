"""The end of one call's patience."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from satwatch.client.misses import Missed
from satwatch.errors import DeadlineError


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of one call's patience; every part of the call shares it.

    Attributes:
        seconds: how long the call may take.
        ends: the clock's reading at its end.
        clock: counts seconds.
    """

    seconds: float
    ends: float
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """Start now."""
        return cls(seconds, clock() + seconds, clock)

    @property
    def remaining(self) -> float:
        """Seconds left, 0 or more."""
        return max(0.0, self.ends - self.clock())

    def missed(self, what: str) -> Missed:
        """Say that it has passed."""
        return Missed(DeadlineError(f"{what}: no answer within {self.seconds:g} s"))
