"""The gate is strict on the raw values, and q is compared unrounded, whatever the dtype."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from satwatch.sat import clip_bounds, score_batch
from satwatch.sat.scores import floor_to
from satwatch.types import Rule


@pytest.mark.parametrize("q", [0.1, 0.3, 1e-3, 1e-300, 1e300, 1.0, 0.0, math.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floor_is_the_largest_value_that_is_at_most_q(q, dtype):
    bound = floor_to(q, np.dtype(dtype))
    assert type(bound) is dtype
    assert float(bound) <= q
    with np.errstate(over="ignore"):
        assert math.isinf(q) or float(np.nextafter(bound, dtype(np.inf))) > q


def test_a_value_just_above_a_floor_that_its_dtype_lacks_is_gated():
    """In float32, 0.3 is 0.30000001192..., which lies above a floor of 0.3: a comparison in float32 would miss it."""
    d = torch.tensor([0.0] * 9 + [0.3], dtype=torch.float32)
    assert clip_bounds(d, min_reference=0.3).gate.tolist() == [False] * 9 + [True]


def test_a_reference_a_rounding_away_is_not_the_batchs_own():
    scores = score_batch(torch.tensor([0.1] * 9 + [5.0], dtype=torch.float32), Rule())
    q = scores.reference()
    assert scores.is_reference(q)
    assert not scores.is_reference(math.nextafter(q, 1.0))
    assert not scores.is_reference(math.nextafter(q, 0.0))
    assert not scores.is_reference(0.1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_bounds_are_computed_in_float64_and_rounded_once(dtype):
    """Bit for bit against Python's own doubles: no intermediate is narrower."""
    d = (torch.randn(4000, generator=torch.Generator().manual_seed(2)).pow(3) * 0.1).to(dtype)
    bounds = clip_bounds(d, eps_low=0.17, eps_high=0.29)
    q = sorted(abs(x) for x in d.tolist())[3599]
    low, high = [], []
    for x in d.tolist():
        ratio = abs(x) / q
        c = 1.0 / (1.0 + ratio * ratio) if abs(x) > q else 1.0
        low.append(1.0 - 0.17 * c if x < 0 else 1.0 - 0.17)
        high.append(1.0 + 0.29 * c if x > 0 else 1.0 + 0.29)
    assert torch.equal(bounds.low, torch.tensor(low, dtype=torch.float64).to(bounds.low.dtype))
    assert torch.equal(bounds.high, torch.tensor(high, dtype=torch.float64).to(bounds.high.dtype))


def test_a_sequence_whose_sum_overflows_has_a_finite_mean():
    d = torch.tensor([1.7e308, 1.7e308, -1.7e308, 1.7e308] + [0.1] * 40, dtype=torch.float64)
    units = score_batch(d, Rule(level="sequence"), None, [2, 2] + [4] * 10).units
    assert units[:2].tolist() == [1.7e308, 0.0]
    infinite = torch.tensor([math.inf, 1.0, math.inf, -math.inf], dtype=torch.float64)
    units = score_batch(infinite, Rule(level="sequence"), None, [2, 2]).units
    assert units[0] == math.inf
    assert math.isnan(units[1])
