r"""The exact tail threshold q: eq. 13 of arXiv 2607.18722.

.. math:: q = \inf \{ x \ge 0 : F(x) \ge \alpha \}

with F the empirical distribution of the magnitudes: the k-th smallest, k the least integer with k / n >= alpha, the
division being IEEE's. No interpolation and no sort. A magnitude's bits, read as an integer, have the order of the
magnitude, and NaN comes after infinity: selection works on the bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from satwatch.sat.layout import check_mask, lay_out, require_floats
from satwatch.types import Rule

Floats: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Bits: TypeAlias = npt.NDArray[np.signedinteger[Any]]

# Below this many elements one partition is as quick as a bracket.
SMALL: Final = 1 << 12
SAMPLE: Final = 1 << 11
CHUNK: Final = 1 << 16
DIGIT: Final = 16


def rank(n: int, quantile: float) -> int:
    """Return k, the least integer of 1 to n with k / n >= quantile in IEEE double division.

    ``ceil(quantile * n)`` is not it: the product rounds.

    >>> rank(100, 0.55), rank(25, 0.28), rank(10, 0.9)
    (55, 7, 9)
    """
    k = min(n, max(1, math.ceil(quantile * n)))
    while k > 1 and (k - 1) / n >= quantile:
        k -= 1
    while k < n and k / n < quantile:
        k += 1
    return k


def magnitude_bits(values: Floats) -> Bits:
    """Return abs(values) as integers of the same order; NaN is above infinity."""
    integer: type[Any] = np.int32 if values.dtype == np.float32 else np.int64
    bits: Bits = np.bitwise_and(values.view(integer), np.iinfo(integer).max)
    return bits


def infinity_bits(dtype: np.dtype[Any]) -> int:
    """Return the bits of infinity in float32 or float64."""
    return 0x7F80_0000 if dtype == np.float32 else 0x7FF0_0000_0000_0000


def bits_value(bits: int, dtype: np.dtype[Any]) -> float:
    """Return the number with these bits in float32 or float64."""
    return float(np.array(bits, dtype=np.int32 if dtype == np.float32 else np.int64).view(dtype))


def smallest(values: Floats, quantile: float) -> float:
    """Return the exact quantile of abs(values), NaN values left out; NaN if none is left.

    Args:
        values: (n,), float32 or float64, contiguous, any n.
        quantile: alpha, inside (0, 1).

    A strided sample brackets the answer (Floyd and Rivest's idea), one pass counts what lies below the bracket and
    keeps what lies inside, and a partition of that part finds it. An order of values that fools the sample costs a
    second way, counting digits.
    """
    bracket = (0, infinity_bits(values.dtype)) if len(values) < SMALL else _bracket(values, quantile)
    found = _select_between(values, quantile, *bracket)
    return _select_by_digits(values, quantile) if found is None else found


def _chunks(values: Floats) -> Iterator[Bits]:
    for start in range(0, len(values), CHUNK):
        yield magnitude_bits(values[start : start + CHUNK])


def _bracket(values: Floats, quantile: float) -> tuple[int, int]:
    """Guess two bit patterns around the quantile from a strided sample, four standard deviations apart each way."""
    infinity = infinity_bits(values.dtype)
    sample = magnitude_bits(values[:: len(values) // SAMPLE])
    sample.sort()
    n = int(np.searchsorted(sample, infinity, side="right"))
    margin = 2 + 4 * math.sqrt(n * quantile * (1 - quantile))
    low, high = math.floor(n * quantile - margin), math.ceil(n * quantile + margin)
    return (int(sample[low]) if low >= 0 else 0), (int(sample[high]) if high < n else infinity)


def _select_between(values: Floats, quantile: float, low: int, high: int) -> float | None:
    """Find the quantile among the values whose bits are in [low, high]; None if it is not there."""
    n, below, inside = 0, 0, []
    for bits in _chunks(values):
        n += _numbers(bits, values.dtype)
        above = bits >= low
        below += len(bits) - int(np.count_nonzero(above))
        inside.append(bits[np.flatnonzero(above & (bits <= high))])
    if n == 0:
        return math.nan
    k = rank(n, quantile) - below
    candidates = np.concatenate(inside)
    if not 1 <= k <= len(candidates):
        return None
    candidates.partition(k - 1)
    return bits_value(int(candidates[k - 1]), values.dtype)


def _numbers(bits: Bits, dtype: np.dtype[Any]) -> int:
    """Count what is not NaN."""
    infinity = infinity_bits(dtype)
    # Looking for the largest costs half of counting, and NaN is rare.
    return len(bits) if not len(bits) or bits.max() <= infinity else int(np.count_nonzero(bits <= infinity))


def _select_by_digits(values: Floats, quantile: float) -> float:
    """Find the quantile's bits from the highest digit down: count a digit, keep the bucket that holds the rank."""
    n = sum(_numbers(bits, values.dtype) for bits in _chunks(values))
    if n == 0:
        return math.nan
    k, prefix = rank(n, quantile), 0
    for shift in range(values.dtype.itemsize * 8 - DIGIT, -1, -DIGIT):
        counts = np.zeros(1 << DIGIT, dtype=np.int64)
        for bits in _chunks(values):
            # NaN lies above every number, so it never shifts a rank and needs no filter.
            digits = bits >> shift
            inside = digits[(digits >> DIGIT) == prefix]
            counts += np.bincount(inside & ((1 << DIGIT) - 1), minlength=1 << DIGIT)
        cumulative = np.cumsum(counts)
        digit = int(np.searchsorted(cumulative, k))
        k -= int(cumulative[digit] - counts[digit])
        prefix = (prefix << DIGIT) | digit
    return bits_value(prefix, values.dtype)


def smallest_weighted(values: npt.NDArray[np.float64], weights: npt.NDArray[np.int64], quantile: float) -> float:
    """Return the exact quantile of abs(values), each counted ``weights`` times; NaN values left out.

    Args:
        values: (S,), float64: few, such as one a sequence.
        weights: (S,), 0 or more.
        quantile: alpha, inside (0, 1).
    """
    kept = ~np.isnan(values) & (weights > 0)
    magnitudes, counts = np.abs(values[kept]), weights[kept]
    n = int(counts.sum())
    if n == 0:
        return math.nan
    order = np.argsort(magnitudes, kind="stable")
    position = np.searchsorted(np.cumsum(counts[order]), rank(n, quantile))
    return float(magnitudes[order[position]])


def select_on_device(values: torch.Tensor, active: torch.Tensor | None, quantile: float) -> torch.Tensor:
    """Return the exact quantile of abs(values) without a host synchronisation.

    Args:
        values: float32 or float64, any shape, any device.
        active: booleans in the same shape, or None: all.
        quantile: alpha, inside (0, 1).

    Returns:
        A 0-d float64 tensor on the device; NaN if no value is active and a number.

    Counts one 16-bit digit at a time, from the highest, with a scatter-add.
    """
    wide = values.dtype == torch.float64
    width, integer = (64, torch.int64) if wide else (32, torch.int32)
    bits = values.detach().reshape(-1).view(integer) & torch.iinfo(integer).max
    inside = bits <= infinity_bits(np.dtype(np.float64 if wide else np.float32))
    if active is not None:
        inside = inside & active.reshape(-1)
    n = inside.sum()
    k = _rank_on_device(n, quantile)
    found = torch.zeros((), dtype=torch.int64, device=values.device)
    ones = torch.ones((), dtype=torch.int64, device=values.device).expand(bits.shape)
    for shift in range(width - DIGIT, -1, -DIGIT):
        digits = (bits >> shift).to(torch.int64) & ((1 << DIGIT) - 1)
        slots = torch.where(inside, digits, 1 << DIGIT)
        counts = torch.zeros((1 << DIGIT) + 1, dtype=torch.int64, device=values.device).scatter_add_(0, slots, ones)
        cumulative = counts[:-1].cumsum(0)
        digit = (cumulative < k).sum().clamp(max=(1 << DIGIT) - 1)
        k = k - cumulative.gather(0, digit.view(1))[0] + counts.gather(0, digit.view(1))[0]
        inside = inside & (digits == digit)
        found = (found << DIGIT) | digit
    number = found.view(torch.float64) if wide else found.to(torch.int32).view(torch.float32).to(torch.float64)
    return torch.where(n > 0, number, torch.nan)


def _rank_on_device(n: torch.Tensor, quantile: float) -> torch.Tensor:
    """Compute :func:`rank` of a count that stays on the device: the product is off by one at most."""
    count = n.to(torch.float64)
    guess = torch.ceil(count * quantile) + torch.arange(-2, 3, device=n.device, dtype=torch.float64)
    reaches = (guess / count >= quantile) & (guess >= 1)
    return torch.where(reaches, guess, torch.inf).amin().clamp(max=count).to(torch.int64)


def quantile_reference(
    log_ratio: torch.Tensor, quantile: float = 0.9, *, mask: torch.Tensor | None = None
) -> torch.Tensor:
    r"""Compute the tail threshold of a batch at token level.

    .. math:: q = \inf \{ x \ge 0 : F_{\lvert d \rvert}(x) \ge \alpha \}

    Args:
        log_ratio: d, nats, (B, T) or (N,), float64, float32, bfloat16 or float16.
        quantile: alpha, inside (0, 1).
        mask: the active tokens, in the same shape; None: all.

    Returns:
        q, one of the batch's own magnitudes, a detached 0-d tensor on the input's device, float32 for half-precision
        input, else the input's dtype; NaN if no active token has a number.

    Raises:
        ConfigError: alpha outside (0, 1).
        InvalidBatchError: a shape or dtype that does not fit.

    Source: arXiv 2607.18722, eq. 13. On a CPU n log-ratios cost one partition; on another device two counting passes
    and no host synchronisation.

    >>> float(quantile_reference(torch.arange(1.0, 11.0), 0.9))
    9.0
    """
    Rule(quantile=quantile)
    require_floats("log_ratio", log_ratio)
    dtype = torch.float64 if log_ratio.dtype == torch.float64 else torch.float32
    if log_ratio.device.type != "cpu":
        active = None if mask is None else check_mask(mask, log_ratio.shape)
        return select_on_device(log_ratio.to(dtype), active, quantile).to(dtype)
    values = lay_out(log_ratio, mask).take("log_ratio", log_ratio).to(dtype).contiguous().numpy()
    return torch.tensor(smallest(values, quantile), dtype=dtype, device="cpu")
