"""What a batch gets without the sidecar."""

from __future__ import annotations

import torch

from satwatch.client.batch import Microbatch
from satwatch.sat import ClipBounds, clip_bounds
from satwatch.types import Rule


def local_bounds(batch: Microbatch, rule: Rule) -> ClipBounds:
    """Compute the bounds here, with the sidecar's own code; q is the microbatch's, whatever the scope."""
    return clip_bounds(
        batch.log_ratio,
        mask=batch.mask,
        sequence_lengths=batch.sequence_lengths,
        quantile=rule.quantile,
        eps_low=rule.eps_low,
        eps_high=rule.eps_high,
        exponent=rule.exponent,
        level=rule.level,
        min_reference=rule.min_reference,
        enabled=rule.enabled,
    )


def nominal_bounds(like: torch.Tensor, rule: Rule) -> ClipBounds:
    """Return PPO's interval for every element of a log-ratio; q is NaN: none was looked for."""
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return ClipBounds(
        torch.full(like.shape, 1.0 - rule.eps_low, dtype=dtype, device=like.device),
        torch.full(like.shape, 1.0 + rule.eps_high, dtype=dtype, device=like.device),
        torch.zeros(like.shape, dtype=torch.bool, device=like.device),
        torch.full((), torch.nan, dtype=dtype, device=like.device),
    )
