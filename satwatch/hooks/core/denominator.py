"""What a loss is given as its old log-probs where it is to clip pi_now / mu: log mu, as far as that can be."""

from __future__ import annotations

from typing import Final

import torch

# Further up exp nears infinity, and infinity makes the gradient NaN even of a token that is clipped.
LARGEST_LOG_RATIO: Final = 20.0


def denominator(logprob: torch.Tensor, mu: torch.Tensor, own: torch.Tensor | None, mask: torch.Tensor) -> torch.Tensor:
    """Return what the loss is to take as old log-probs: log mu, and what it would have taken where that is missing.

    Args:
        logprob: log pi of this forward pass, (B, T), detached.
        mu: the engine's log-probs, (B, T); NaN where it has none.
        own: the trainer's old log-probs, (B, T); None: it takes ``logprob``.
        mask: the active tokens, (B, T), non-zero is active. The others may hold anything.

    >>> logprob, mu = torch.tensor([[-2.0, -2.0, -2.0, -2.0]]), torch.tensor([[-2.5, -91.0, torch.nan, torch.inf]])
    >>> denominator(logprob, mu, None, torch.tensor([[1, 1, 1, 0]])).tolist()
    [[-2.5, -22.0, -2.0, -2.0]]
    """
    log_ratio = logprob - mu
    held = torch.where(log_ratio > LARGEST_LOG_RATIO, logprob - LARGEST_LOG_RATIO, mu)
    return torch.where((mask != 0) & ~log_ratio.isnan(), held, logprob if own is None else own)
