r"""What SAT judges, and the interval it gives: eqs. 13-20 of arXiv 2607.18722.

A *unit* is what has a score: a token at token level, a sequence at sequence level. Scores live on the CPU in one
canonical form (active units in order, float32 or float64), so that the sidecar and the trainer, who both hold the same
numbers, reach the same q and the same bounds bit for bit. The interval is written where the tensor lives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from satwatch.errors import InvalidBatchError, required
from satwatch.sat.interval import ClipBounds, contract, hill
from satwatch.sat.layout import Ints, Layout, Lengths, check_mask, lay_out
from satwatch.sat.quantile import Floats, rank, select_on_device, smallest, smallest_weighted
from satwatch.types import Rule


@dataclass(frozen=True, slots=True)
class Gated:
    """The active tokens that one side's contraction touches.

    Attributes:
        index: positions among the active tokens, ascending, int64 (g,).
        factor: contraction factors c, in [0, 1), float64 (g,).
    """

    index: Ints
    factor: npt.NDArray[np.float64]


def floor_to(q: float, dtype: np.dtype[Any]) -> np.floating[Any]:
    """Return the largest value of a dtype that is at most q: its values are above q iff they are above that."""
    with np.errstate(over="ignore"):
        bound: np.floating[Any] = dtype.type(q)
    # As Python floats: against a float32, numpy would round q first.
    return np.nextafter(bound, dtype.type(-np.inf)) if float(bound) > q else bound


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a batch under a rule.

    Attributes:
        rule: the rule that judges them.
        layout: which tokens are active.
        log_ratio: the trainer's tensor, detached.
        mask: the active tokens, on the tensor's device; None: all.
        given: d of the active tokens as they came, (n,), on the CPU, in the trainer's dtype.
        tokens: the same in float32 or float64.
        units: the scores: ``tokens`` itself at token level, else one mean a sequence, float64 (S,).
    """

    rule: Rule
    layout: Layout
    log_ratio: torch.Tensor
    mask: torch.Tensor | None
    given: torch.Tensor
    tokens: Floats
    units: Floats

    @property
    def weights(self) -> Ints | None:
        """Tokens a unit stands for; None: one each."""
        return self.layout.lengths if self.rule.level == "sequence" else None

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of bounds."""
        return torch.float64 if self.log_ratio.dtype == torch.float64 else torch.float32

    def reference(self, device: torch.device | None = None) -> float:
        """Compute q in float64, the floor applied; NaN when no unit has a score.

        Args:
            device: where a token-level selection runs; None or a CPU: here.
        """
        q = self._select(device)
        return q if math.isnan(q) else max(q, self.rule.min_reference)

    def _select(self, device: torch.device | None) -> float:
        weights = self.weights
        if weights is not None:
            return smallest_weighted(self.units.astype(np.float64, copy=False), weights, self.rule.quantile)
        if device is None or device.type == "cpu":
            return smallest(self.units, self.rule.quantile)
        return float(select_on_device(torch.from_numpy(self.units).to(device), None, self.rule.quantile))

    def is_reference(self, q: float) -> bool:
        """Tell whether q is this batch's own threshold, by counting: two passes, no selection.

        It is when at least k of the n scores are at most q, and fewer than k are below it.
        """
        magnitudes = np.abs(self.units)
        n = self._count(magnitudes == magnitudes)
        if n == 0 or math.isnan(q):
            return n == 0 and math.isnan(q)
        k = rank(n, self.rule.quantile)
        bound = floor_to(q, self.units.dtype)
        if q < self.rule.min_reference or self._count(magnitudes <= bound) < k:
            return False
        return q == self.rule.min_reference or (float(bound) == q and self._count(magnitudes < bound) < k)

    def _count(self, chosen: npt.NDArray[np.bool_]) -> int:
        weights = self.weights
        return int(np.count_nonzero(chosen)) if weights is None else int(weights[chosen].sum())

    def _gated_units(self, q: float) -> Gated:
        """Return the units strictly above q, both sides, with their factors."""
        if not self.rule.enabled or not q > 0:
            return Gated(np.empty(0, np.int64), np.empty(0))
        index = np.flatnonzero(np.abs(self.units) > floor_to(q, self.units.dtype))
        magnitudes = np.abs(self.units[index]).astype(np.float64, copy=False)
        return Gated(index, hill(magnitudes, q, self.rule.exponent))

    def _to_tokens(self, gated: Gated) -> Gated:
        weights = self.weights
        if weights is None:
            return gated
        lengths = weights[gated.index]
        starts = (np.cumsum(weights) - weights)[gated.index]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return Gated(np.repeat(starts, lengths) + within, np.repeat(gated.factor, lengths))

    def gated(self, q: float) -> tuple[Gated, Gated]:
        """Return the gated tokens by side, lower then upper (eqs. 14-17).

        Args:
            q: the threshold, float64; NaN, 0 and infinity shut the gate.
        """
        units = self._gated_units(q)
        positive = self.units[units.index] > 0
        upper, lower = np.flatnonzero(positive), np.flatnonzero(~positive)
        low = Gated(units.index[lower], units.factor[lower])
        high = Gated(units.index[upper], units.factor[upper])
        return self._to_tokens(low), self._to_tokens(high)

    def token_scores(self) -> Floats:
        """Return the score of every active token, (n,)."""
        if self.weights is None:
            return self.units
        return np.repeat(self.units.astype(np.float64, copy=False), self.weights)

    def bounds(self, q: float) -> ClipBounds:
        """Build the interval of every token from q, on the log-ratio's device.

        Each bound is computed in float64 and rounded once, so that an untouched one is exactly the nominal one.
        """
        device = self.log_ratio.device
        if device.type != "cpu" and self.rule.level == "token":
            return self.bounds_on_device(q)
        bounds = self._scatter(q)
        if device.type == "cpu":
            return bounds
        return ClipBounds(*(getattr(bounds, field.name).to(device, non_blocking=True) for field in fields(bounds)))

    def bounds_on_device(self, q: float) -> ClipBounds:
        """Build token-level bounds elementwise where the log-ratio lives: nothing but q travels there."""
        raw = self.log_ratio.to(self.dtype)
        return contract(raw, self.mask, torch.tensor(q, dtype=torch.float64, device=raw.device), self.rule)

    def _scatter(self, q: float) -> ClipBounds:
        """Fill in the nominal interval and touch the gated tokens only: on a CPU temporaries cost most."""
        dtype, rule = self.dtype, self.rule
        # Told where to live: a trainer may have set torch's default device.
        low = torch.full(self.layout.shape, 1.0 - rule.eps_low, dtype=dtype, device="cpu")
        high = torch.full(self.layout.shape, 1.0 + rule.eps_high, dtype=dtype, device="cpu")
        gate = torch.zeros(self.layout.shape, dtype=torch.bool, device="cpu")
        gated_low, gated_high = self.gated(q)
        for bound, gated, sign, radius in (
            (low, gated_low, -1.0, rule.eps_low),
            (high, gated_high, 1.0, rule.eps_high),
        ):
            positions = gated.index if self.layout.positions is None else self.layout.positions[gated.index]
            bound.numpy().reshape(-1)[positions] = 1.0 + sign * (radius * gated.factor)
            gate.numpy().reshape(-1)[positions] = True
        return ClipBounds(low, high, gate, torch.tensor(q, dtype=dtype, device="cpu"))


def score_batch(
    log_ratio: torch.Tensor,
    rule: Rule,
    mask: torch.Tensor | None = None,
    sequence_lengths: Lengths | None = None,
) -> Scores:
    """Score a batch: d at token level, the mean of d over a sequence's active tokens at sequence level (eq. 20).

    Args:
        log_ratio: d, nats, (B, T) or (N,), any float dtype and device.
        rule: the rule that judges.
        mask: the active tokens, in the same shape; None: all.
        sequence_lengths: for (N,): the tokens of each sequence; needed at sequence level.

    Raises:
        InvalidBatchError: a shape, dtype or sum that does not fit, or no sequence_lengths where they are needed.

    Synchronises with the tensor's device: scores live on the CPU.
    """
    layout = lay_out(log_ratio, mask, sequence_lengths)
    dtype = torch.float64 if log_ratio.dtype == torch.float64 else torch.float32
    given = layout.take("log_ratio", log_ratio)
    tokens: Floats = given.to(dtype).contiguous().numpy()
    units = tokens if rule.level == "token" else _sequence_means(tokens, layout.lengths)
    active = None if mask is None else check_mask(mask, log_ratio.shape)
    return Scores(rule, layout, log_ratio.detach(), active, given, tokens, units)


def _sequence_means(tokens: Floats, lengths: Ints | None) -> npt.NDArray[np.float64]:
    if lengths is None:
        raise InvalidBatchError(
            required("sequence_lengths", "None", 'the tokens of each sequence: level is "sequence"')
        )
    means = np.full(len(lengths), np.nan)
    present = lengths > 0
    if present.any():
        starts = (np.cumsum(lengths) - lengths)[present]
        exact = tokens.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            means[present] = np.add.reduceat(exact, starts) / lengths[present]
            if np.isinf(means).any():
                # Perhaps the sum overflowed and the mean does not; a power of two scales without rounding.
                scaled = np.add.reduceat(exact * 2.0**-64, starts) / lengths[present] * 2.0**64
                means[present] = np.where(np.isinf(means[present]), scaled, means[present])
    return means
