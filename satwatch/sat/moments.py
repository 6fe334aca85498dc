"""What a batch adds up to: counts and float64 sums that merge exactly by addition.

Means, KL estimates, chi-square and ESS of any union of batches follow from these; a mean of means never does.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from satwatch.sat.quantile import Floats

Float64s: TypeAlias = npt.NDArray[np.float64]

EXTREME: Final = 20.0
LARGEST: Final = sys.float_info.max
# Below this, expm1(d) - d loses digits that its series keeps.
SERIES_MAX: Final = 1e-3


def saturate(value: float) -> float:
    """Return a value that overflowed as the largest double, of either sign.

    >>> saturate(math.inf) == LARGEST == -saturate(-math.inf)
    True
    """
    return max(-LARGEST, min(value, LARGEST))


def total_of(values: Float64s) -> float:
    """Sum finite doubles; where the sum overflows, it saturates with the right sign."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(values.sum())
    # A power of two scales without rounding; infinities of both signs in a partial sum would make NaN.
    return total if math.isfinite(total) else saturate(float((values * 2.0**-64).sum()) * 2.0**64)


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over the active tokens of a batch; over those with a finite d unless said otherwise.

    Attributes:
        tokens: active tokens, finite or not.
        nan_tokens: those with a NaN d.
        inf_tokens: those with an infinite d.
        extreme_tokens: those with abs(d) > 20, infinite ones included.
        total: sum of d, nats.
        absolute: sum of abs(d).
        square: sum of d**2.
        k3: sum of expm1(d) - d.
        deviation: sum of abs(expm1(d)).
        excess_square: sum of expm1(2 d); infinite when it overflows.
        highest: the largest d; -inf when there is none.
        ratio: sum of exp(d - highest), so that no ratio overflows or vanishes.
        ratio_square: sum of exp(2 (d - highest)).
        farthest: the largest abs(d); -inf when there is none.
    """

    tokens: int = 0
    nan_tokens: int = 0
    inf_tokens: int = 0
    extreme_tokens: int = 0
    total: float = 0.0
    absolute: float = 0.0
    square: float = 0.0
    k3: float = 0.0
    deviation: float = 0.0
    excess_square: float = 0.0
    highest: float = -math.inf
    ratio: float = 0.0
    ratio_square: float = 0.0
    farthest: float = -math.inf

    @property
    def finite_tokens(self) -> int:
        """Active tokens with a finite d."""
        return self.tokens - self.nan_tokens - self.inf_tokens

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both batches together."""
        merged: dict[str, Any] = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        highest = max(self.highest, other.highest)
        scales = [0.0 if m.highest == -math.inf else math.exp(m.highest - highest) for m in (self, other)]
        merged |= {
            "highest": highest,
            "farthest": max(self.farthest, other.farthest),
            "ratio": self.ratio * scales[0] + other.ratio * scales[1],
            "ratio_square": self.ratio_square * scales[0] ** 2 + other.ratio_square * scales[1] ** 2,
        }
        return Moments(**merged)

    def diagnostics(self) -> dict[str, float]:
        """Return what follows from the moments; nothing when no token is finite (table 10 and eq. 52)."""
        n = self.finite_tokens
        if n == 0:
            return {}
        chi2 = self.excess_square / n
        if math.isinf(chi2):
            log_mean = 2 * self.highest + math.log(self.ratio_square / n)
            chi2 = math.expm1(log_mean) if log_mean < math.log(LARGEST) else LARGEST
        return {
            "log_ratio_mean": saturate(self.total / n),
            "log_ratio_abs_mean": saturate(self.absolute / n),
            "log_ratio_abs_max": self.farthest,
            "kl_k1": saturate(-self.total / n),
            "kl_k2": saturate(self.square / n / 2),
            "kl_k3": saturate(self.k3 / n),
            "tv_sampled": saturate(self.deviation / n / 2),
            "chi2": saturate(chi2),
            "ess_ratio": self.ratio**2 / (n * self.ratio_square),
            "ratio_max": math.exp(self.highest) if self.highest < math.log(LARGEST) else LARGEST,
        }


def take_moments(tokens: Floats) -> Moments:
    """Sum a batch up, in float64 whatever the input.

    Args:
        tokens: d of the active tokens, nats, (n,), float32 or float64.

    Costs two transcendental functions a token.
    """
    finite = np.isfinite(tokens)
    nan_tokens = int(np.count_nonzero(np.isnan(tokens)))
    d: Float64s = (tokens if finite.all() else tokens[finite]).astype(np.float64)
    inf_tokens = len(tokens) - nan_tokens - len(d)
    counts: dict[str, Any] = {"tokens": len(tokens), "nan_tokens": nan_tokens, "inf_tokens": inf_tokens}
    if not len(d):
        return Moments(**counts, extreme_tokens=inf_tokens)
    magnitude = np.abs(d)
    highest = float(d.max())
    with np.errstate(over="ignore"):
        scaled = np.exp(d - highest)
        return Moments(
            **counts,
            extreme_tokens=int(np.count_nonzero(magnitude > EXTREME)) + inf_tokens,
            total=total_of(d),
            absolute=total_of(magnitude),
            square=float(np.square(d).sum()),
            highest=highest,
            ratio=float(scaled.sum()),
            ratio_square=float(np.square(scaled).sum()),
            farthest=float(magnitude.max()),
            **_excess_sums(d, magnitude),
        )


def _excess_sums(d: Float64s, magnitude: Float64s) -> dict[str, Any]:
    excess = np.expm1(d)
    above = excess - d
    small = np.flatnonzero(magnitude < SERIES_MAX)
    x = d[small]
    above[small] = x * x * (1 / 2 + x * (1 / 6 + x * (1 / 24 + x / 120)))
    return {
        "k3": float(above.sum()),
        "deviation": float(np.abs(excess).sum()),
        # expm1(2 d) = e (e + 2) with e = expm1(d).
        "excess_square": float((excess * (excess + 2.0)).sum()),
    }
