"""Batches as SkyRL's worker hands them to a policy loss, and the loss in float64 from its definition."""

from __future__ import annotations

import torch
from skyrl.train.config import AlgorithmConfig

# What a worker's padding may hold, and a loss may not look at.
GARBAGE = -50.0


def config(**settings):
    """The algorithm's settings of a run with `policy_loss_type=sat`."""
    return AlgorithmConfig(**{"policy_loss_type": "sat", **settings})


def batch(sequences=16, length=24, scale=0.09, seed=0, dtype=torch.float64):
    """Log-probs of now, before the update and of the engine, advantages, and a mask with a ragged end."""
    generator = torch.Generator().manual_seed(seed)

    def noise(scale):
        return scale * torch.randn(sequences, length, generator=generator, dtype=torch.float64)

    behavior = -noise(1.0).abs() - 0.1
    old = behavior + noise(scale / 5)
    now = old + noise(scale)
    lengths = torch.arange(sequences) % 3 + length - 2
    mask = (torch.arange(length) < lengths[:, None]).to(dtype)
    advantage = noise(1.0).sign() * (torch.arange(sequences)[:, None] + 1.0) / mask.sum()
    padding = mask == 0
    tensors = [t.masked_fill(padding, GARBAGE) for t in (now, old, behavior)]
    now, old, behavior, advantage = (t.to(dtype) for t in (*tensors, advantage))
    return now.requires_grad_(), old, advantage, mask, behavior


def clipped_loss(now, denominator, advantage, mask, low, high, weight=1.0):
    """Sum over the active tokens of -min(r A, clip(r) A), and its gradient in the log-probs."""
    logprob = now.detach().to(torch.float64).requires_grad_()
    ratio = (logprob - denominator.to(torch.float64)).exp()
    gain = advantage.to(torch.float64)
    clipped = torch.maximum(torch.minimum(ratio, high.to(torch.float64)), low.to(torch.float64))
    value = -torch.minimum(ratio * gain, clipped * gain) * weight
    total = torch.where(mask != 0, value, torch.zeros_like(value)).sum()
    (gradient,) = torch.autograd.grad(total, logprob)
    return total.detach(), gradient
