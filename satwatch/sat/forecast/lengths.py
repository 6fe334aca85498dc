r"""Response lengths: their moments, and how much of a response is still to come when a token is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Final, TypeAlias

import numpy as np

from satwatch.errors import ConfigError, required
from satwatch.types import is_number

PartialMoments: TypeAlias = Callable[[float], tuple[float, float, float]]

LONGEST: Final = 1e9
WIDEST: Final = 10.0
# A sum over events goes this far by terms, and on as an integral.
TERMS: Final = 500


@dataclass(frozen=True, slots=True)
class Lengths:
    r"""A distribution of response lengths L, in tokens.

    Attributes:
        mean: E[L].
        cv: standard deviation over mean; 0 is one length for all.
        partial_moments: r -> P(L > r), E[L; L > r] and E[L^2; L > r].
    """

    mean: float
    cv: float
    partial_moments: PartialMoments = field(repr=False, compare=False)

    @classmethod
    def lognormal(cls, mean: float, cv: float) -> Lengths:
        """Make the lognormal distribution of a mean and a coefficient of variation.

        Raises:
            ConfigError: a mean below 1 token or above 1e9, or a cv below 0 or above 10.

        >>> Lengths.lognormal(4000.0, 1.0).token_remainder
        4000.0
        """
        if not (is_number(mean) and 1 <= mean <= LONGEST):
            raise ConfigError(required("length_mean", repr(mean), "a number of tokens from 1 to 1e9"))
        if not (is_number(cv) and 0 <= cv <= WIDEST):
            raise ConfigError(required("length_cv", repr(cv), "a number from 0 to 10"))
        mean, cv = float(mean), float(cv)
        # So narrow a lognormal is one length, and its standard deviation may round to 0.
        return cls(mean, cv, _lognormal(mean, cv) if cv > 1e-6 else _seen(np.array([mean])))

    @classmethod
    def of(cls, lengths: Iterable[float]) -> Lengths:
        """Make the distribution of lengths that were seen.

        Raises:
            ConfigError: no length, or one that isn't a number from 1 to 1e9.

        >>> Lengths.of([1000, 3000]).cv
        0.5
        """
        seen = np.asarray(list(lengths), dtype=np.float64)
        if not seen.size or not ((seen >= 1) & (seen <= LONGEST)).all():
            raise ConfigError(required("lengths", f"{seen.size} values", "one or more, each from 1 to 1e9"))
        return cls(float(seen.mean()), float(seen.std() / seen.mean()), _seen(seen))

    @property
    def token_remainder(self) -> float:
        r"""Tokens that follow a token in its response, mean over tokens: :math:`E[L^2] / (2 E[L])`."""
        return self.mean * (1 + self.cv**2) / 2

    def passes(self, count: int, tokens: float) -> float:
        r"""Return the share of tokens after which ``count`` events or more still fall into their response.

        .. math:: P(K \ge k) = \frac{G((k - 1) c) - G(k c)}{c}, \quad G(r) = \frac{E[(L - r)_+^2]}{2 E[L]}

        The remainder R of a token has P(R > r) = E[(L - r)+] / E[L], and events come every c tokens, at a phase that
        knows nothing of the response.

        Args:
            count: k, whole.
            tokens: c, above 0.
        """
        if count <= 0:
            return 1.0
        before, after = (self._second_excess(n * tokens) for n in (count - 1, count))
        return min(1.0, max(0.0, (before - after) / (2 * self.mean * tokens)))

    def passes_from_start(self, tokens: float) -> float:
        r"""Return the events that follow a token in its response, mean, if every response begins with an event.

        .. math:: E[K] = \frac{c}{E[L]} \sum_{n \ge 1} n \, P(L > n c)

        Args:
            tokens: c, above 0.
        """
        total = sum(n * self.partial_moments(n * tokens)[0] for n in range(1, TERMS + 1))
        end = (TERMS + 0.5) * tokens
        share, _, second = self.partial_moments(end)
        rest = max(0.0, second - end * end * share) / (2 * tokens * tokens)
        return (total + rest) * tokens / self.mean

    def ended_within(self, r: float) -> float:
        """Return the share of tokens in responses of at most r tokens."""
        return max(0.0, 1 - self.partial_moments(r)[1] / self.mean)

    def own_remainder(self, r: float) -> float:
        r"""Return what a slot does not add to the versions that its own response sees pass, in tokens.

        .. math:: \frac{E[(L^2 - r^2)_+]}{2 E[L]} - r \, P(L > r)

        A version comes r tokens after the response's end that started its step. None of a slot's ends lies inside its
        own response (the first term); one lies at its beginning (the second).
        """
        share, _, second = self.partial_moments(r)
        return max(0.0, (second - r * r * share) / (2 * self.mean) - r * share)

    def _second_excess(self, r: float) -> float:
        share, first, second = self.partial_moments(r)
        return max(0.0, second - 2 * r * first + r * r * share)


def _lognormal(mean: float, cv: float) -> PartialMoments:
    """Return the partial moments of a lognormal: normal probabilities."""
    variance = math.log1p(cv**2)
    sigma, location = math.sqrt(variance), math.log(mean) - variance / 2
    normal = NormalDist().cdf

    def partial_moments(r: float) -> tuple[float, float, float]:
        z = (location - math.log(r)) / sigma if r > 0 else math.inf
        return normal(z), mean * normal(z + sigma), mean**2 * (1 + cv**2) * normal(z + 2 * sigma)

    return partial_moments


def _seen(lengths: np.ndarray[tuple[int], np.dtype[np.float64]]) -> PartialMoments:
    """Return the partial moments of a sample: sums over its longest."""
    ordered = np.sort(lengths)
    sums = [np.concatenate((np.cumsum((ordered**power)[::-1])[::-1], [0.0])) / len(ordered) for power in (0, 1, 2)]

    def partial_moments(r: float) -> tuple[float, float, float]:
        first = int(np.searchsorted(ordered, r, side="right"))
        share, mean, second = (float(part[first]) for part in sums)
        return share, mean, second

    return partial_moments
