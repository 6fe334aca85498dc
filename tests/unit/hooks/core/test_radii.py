"""Radii give the bounds back, never looser, and are asked for once."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from satwatch.client.fallback import nominal_bounds
from satwatch.hooks import ClipRadii
from satwatch.hooks.core.radii import lower_radius
from satwatch.sat import ClipBounds, clip_bounds
from satwatch.types import Rule


def _radii(d, **options):
    bounds = clip_bounds(d, **options)
    return bounds, ClipRadii(lambda: bounds)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("eps_low", "eps_high"), [(0.2, 0.2), (0.2, 0.28), (0.5, 0.99), (3e-4, 4e-4)])
def test_one_minus_low_and_one_plus_high_are_the_bounds_bit_for_bit(dtype, eps_low, eps_high):
    generator = torch.Generator().manual_seed(0)
    d = torch.randn(8, 500, generator=generator, dtype=torch.float64).to(dtype) * 0.1
    bounds, radii = _radii(d, eps_low=eps_low, eps_high=eps_high)
    assert bounds.gate.any()
    assert torch.equal(1 - radii.low, bounds.low)
    assert torch.equal(1 + radii.high, bounds.high)
    assert torch.equal(radii.bounds.low, bounds.low)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_wide_lower_radius_gives_a_bound_that_is_never_looser_and_at_most_an_ulp_tighter(dtype):
    low = torch.from_numpy(np.random.default_rng(0).uniform(0, 1, 200_000) ** 3).to(dtype)
    back = 1 - lower_radius(low)
    assert (back >= low).all()
    assert (back - low).max() <= torch.finfo(dtype).eps / 2
    naive = 1 - (1 - low)
    assert (naive < low).any()  # else the care would be for nothing


def test_the_radius_of_a_fully_contracted_side_is_zero():
    assert lower_radius(torch.tensor([1.0, 0.8])).tolist() == [0.0, pytest.approx(0.2)]
    assert lower_radius(torch.empty(0)).shape == (0,)


def test_they_unpack_to_low_and_high():
    bounds, radii = _radii(torch.tensor([0.1] * 9 + [-0.3]))
    low, high = radii
    assert torch.equal(low, lower_radius(bounds.low))
    assert torch.equal(high, bounds.high - 1)


def test_nothing_is_looked_at_before_the_first_look_and_once_after_it():
    looks = []

    def resolve():
        looks.append(1)
        return clip_bounds(torch.tensor([0.1, 0.2]))

    radii = ClipRadii(resolve)
    assert not radii.is_resolved
    assert looks == []
    _ = radii.low, radii.high, radii.bounds
    assert radii.is_resolved
    assert looks == [1]


def test_whether_they_have_arrived():
    there = [False]
    radii = ClipRadii(lambda: clip_bounds(torch.tensor([0.1])), lambda: there[0])
    assert not radii.has_arrived
    there[0] = True
    assert radii.has_arrived
    assert not radii.is_resolved
    there[0] = False
    _ = radii.low
    assert radii.has_arrived


def test_without_being_told_they_have_arrived_when_looked_at():
    radii = ClipRadii(lambda: clip_bounds(torch.tensor([0.1])))
    assert not radii.has_arrived
    _ = radii.low
    assert radii.has_arrived


def test_what_resolving_raises_each_look_raises():
    def resolve():
        raise TimeoutError("late")

    radii = ClipRadii(resolve)
    for _ in range(2):
        with pytest.raises(TimeoutError, match="late"):
            _ = radii.low
    assert not radii.is_resolved


def test_two_threads_look_once():
    looks, began, go = [], threading.Event(), threading.Event()

    def resolve():
        looks.append(1)
        began.set()
        assert go.wait(10)
        return clip_bounds(torch.tensor([0.1, -0.2]))

    radii, seen = ClipRadii(resolve), []
    threads = [threading.Thread(target=lambda: seen.append(radii.bounds)) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert began.wait(10)
    go.set()
    for thread in threads:
        thread.join(10)
    assert looks == [1]
    assert len(seen) == 2
    assert seen[0] is seen[1]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_per_sequence_is_the_interval_of_the_active_tokens(dtype):
    generator = torch.Generator().manual_seed(1)
    d = torch.randn(6, 5, generator=generator) * 0.1
    mask = torch.tensor([[1, 1, 1, 0, 0]] * 5 + [[0, 0, 0, 0, 0]]).to(dtype)
    _, radii = _radii(d, mask=mask, level="sequence", quantile=0.5)
    low, high = radii.per_sequence(mask)
    assert low.shape == high.shape == (6, 1)
    assert torch.equal(low[:5], radii.low[:5, :1])
    assert torch.equal(high[:5], radii.high[:5, :1])
    assert (low[:5] < low[5]).any()
    assert (low[5].item(), high[5].item()) == (radii.low[5, 0].item(), radii.high[5, 0].item())


def test_per_sequence_leaves_padding_out_wherever_it_is():
    # Padding is nominal, so the one active token decides, at the end as at the start.
    d = torch.tensor([[9.0, 9.0, 0.1], [-0.5, 9.0, 9.0], [0.01, 9.0, 9.0]])
    mask = torch.tensor([[0, 0, 1], [1, 0, 0], [1, 0, 0]])
    _, radii = _radii(d, mask=mask, level="sequence", quantile=0.3)
    low, high = radii.per_sequence(mask)
    assert torch.equal(high[0], radii.high[0, 2:])
    assert torch.equal(low[1], radii.low[1, :1])
    assert high[0] < 0.2
    assert low[1] < 0.2


def test_per_sequence_does_not_trust_padding_to_be_nominal():
    bounds = clip_bounds(torch.zeros(2, 3))
    tight = ClipBounds(bounds.low.clone(), bounds.high.clone(), bounds.gate, bounds.quantile_reference)
    tight.low[:, 2], tight.high[:, 2] = 1.0, 1.0
    low, high = ClipRadii(lambda: tight).per_sequence(torch.tensor([[1, 1, 0], [1, 1, 1]]))
    assert low.flatten().tolist() == [pytest.approx(0.2), 0.0]
    assert high.flatten().tolist() == [pytest.approx(0.2), 0.0]


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
def test_per_sequence_of_nothing(shape):
    _, radii = _radii(torch.empty(shape))
    low, high = radii.per_sequence(torch.empty(shape))
    assert low.shape == high.shape == (shape[0], 1)


def test_per_sequence_of_one_number_for_every_shape():
    """What log-probs get that nothing else could be done with."""
    radii = ClipRadii(lambda: nominal_bounds(torch.tensor(0.0), Rule()))
    low, high = radii.per_sequence(torch.ones(3, 4))
    assert low.shape == high.shape == (1, 1)
    assert [low.item(), high.item()] == [pytest.approx(0.2)] * 2


def test_a_compiled_loss_may_look():
    bounds, radii = _radii(torch.tensor([0.1] * 9 + [-0.3]))

    def loss(ratio):
        low, high = radii
        return ratio.clamp(1 - low, 1 + high).sum()

    ratio = torch.linspace(0.5, 1.5, 10)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(loss, backend="eager")(ratio), ratio.clamp(bounds.low, bounds.high).sum())
