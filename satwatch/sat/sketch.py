r"""A batch of any size as counts: exact per bfloat16 code of d, merged by addition.

A code is the upper 16 bits of d as float32, truncated towards zero: sign, exponent and 7 mantissa bits. Codes have
the order of magnitudes, so quantiles and tail shares follow within a relative :math:`2^{-7}`, and the exact q is found
by one more look at the tokens of a single bucket.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from satwatch.errors import InvalidBatchError, required
from satwatch.sat.moments import Moments, take_moments
from satwatch.sat.quantile import CHUNK, Floats, rank
from satwatch.types import Rule

INFINITY_CODE: Final = 0x7F80
NAN_CODE: Final = 0x7FC0
MAGNITUDE: Final = 0x7FFF


def encode(values: Floats) -> npt.NDArray[np.uint16]:
    """Return the code of each value; NaN has a code above infinity's.

    >>> encode(np.array([1.0, -1.0, 1.0078125, 1.01], np.float32)).tolist()
    [16256, 49024, 16257, 16257]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = values.astype(np.float32, copy=False)
    if values.dtype != np.float32:
        # Rounding to nearest may have left the bucket upwards; truncation never does.
        outside = np.flatnonzero(np.abs(narrow) > np.abs(values))
        narrow[outside] = np.nextafter(narrow[outside], np.float32(0))
    codes = (narrow.view(np.uint32) >> 16).astype(np.uint16)
    missing = np.isnan(narrow)
    if missing.any():
        codes[missing] = NAN_CODE  # a NaN whose payload is in the lower bits alone would read as infinity
    return codes


def decode(code: int) -> float:
    """Return the value of least magnitude that has a code.

    >>> decode(16256)
    1.0
    """
    return float(np.array(code << 16, dtype=np.uint32).view(np.float32))


def magnitudes(codes: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Return the least magnitude that has each code, of either sign.

    >>> magnitudes(np.array([16256, 49024], np.uint16)).tolist()
    [1.0, 1.0]
    """
    return ((codes & MAGNITUDE).astype(np.uint32) << 16).view(np.float32)


@dataclass(frozen=True, slots=True)
class Bracket:
    """The bucket that holds a quantile.

    Attributes:
        code: the bucket, a magnitude's code.
        rank: which of the bucket's magnitudes the quantile is, from 1, in ascending order.
    """

    code: int
    rank: int


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """Counts per code, and the exact moments of the same tokens.

    Attributes:
        codes: the codes that occur, ascending, uint16 (m,); NaN has none.
        counts: tokens of each, int64 (m,).
        moments: the exact sums.
    """

    codes: npt.NDArray[np.uint16]
    counts: npt.NDArray[np.int64]
    moments: Moments

    def __eq__(self, other: object) -> bool:
        """Compare codes, counts and moments."""
        if not isinstance(other, Sketch):
            return NotImplemented
        same = np.array_equal(self.codes, other.codes) and np.array_equal(self.counts, other.counts)
        return same and self.moments == other.moments

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def build(cls, tokens: Floats) -> Sketch:
        """Count a batch.

        Args:
            tokens: d of the active tokens, nats, (n,), float32 or float64.
        """
        dense = np.bincount(encode(tokens[:CHUNK]), minlength=1 << 16)
        for start in range(CHUNK, len(tokens), CHUNK):
            dense += np.bincount(encode(tokens[start : start + CHUNK]), minlength=1 << 16)
        return _compress(dense, take_moments(tokens))

    @classmethod
    def empty(cls) -> Sketch:
        """Return the sketch of no tokens, the unit of :meth:`merge`."""
        return cls(np.empty(0, np.uint16), np.empty(0, np.int64), Moments())

    def merge(self, other: Sketch) -> Sketch:
        """Return the sketch of both batches together: equal to the sketch of all their tokens."""
        codes, where = np.unique(np.concatenate([self.codes, other.codes]), return_inverse=True)
        counts = np.zeros(len(codes), dtype=np.int64)
        np.add.at(counts, where, np.concatenate([self.counts, other.counts]))
        return Sketch(codes, counts, self.moments.merge(other.moments))

    def _magnitudes(self, *, infinite: bool) -> npt.NDArray[np.int64]:
        """Return counts by magnitude code, both signs together."""
        # Doubles are exact up to 2**53 tokens.
        dense = np.bincount(self.codes & MAGNITUDE, weights=self.counts, minlength=1 << 15)
        return dense[: INFINITY_CODE + 1 if infinite else INFINITY_CODE].astype(np.int64)

    def bracket(self, quantile: float) -> Bracket | None:
        """Return the bucket of the quantile of abs(d), infinite ones included; None when there are no tokens.

        Every rank that holds some of the tokens then looks into its own bucket: see :func:`refine`.
        """
        return _find(self._magnitudes(infinite=True), quantile)

    def quantile(self, quantile: float) -> float:
        """Return the quantile of finite abs(d), at most a relative 2**-7 below the exact one; NaN without tokens."""
        Rule(quantile=quantile)
        found = _find(self._magnitudes(infinite=False), quantile)
        return math.nan if found is None else decode(found.code)

    def exact_quantiles(self, quantiles: Sequence[float], tokens: Floats) -> tuple[float, ...]:
        """Return the exact quantiles of finite abs(d), from the tokens that this sketch counted; none without one."""
        magnitudes, codes = self._magnitudes(infinite=False), encode(tokens) & MAGNITUDE
        brackets = [_find(magnitudes, alpha) for alpha in quantiles]
        return tuple(_refine(b, [tokens[np.flatnonzero(codes == b.code)]]) for b in brackets if b is not None)

    def tail_share(self, threshold: float) -> float:
        """Return the share of tokens with abs(d) above the bucket of a threshold; NaN without tokens.

        Counts what is above threshold * (1 + 2**-7) at least and above threshold at most.

        Raises:
            InvalidBatchError: a threshold that is negative or NaN.
        """
        if not threshold >= 0:
            raise InvalidBatchError(required("threshold", threshold, "a number of 0 or more"))
        magnitudes = self._magnitudes(infinite=True)
        n = int(magnitudes.sum())
        code = int(encode(np.array([threshold]))[0])
        return float(magnitudes[code + 1 :].sum()) / n if n else math.nan


def _compress(dense: npt.NDArray[np.int64], moments: Moments) -> Sketch:
    dense[INFINITY_CODE + 1 : 1 << 15] = 0
    dense[(1 << 15) + INFINITY_CODE + 1 :] = 0
    codes = np.flatnonzero(dense != 0)  # of booleans: six times as fast as of the counts
    return Sketch(codes.astype(np.uint16), dense[codes], moments)


def _find(magnitudes: npt.NDArray[np.int64], quantile: float) -> Bracket | None:
    cumulative = np.cumsum(magnitudes)
    n = int(cumulative[-1])
    if n == 0:
        return None
    k = rank(n, quantile)
    code = int(np.searchsorted(cumulative, k))
    return Bracket(code, k - int(cumulative[code] - magnitudes[code]))


def refine(bracket: Bracket, batches: Iterable[Floats]) -> float:
    """Return the exact quantile: the bracket's rank among the magnitudes of its bucket.

    Args:
        bracket: from the merged sketch of all the batches.
        batches: the tokens that the sketch counted, in any order and split.

    Raises:
        InvalidBatchError: the batches hold fewer tokens of the bucket than the sketch counted.
    """
    return _refine(bracket, [b[np.flatnonzero((encode(b) & MAGNITUDE) == bracket.code)] for b in batches])


def _refine(bracket: Bracket, members: Sequence[Floats]) -> float:
    inside = np.abs(np.concatenate([np.empty(0), *members]))
    if len(inside) < bracket.rank:
        came = f"{len(inside)} tokens of the bucket"
        raise InvalidBatchError(required("batches", came, f"{bracket.rank} or more: all the tokens of the sketch"))
    inside.partition(bracket.rank - 1)
    return float(inside[bracket.rank - 1])
