"""A batch's diagnostics, kept as what merges: table 10 and eq. 52 of arXiv 2607.18722, and the field's usual ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from satwatch.sat.interval import ClipBounds
from satwatch.sat.layout import Lengths
from satwatch.sat.scores import Gated, Scores, score_batch
from satwatch.sat.sketch import Sketch
from satwatch.types import Level, Rule

QUANTILES: Final = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class GateSums:
    """What the rule did to a batch, as sums over all its active tokens.

    Attributes:
        gated_tokens: tokens inside the gate.
        radius_low: sum of eps_low c-.
        radius_high: sum of eps_high c+.
        contraction_min: the smallest c; 1 when nothing is gated.
        tail_tokens: gated tokens with a finite score.
        tail_log: sum over those of log(abs(score) / q).
        advantage_tokens: active tokens of the batches that came with advantages.
        clipped_ppo_tokens: of those, the tokens with A != 0 whose derivative is zero under PPO.
        clipped_tokens: likewise under SAT.
    """

    gated_tokens: int = 0
    radius_low: float = 0.0
    radius_high: float = 0.0
    contraction_min: float = 1.0
    tail_tokens: int = 0
    tail_log: float = 0.0
    advantage_tokens: int = 0
    clipped_ppo_tokens: int = 0
    clipped_tokens: int = 0

    def merge(self, other: GateSums) -> GateSums:
        """Return the sums of both batches together."""
        summed: dict[str, Any] = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(GateSums)}
        summed["contraction_min"] = min(self.contraction_min, other.contraction_min)
        return GateSums(**summed)


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """Everything that is kept of a batch, or of several merged.

    Attributes:
        sketch: counts and moments of d.
        gate: what the rule did.
        quantile_reference: q of the batch, of the newest when merged; NaN when there is none.
        has_advantage: clip fractions are known.
        abs_quantiles: exact quantiles of finite abs(d), of one batch; None when merged: the sketch has them.
    """

    sketch: Sketch
    gate: GateSums
    quantile_reference: float
    has_advantage: bool
    abs_quantiles: tuple[float, ...] | None

    def merge(self, newer: BatchSummary) -> BatchSummary:
        """Return the summary of both batches together."""
        return BatchSummary(
            sketch=self.sketch.merge(newer.sketch),
            gate=self.gate.merge(newer.gate),
            quantile_reference=newer.quantile_reference,
            has_advantage=self.has_advantage or newer.has_advantage,
            abs_quantiles=None,
        )

    def diagnostics(self) -> dict[str, float]:
        """Return the diagnostics by name; what has no value is absent (see docs/diagnostics.md)."""
        moments = self.sketch.moments
        out: dict[str, float] = {
            "tokens": moments.tokens,
            "nan_tokens": moments.nan_tokens,
            "inf_tokens": moments.inf_tokens,
        }
        if not moments.tokens:
            return out
        out |= self._gate_diagnostics(moments.tokens)
        out["extreme_tokens"] = moments.extreme_tokens
        if not math.isnan(self.quantile_reference):
            out["quantile_reference"] = self.quantile_reference
        out |= moments.diagnostics()
        if moments.finite_tokens:
            exact = self.abs_quantiles or tuple(self.sketch.quantile(alpha) for alpha in QUANTILES)
            out |= {f"log_ratio_abs_q{alpha}": value for alpha, value in zip(QUANTILES, exact, strict=True)}
        return out

    def _gate_diagnostics(self, tokens: int) -> dict[str, float]:
        gate = self.gate
        out = {
            "gate_rate": gate.gated_tokens / tokens,
            "clip_radius_low_mean": gate.radius_low / tokens,
            "clip_radius_high_mean": gate.radius_high / tokens,
            "contraction_min": gate.contraction_min,
        }
        if gate.tail_tokens:
            out["tail_index"] = gate.tail_log / gate.tail_tokens
        if self.has_advantage and gate.advantage_tokens:
            out["clip_fraction"] = gate.clipped_tokens / gate.advantage_tokens
            out["clip_fraction_ppo"] = gate.clipped_ppo_tokens / gate.advantage_tokens
            out["intercepted_fraction"] = out["clip_fraction"] - out["clip_fraction_ppo"]
        return out


def summarize(scores: Scores, q: float, advantage: torch.Tensor | None = None) -> BatchSummary:
    """Sum a batch up.

    Args:
        scores: the batch.
        q: the threshold its bounds were built from.
        advantage: one a token or one a sequence; None: clip fractions are unknown.

    Raises:
        InvalidBatchError: an advantage of another shape.
    """
    low, high = scores.gated(q)
    gate = _gate_sums(scores, q, low, high)
    if advantage is not None:
        spread = scores.layout.spread("advantage", advantage)
        gate = replace(gate, **_clip_counts(scores, low, high, spread.to(torch.float64).numpy()))
    sketch = Sketch.build(scores.tokens)
    return BatchSummary(
        sketch=sketch,
        gate=gate,
        quantile_reference=q,
        has_advantage=advantage is not None,
        abs_quantiles=sketch.exact_quantiles(QUANTILES, scores.tokens),
    )


def _gate_sums(scores: Scores, q: float, low: Gated, high: Gated) -> GateSums:
    rule, n = scores.rule, len(scores.tokens)
    factors = np.concatenate([low.factor, high.factor])
    magnitudes = np.abs(scores.token_scores()[np.concatenate([low.index, high.index])]).astype(np.float64)
    finite = magnitudes[np.isfinite(magnitudes)]
    return GateSums(
        gated_tokens=len(factors),
        radius_low=rule.eps_low * (n - float((1.0 - low.factor).sum())),
        radius_high=rule.eps_high * (n - float((1.0 - high.factor).sum())),
        contraction_min=float(factors.min()) if len(factors) else 1.0,
        tail_tokens=len(finite),
        tail_log=float(np.log(finite).sum()) - len(finite) * (math.log(q) if len(finite) else 0.0),
    )


def _clip_counts(
    scores: Scores, gated_low: Gated, gated_high: Gated, advantage: npt.NDArray[np.float64]
) -> dict[str, int]:
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = np.exp(scores.token_scores().astype(np.float64))
    low = np.full(len(ratio), 1.0 - scores.rule.eps_low)
    high = np.full(len(ratio), 1.0 + scores.rule.eps_high)
    ppo = _count_clipped(ratio, advantage, low, high)
    low[gated_low.index] = 1.0 - scores.rule.eps_low * gated_low.factor
    high[gated_high.index] = 1.0 + scores.rule.eps_high * gated_high.factor
    clipped = _count_clipped(ratio, advantage, low, high)
    return {"advantage_tokens": len(ratio), "clipped_ppo_tokens": ppo, "clipped_tokens": clipped}


def _count_clipped(*arrays: npt.NDArray[np.float64]) -> int:
    ratio, advantage, low, high = arrays
    return int(np.count_nonzero(((advantage > 0) & (ratio > high)) | ((advantage < 0) & (ratio < low))))


def diagnostics(
    log_ratio: torch.Tensor,
    bounds: ClipBounds | None = None,
    *,
    advantage: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    quantile: float = 0.9,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    exponent: float = 2.0,
    level: Level = "token",
    sequence_lengths: Lengths | None = None,
    min_reference: float = 0.0,
    enabled: bool = True,
) -> dict[str, float]:
    """Compute the diagnostics of a batch, in float64 whatever the input.

    Args:
        log_ratio: d, nats, (B, T) or (N,), any float dtype.
        bounds: the batch's bounds, if at hand: q is taken from there instead of being selected again.
        advantage: A, one a token or one a sequence; without it the clip fractions are absent.
        mask: the active tokens; None: all.
        quantile: alpha, inside (0, 1).
        eps_low: PPO's lower radius, inside (0, 1).
        eps_high: PPO's upper radius, inside (0, 1).
        exponent: m of the Hill kernel, above 0.
        level: ``token`` or ``sequence``; the first judges tokens, the second responses.
        sequence_lengths: for (N,): the tokens of each sequence.
        min_reference: q is at least this.
        enabled: False: PPO's interval.

    Returns:
        Values by name, as docs/diagnostics.md defines them. What has no value is absent: unknown is not zero.

    Raises:
        ConfigError: a value outside its range.
        InvalidBatchError: a shape, dtype or sum that does not fit.

    Synchronises with the tensor's device. Source: arXiv 2607.18722, table 10 and eq. 52.

    >>> found = diagnostics(torch.zeros(4))
    >>> found["tokens"], found["ess_ratio"], "clip_fraction" in found
    (4, 1.0, False)
    """
    rule = Rule(
        quantile=quantile,
        eps_low=eps_low,
        eps_high=eps_high,
        exponent=exponent,
        level=level,
        min_reference=min_reference,
        enabled=enabled,
    )
    scores = score_batch(log_ratio, rule, mask, sequence_lengths)
    # A floor or a mean is rounded in the tensor: only an unrounded q gates as the bounds did.
    exact = bounds is not None and (bounds.quantile_reference.dtype == torch.float64 or _is_unrounded(scores))
    q = float(bounds.quantile_reference) if bounds is not None and exact else scores.reference()
    return summarize(scores, q, advantage).diagnostics()


def _is_unrounded(scores: Scores) -> bool:
    return scores.rule.level == "token" and scores.rule.min_reference == 0
