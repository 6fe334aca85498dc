"""Timings that can be compared: the candidates take turns in one loop, and whatever the machine does hits them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

WARM_UPS: Final = 5


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a call took.

    Attributes:
        median: seconds.
        p99: seconds; of few repeats it's close to the maximum.
        repeats: calls measured.
    """

    median: float
    p99: float
    repeats: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timing:
        """Sum measured calls up."""
        p99 = np.quantile(seconds, 0.99, method="inverted_cdf")
        return cls(float(np.median(seconds)), float(p99), len(seconds))


def take_turns(
    calls: Mapping[str, Callable[[], object]], *, repeats: int, warm_ups: int = WARM_UPS
) -> dict[str, Timing]:
    """Time calls round by round, in a random order that's the same every time, after some rounds that don't count.

    Args:
        calls: the candidates by name.
        repeats: rounds that count.
        warm_ups: rounds that don't count.
    """
    # No candidate always runs after the same one, whose work may not be over, in another process, when it returns.
    order = np.random.default_rng(0)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(warm_ups + repeats):
        for name in order.permutation(list(calls)).tolist():
            began = time.perf_counter()
            calls[name]()
            took = time.perf_counter() - began
            if turn >= warm_ups:
                seconds[name].append(took)
    return {name: Timing.of(took) for name, took in seconds.items()}
