"""Timings that can be compared: the candidates take turns in one loop, and whatever the machine does hits them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

WARM_UPS: Final = 5
BLOCK: Final = 25


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
            took = _time(calls[name])
            if turn >= warm_ups:
                seconds[name].append(took)
    return {name: Timing.of(took) for name, took in seconds.items()}


def alternate(
    calls: Mapping[str, Callable[[], object]], *, seconds: float, block: int = BLOCK
) -> dict[str, list[list[float]]]:
    """Time blocks of calls, round by round in a shuffled order as :func:`take_turns`, until the time is over.

    For candidates whose work goes on after a call returns: a block meets its own, and its first call the other's.
    What comes in bursts, such as a probe's rounds, hits several blocks of each.

    Args:
        calls: the candidates by name.
        seconds: how long; a round that has begun is ended, and one counts at least, after one that doesn't.
        block: calls of a candidate in a row.

    Returns:
        Seconds of each call, by candidate and block; the n-th blocks of all candidates are of one round.
    """
    order = np.random.default_rng(0)
    blocks: dict[str, list[list[float]]] = {name: [] for name in calls}
    ends, turn = time.perf_counter() + seconds, 0
    while turn < 2 or time.perf_counter() < ends:
        for name in order.permutation(list(calls)).tolist():
            took = [_time(calls[name]) for _ in range(block)]
            if turn:
                blocks[name].append(took)
        turn += 1
    return blocks


def _time(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
