r"""Where the mismatch comes from: policy drift or the engine (eqs. 2, 25 and 26 of arXiv 2607.18722).

.. math:: d = \delta_{policy} + \delta_{impl}, \quad
    \delta_{policy} = \log \pi_j - \log \pi_l, \quad \delta_{impl} = \log \pi_l - \log \mu

with pi_j the policy that consumes a token, pi_l the trainer's policy at the weights that generated it, and mu what the
engine really sampled from. Tokens of lag 0 have pi_j = pi_l: their d is the engine's share alone, for free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from satwatch.errors import InvalidBatchError, required
from satwatch.sat.moments import saturate, total_of
from satwatch.sat.quantile import CHUNK, Floats
from satwatch.types import VersionRun


@dataclass(frozen=True, slots=True)
class Gap:
    """A log difference as sums over the tokens where it is known and finite.

    Attributes:
        tokens: those tokens.
        total: its sum, nats.
        absolute: the sum of its magnitude.
    """

    tokens: int = 0
    total: float = 0.0
    absolute: float = 0.0

    @classmethod
    def of(cls, values: Floats) -> Gap:
        """Sum the finite ones of some values up, in float64."""
        finite = values[np.isfinite(values)].astype(np.float64)
        return cls(len(finite), total_of(finite), total_of(np.abs(finite)))

    @property
    def mean(self) -> float | None:
        """The mean; None without a token."""
        return saturate(self.total / self.tokens) if self.tokens else None

    @property
    def absolute_mean(self) -> float | None:
        """The mean magnitude; None without a token."""
        return saturate(self.absolute / self.tokens) if self.tokens else None

    def merge(self, other: Gap) -> Gap:
        """Return the sums of both together."""
        return Gap(self.tokens + other.tokens, self.total + other.total, self.absolute + other.absolute)


@dataclass(frozen=True, slots=True)
class Deltas:
    """The parts of d, as sums.

    Attributes:
        policy: log pi(j) - log pi(l), over the tokens where both parts are known and finite.
        impl: log pi(l) - log mu, over the same.
        lag_0: d over the tokens of lag 0: the floor, for free.
    """

    policy: Gap = field(default_factory=Gap)
    impl: Gap = field(default_factory=Gap)
    lag_0: Gap = field(default_factory=Gap)

    def merge(self, other: Deltas) -> Deltas:
        """Return the sums of both together."""
        return Deltas(self.policy.merge(other.policy), self.impl.merge(other.impl), self.lag_0.merge(other.lag_0))


def split_deltas(
    tokens: Floats,
    behavior_logprob: Floats | None = None,
    reference_logprob: Floats | None = None,
    lag_0: npt.NDArray[np.bool_] | None = None,
) -> Deltas:
    """Split a batch's log-ratio into policy drift and engine mismatch, in float64.

    Args:
        tokens: d, nats, (n,).
        behavior_logprob: log mu, nats, (n,), or None.
        reference_logprob: log pi(l), nats, (n,), or None; without both log-probs neither part is known.
        lag_0: the tokens whose version is the policy's, (n,); None: there are none. See :func:`lag_0_tokens`.

    Raises:
        InvalidBatchError: a field of another length than d.

    >>> parts = split_deltas(np.array([0.5, 0.1]), np.array([-1.0, -2.0]), np.array([-0.75, -2.0]))
    >>> parts.impl.mean, parts.policy.mean
    (0.125, 0.175)
    """
    for name, values in (("behavior_logprob", behavior_logprob), ("reference_logprob", reference_logprob)):
        _require_length(name, values, len(tokens))
    _require_length("lag_0", lag_0, len(tokens))
    found = Deltas()
    for start in range(0, len(tokens), CHUNK):  # temporaries in float64 cost more than the arithmetic
        part = slice(start, start + CHUNK)
        floor = Gap() if lag_0 is None else Gap.of(tokens[part][lag_0[part]])
        found = found.merge(Deltas(lag_0=floor))
        if behavior_logprob is not None and reference_logprob is not None:
            found = found.merge(_parts(tokens[part], behavior_logprob[part], reference_logprob[part]))
    return found


def _parts(tokens: Floats, behavior_logprob: Floats, reference_logprob: Floats) -> Deltas:
    with np.errstate(invalid="ignore", over="ignore"):
        impl = reference_logprob.astype(np.float64) - behavior_logprob
        policy = tokens - impl
    known = np.isfinite(impl) & np.isfinite(policy)
    return Deltas(Gap.of(policy[known]), Gap.of(impl[known]))


def _require_length(name: str, values: npt.NDArray[np.generic] | None, n: int) -> None:
    if values is not None and len(values) != n:
        raise InvalidBatchError(required(name, f"{len(values)} values", f"{n}, one a token"))


def lag_0_tokens(policy_version: int | None, behavior_versions: Sequence[VersionRun]) -> npt.NDArray[np.bool_] | None:
    """Return which tokens the policy that consumes them has generated itself, (n,); None: none that is known.

    Args:
        policy_version: the policy that consumes the tokens, or None.
        behavior_versions: the versions that generated them, as run lengths over the active tokens.

    >>> lag_0_tokens(3, [VersionRun(2, 2), VersionRun(1, 3)]).tolist()
    [False, False, True]
    """
    fresh = [run.version is not None and run.version == policy_version for run in behavior_versions]
    if not any(fresh):
        return None
    return np.repeat(np.array(fresh), [run.tokens for run in behavior_versions])
