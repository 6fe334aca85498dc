"""The log-ratios that are measured: a seeded stand-in for a lagging run, with its heavy tail."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

SEED: Final = 0
MICROBATCH: Final = 32_768


def log_ratios(tokens: int) -> torch.Tensor:
    """Return d of a batch, float32 (tokens,): Student's t with 3 degrees of freedom, scaled to a mean |d| of 0.01."""
    generator = np.random.default_rng(SEED)
    values = generator.standard_t(3, size=tokens)
    return torch.from_numpy((values * (0.01 / np.abs(values).mean())).astype(np.float32))
