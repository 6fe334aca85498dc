"""The log-probs in TRL's inputs to its loss: which of them is mu, and which log pi at the rollout weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


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
