"""What an exact 0.90 quantile costs, satwatch's and the usual ways, each from the same log-ratios to the number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from satwatch.bench.timing import Timing, take_turns
from satwatch.bench.workload import MICROBATCH, log_ratios
from satwatch.sat import quantile_reference
from satwatch.sat.quantile import rank

ALPHA: Final = 0.9
MIB: Final = 2**20
# torch.quantile takes no more elements than this.
TORCH_QUANTILE_MAX: Final = 16 * MIB


@dataclass(frozen=True, slots=True)
class Selection:
    """One method at one size.

    Attributes:
        method: satwatch, or the function measured.
        tokens: log-ratios in the batch.
        nanoseconds_per_element: median.
        exact: the result is one of the batch's own values, the k-th smallest.
        timing: the whole call.
    """

    method: str
    tokens: int
    nanoseconds_per_element: float
    exact: bool
    timing: Timing


def sizes(*, quick: bool, large: bool) -> tuple[int, ...]:
    """Return the batch sizes to measure, in tokens."""
    if quick:
        return (MICROBATCH,)
    return (MICROBATCH, MIB, 16 * MIB) if large else (MICROBATCH, MIB)


def measure_selection(tokens: int, *, quick: bool) -> Iterator[Selection]:
    """Measure every method on one batch."""
    log_ratio = log_ratios(tokens)
    calls = _methods(log_ratio)
    repeats = 5 if quick or tokens > MIB else 200 if tokens == MICROBATCH else 30
    exact = float(quantile_reference(log_ratio, ALPHA))
    for method, timing in take_turns(calls, repeats=repeats, warm_ups=2).items():
        yield Selection(method, tokens, timing.median * 1e9 / tokens, calls[method]() == exact, timing)


def _methods(log_ratio: torch.Tensor) -> dict[str, Callable[[], float]]:
    array = log_ratio.numpy()
    k = rank(len(array), ALPHA)
    methods: dict[str, Callable[[], float]] = {
        "satwatch": lambda: float(quantile_reference(log_ratio, ALPHA)),
        "np.partition": lambda: float(np.partition(np.abs(array), k - 1)[k - 1]),
        "torch.kthvalue": lambda: float(torch.kthvalue(log_ratio.abs(), k).values),
        "np.sort": lambda: float(np.sort(np.abs(array))[k - 1]),
    }
    if len(array) <= TORCH_QUANTILE_MAX:
        methods["torch.quantile"] = lambda: float(torch.quantile(log_ratio.abs(), ALPHA))
    return methods
