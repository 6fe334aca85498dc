"""The log-probs in TRL's inputs to its loss: which of them is mu, and what the loss is given for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

# Further up exp nears infinity, and infinity makes the gradient NaN even of a token that is clipped.
LARGEST_LOG_RATIO: Final = 20.0


def behavior_logprob(inputs: Mapping[str, Any]) -> torch.Tensor | None:
    """Return the generator's log-probs, (B, T), or TRL's old ones, which stand in for them."""
    mu: torch.Tensor | None = inputs.get("sampling_per_token_logps")
    return inputs.get("old_per_token_logps") if mu is None else mu


def reference_logprob(own: torch.Tensor | None, own_weights: torch.Tensor | None) -> torch.Tensor | None:
    """Return log pi at the rollout weights, (B, T); NaN where these are not the ones that TRL's old log-probs are of.

    Args:
        own: TRL's old log-probs, (B, T): the trainer's, at the time of the generation.
        own_weights: whether the generator had the trainer's weights then, (B,) or (B, T).
    """
    if own is None or own_weights is None:
        return None
    return torch.where(own_weights.reshape(len(own_weights), -1), own, torch.nan)


def denominator(logprob: torch.Tensor, mu: torch.Tensor, own: torch.Tensor | None, mask: torch.Tensor) -> torch.Tensor:
    """Return what TRL is to take as old log-probs: log mu, and what it would have taken where that is missing.

    Args:
        logprob: log pi of this forward pass, (B, T), detached.
        mu: the generator's log-probs, (B, T); NaN where it has none.
        own: TRL's old log-probs, (B, T); None: it takes ``logprob``.
        mask: the active tokens, (B, T), non-zero is active. The others may hold anything.

    >>> logprob, mu = torch.tensor([[-2.0, -2.0, -2.0, -2.0]]), torch.tensor([[-2.5, -91.0, torch.nan, torch.inf]])
    >>> denominator(logprob, mu, None, torch.tensor([[1, 1, 1, 0]])).tolist()
    [[-2.5, -22.0, -2.0, -2.0]]
    """
    log_ratio = logprob - mu
    held = torch.where(log_ratio > LARGEST_LOG_RATIO, logprob - LARGEST_LOG_RATIO, mu)
    return torch.where((mask != 0) & ~log_ratio.isnan(), held, logprob if own is None else own)
