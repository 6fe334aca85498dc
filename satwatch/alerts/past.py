"""A run's own past: what the present step is compared with, in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

RECENT: Final = 128
KEPT: Final = 512


class Mark(NamedTuple):
    """A value of the past, and the version lag it was seen at (None: unknown)."""

    value: float
    lag: float | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """The values so far: the latest ones, and an even sample of all.

    The sample keeps every value, then every second one, every fourth, and so on, so that at no time a present that
    drifts can push the beginning out.

    Attributes:
        count: values seen.
        recent: the latest ``RECENT``.
        sample: every ``stride``-th value since the beginning, at most ``KEPT``.
        stride: a power of two.

    >>> past = Past()
    >>> for value in (0.010, 0.018):
    ...     past = past.add(value)
    >>> round(past.median(), 3)
    0.014
    """

    count: int = 0
    recent: tuple[float, ...] = ()
    sample: tuple[Mark, ...] = ()
    stride: int = 1

    def add(self, value: float | None, lag: float | None = None) -> Past:
        """Return the past with one more value; one that is unknown or not finite is none."""
        if value is None or not math.isfinite(value):
            return self
        sample, stride = self.sample, self.stride
        if self.count % stride == 0:
            if len(sample) == KEPT:
                sample, stride = sample[::2], stride * 2
            # After a halving the count is a multiple of the new stride as well: KEPT is even.
            sample = (*sample, Mark(value, lag))
        return Past(self.count + 1, (*self.recent, value)[-RECENT:], sample, stride)

    def median(self) -> float | None:
        """Return the median of the latest values; None without any."""
        return median(self.recent) if self.recent else None

    def comparable(self, lag: float | None = None, share: float = 0.0) -> tuple[float, ...]:
        """Return the sampled values, without those seen at less than a share of a lag."""
        if lag is None:
            return tuple(mark.value for mark in self.sample)
        return tuple(mark.value for mark in self.sample if mark.lag is None or mark.lag >= share * lag)


def quantile(values: tuple[float, ...], share: float) -> float:
    """Return the k-th smallest value, k the least integer with k / n >= share; there is at least one value.

    >>> quantile((3.0, 1.0, 2.0), 0.5)
    2.0
    """
    n = len(values)
    return sorted(values)[next(k for k in range(1, n + 1) if k / n >= share) - 1]
