"""The surrogate of a trainer's real tensors: padding, half precision, advantages a sequence, and what does not fit."""

from __future__ import annotations

import math

import pytest
import torch

from satwatch.errors import InvalidBatchError
from satwatch.sat import ClipBounds, clip_bounds, surrogate

GENERATOR = torch.Generator().manual_seed(6)
D = torch.randn(4, 6, generator=GENERATOR) * 0.2
A = torch.randn(4, generator=GENERATOR)


@pytest.mark.parametrize("padding", [math.nan, math.inf, -math.inf, 100.0])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_padding_gives_nothing_whatever_it_holds(padding, level, dtype):
    mask = torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0], [0] * 6, [1] * 6]).bool()
    clean = torch.where(mask, D, 0.0).to(dtype).requires_grad_()
    dirty = torch.where(mask, D, padding).to(dtype).requires_grad_()
    values = []
    for d in (clean, dirty):
        bounds = clip_bounds(d, mask=mask, level=level)
        value = surrogate(d, torch.where(mask, A.unsqueeze(1), padding), bounds, mask=mask, level=level)
        value.sum().backward()
        values.append(value.detach())
    assert torch.equal(values[0], values[1])
    assert torch.equal(clean.grad, dirty.grad)
    assert (values[0][~mask] == 0).all()
    assert (dirty.grad[~mask] == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_ratios_are_computed_in_float32(dtype):
    d = torch.tensor([0.1001, 12.24, -26.0], dtype=dtype)
    nominal = clip_bounds(d, enabled=False)
    value = surrogate(d, torch.tensor([1.0, -1.0, 1.0]), nominal)
    assert value.dtype == torch.float32
    want = torch.stack([d[0].float().exp(), -d[1].float().exp(), d[2].float().exp()])
    assert torch.equal(value, want)


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_an_advantage_a_sequence(shape):
    bounds = clip_bounds(D)
    want = surrogate(D, A.unsqueeze(1).expand(4, 6), bounds)
    assert torch.equal(surrogate(D, A.reshape(shape), bounds), want)
    flat = ClipBounds(*(t.reshape(-1) for t in (bounds.low, bounds.high, bounds.gate)), bounds.quantile_reference)
    assert torch.equal(surrogate(D.reshape(-1), A.reshape(shape), flat, sequence_lengths=[6] * 4), want.reshape(-1))


@pytest.mark.parametrize("advantage", [torch.ones(6), torch.ones(3), torch.ones(5, 4, 6), torch.tensor(1.0), 1.0])
def test_an_advantage_that_does_not_fit_is_refused(advantage):
    with pytest.raises(InvalidBatchError, match=r"^advantage: got"):
        surrogate(D, advantage, clip_bounds(D))


def test_bounds_of_another_batch_are_refused():
    with pytest.raises(InvalidBatchError, match=r"bounds: got shape \(6,\), required \(4, 6\)"):
        surrogate(D, A, clip_bounds(D[0]))


def test_a_ratio_exactly_at_its_bound_is_not_clipped():
    d = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    one = torch.ones(1, dtype=torch.float64)
    at_the_bound = ClipBounds(one, one, torch.ones(1, dtype=torch.bool), one[0])
    for gain in (1.0, -1.0):
        d.grad = None
        surrogate(d, gain * one, at_the_bound).sum().backward()
        assert d.grad.item() == gain
