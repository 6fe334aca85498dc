"""Batches as Hypothesis draws them: ordinary, tied, extreme and broken ones, in every layout."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from satwatch.types import Rule

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

dtypes = st.sampled_from(DTYPES)
radii = st.floats(min_value=1e-6, max_value=1 - 1e-6)
exponents = st.sampled_from([0.5, 1.0, 2.0, 3.0, 4.0, 7.5])
levels = st.sampled_from(["token", "sequence"])
quantiles = st.one_of(st.sampled_from([0.28, 0.5, 0.55, 0.9, 0.99]), st.floats(min_value=1e-6, max_value=1 - 1e-6))

usual = st.floats(min_value=-5, max_value=5, width=32)
# 0.3 and 1e-3 are floors of the rules below, and what a narrow dtype makes of them lies just beside.
tied = st.sampled_from([0.0, -0.0, 0.1, -0.1, 0.3, -0.3, 1e-3, 0.5, 2.0])
extreme = st.sampled_from([1e-30, -1e-30, 89.0, -89.0, 1e4, -1e4])
broken = st.sampled_from([math.nan, math.inf, -math.inf])
finite = st.one_of(usual, tied, extreme)
anything = st.one_of(usual, tied, extreme, broken)


@dataclass(frozen=True)
class Batch:
    """A log-ratio tensor and what tells its tokens and sequences apart."""

    log_ratio: torch.Tensor
    mask: torch.Tensor | None
    sequence_lengths: list[int] | None

    @property
    def layout(self) -> dict[str, Any]:
        return {"mask": self.mask, "sequence_lengths": self.sequence_lengths}


@st.composite
def batches(
    draw: st.DrawFn, values: st.SearchStrategy[float] = anything, max_rows: int = 8, max_width: int = 24
) -> Batch:
    """Draw (B, T) with or without a mask, or a ragged row with or without one."""
    dtype = draw(dtypes)
    if draw(st.booleans()):
        shape = (draw(st.integers(0, max_rows)), draw(st.integers(1, max_width)))
        lengths = None
    else:
        lengths = draw(st.lists(st.integers(0, max_width), max_size=max_rows))
        shape = (sum(lengths),)
    n = math.prod(shape)
    numbers = torch.tensor(draw(st.lists(values, min_size=n, max_size=n)), dtype=torch.float64).reshape(shape).to(dtype)
    mask = None
    if draw(st.booleans()):
        mask = torch.tensor(draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=torch.bool).reshape(shape)
    return Batch(numbers, mask, lengths)


@st.composite
def rules(draw: st.DrawFn, level: st.SearchStrategy[str] = levels) -> Rule:
    """Draw any rule of microbatch scope."""
    return Rule(
        quantile=draw(quantiles),
        eps_low=draw(radii),
        eps_high=draw(radii),
        exponent=draw(exponents),
        level=draw(level),  # type: ignore[arg-type]
        min_reference=draw(st.sampled_from([0.0, 0.0, 1e-3, 0.3])),
        enabled=draw(st.sampled_from([True, True, True, False])),
    )


def keywords(rule: Rule) -> dict[str, Any]:
    """Return a rule as clip_bounds takes it."""
    names = ("quantile", "eps_low", "eps_high", "exponent", "level", "min_reference", "enabled")
    return {name: getattr(rule, name) for name in names}
