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
