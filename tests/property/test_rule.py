"""Proposition 4.1 and the rule's invariances, on any batch."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from satwatch.sat import clip_bounds, quantile_reference, score_batch, surrogate
from satwatch.sat.bounds import bounds_on_device
from satwatch.types import Rule
from tests.property import oracle
from tests.property.strategies import Batch, batches, exponents, finite, keywords, quantiles, radii, rules

TOKEN = st.just("token")
SEQUENCE = st.just("sequence")


def bounds_of(batch: Batch, rule: Rule):
    if rule.level == "sequence":
        assume(batch.log_ratio.dim() == 2 or batch.sequence_lengths is not None)
    return clip_bounds(batch.log_ratio, **batch.layout, **keywords(rule))


def nominal(rule: Rule, dtype: torch.dtype) -> tuple[float, float]:
    return torch.tensor(1 - rule.eps_low, dtype=dtype).item(), torch.tensor(1 + rule.eps_high, dtype=dtype).item()


@given(batches(), rules())
def test_bounds_are_inside_ppos_and_never_nan(batch, rule):
    bounds = bounds_of(batch, rule)
    low, high = nominal(rule, bounds.low.dtype)
    assert ((bounds.low >= low) & (bounds.low <= 1)).all()
    assert ((bounds.high <= high) & (bounds.high >= 1)).all()
    assert bounds.low.dtype == (torch.float64 if batch.log_ratio.dtype == torch.float64 else torch.float32)
    assert bounds.low.shape == bounds.high.shape == bounds.gate.shape == batch.log_ratio.shape


@given(batches(), rules())
def test_bounds_equal_the_oracle(batch, rule):
    bounds = bounds_of(batch, rule)
    values = batch.log_ratio.double().reshape(-1).tolist()
    sequences = oracle.members(batch.log_ratio.shape, batch.mask, batch.sequence_lengths)
    scores = oracle.token_scores(values, sequences, rule)
    q = oracle.reference(list(scores.values()), rule)
    if rule.level == "sequence" and any(abs(abs(s) - q) < 1e-12 * q for s in scores.values() if s != q):
        assume(False)  # two means that only the order of their sum tells apart
    assert float(bounds.quantile_reference) == pytest.approx(q, rel=1e-6, nan_ok=True)
    low, high, gate = (t.reshape(-1).tolist() for t in (bounds.low, bounds.high, bounds.gate))
    for i in range(len(values)):
        score = scores.get(i, 0.0)
        c = oracle.factor(score, q, rule) if not math.isnan(score) else 1.0
        assert gate[i] == (c != 1.0)
        assert low[i] == pytest.approx(1 - rule.eps_low * (c if score < 0 else 1), rel=1e-6)
        assert high[i] == pytest.approx(1 + rule.eps_high * (c if score > 0 else 1), rel=1e-6)


@given(batches(), rules(level=TOKEN))
def test_token_reference_is_one_of_the_batchs_own_values(batch, rule):
    q = quantile_reference(batch.log_ratio, rule.quantile, mask=batch.mask).double()
    active = batch.log_ratio if batch.mask is None else batch.log_ratio[batch.mask]
    assert torch.isnan(q) if active.isnan().all() else (active.double().abs() == q).any()


@given(batches(), rules())
def test_only_the_sign_selected_side_moves_and_only_inside_the_gate(batch, rule):
    bounds = bounds_of(batch, rule)
    low, high = nominal(rule, bounds.low.dtype)
    moved_low, moved_high = bounds.low != low, bounds.high != high
    assert not (moved_low & moved_high).any()
    assert not ((moved_low | moved_high) & ~bounds.gate).any()
    if rule.level == "token":
        assert (batch.log_ratio[moved_low] < 0).all()
        assert (batch.log_ratio[moved_high] > 0).all()
    if batch.mask is not None:
        assert not bounds.gate[~batch.mask].any()


@given(batches(), rules(level=TOKEN))
def test_gate_admits_at_most_the_tail(batch, rule):
    bounds = bounds_of(batch, rule)
    active = torch.ones_like(bounds.gate) if batch.mask is None else batch.mask
    n = int((~batch.log_ratio.isnan() & active).sum())
    assert int(bounds.gate.sum()) <= (n - oracle.least_rank(n, rule.quantile) if n else 0)


@given(batches(), rules())
def test_disabled_is_ppo_bit_for_bit(batch, rule):
    off = Rule(**{**keywords(rule), "enabled": False})
    bounds = bounds_of(batch, off)
    low, high = nominal(off, bounds.low.dtype)
    assert torch.equal(bounds.low, torch.full_like(bounds.low, low))
    assert torch.equal(bounds.high, torch.full_like(bounds.high, high))
    assert not bounds.gate.any()
    on = bounds_of(batch, Rule(**{**keywords(rule), "enabled": True}))
    assert torch.equal(bounds.quantile_reference.nan_to_num(-1), on.quantile_reference.nan_to_num(-1))


@given(batches(finite), rules(level=TOKEN), st.integers(0, 2**31))
def test_surrogate_is_pessimistic_and_differs_only_in_the_bands(batch, rule, seed):
    d = batch.log_ratio.double().clamp(-5, 5)
    advantage = torch.randn(d.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    advantage[advantage.abs() < 0.2] = 0
    sat = clip_bounds(d, **batch.layout, **keywords(rule))
    ppo = clip_bounds(d, **batch.layout, **keywords(Rule(**{**keywords(rule), "enabled": False})))
    # The surrogate is a function of the new policy's ratio: judge it there, not only at the d that made the bounds.
    moved = d + torch.randn(d.shape, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64) * 0.3
    values, grads = [], []
    for bounds in (sat, ppo):
        x = moved.clone().requires_grad_()
        value = surrogate(x, advantage, bounds)
        value.sum().backward()
        values.append(value.detach())
        grads.append(x.grad)
    assert (values[0] <= values[1]).all()
    ratio = moved.exp()
    outward_up = (advantage > 0) & (sat.high < ratio) & (ratio <= ppo.high)
    outward_down = (advantage < 0) & (ppo.low <= ratio) & (ratio < sat.low)
    assert torch.equal(grads[0][~(outward_up | outward_down)], grads[1][~(outward_up | outward_down)])
    assert (grads[0][outward_up | outward_down] == 0).all()


@given(batches(), rules(level=TOKEN), st.randoms(use_true_random=False))
def test_permuting_tokens_permutes_the_bounds(batch, rule, random):
    flat = batch.log_ratio.reshape(-1)
    mask = None if batch.mask is None else batch.mask.reshape(-1)
    order = list(range(len(flat)))
    random.shuffle(order)
    straight = clip_bounds(flat, mask=mask, **keywords(rule))
    permuted = clip_bounds(flat[order], mask=None if mask is None else mask[order], **keywords(rule))
    for name in ("low", "high", "gate"):
        assert torch.equal(getattr(permuted, name), getattr(straight, name)[order])


@given(st.lists(st.lists(finite, max_size=12), max_size=8), rules(level=SEQUENCE), st.randoms(use_true_random=False))
def test_permuting_sequences_permutes_the_bounds(sequences, rule, random):
    order = list(range(len(sequences)))
    random.shuffle(order)

    def rows(chosen):
        flat = torch.tensor([x for row in chosen for x in row], dtype=torch.float32)
        bounds = clip_bounds(flat, sequence_lengths=[len(row) for row in chosen], **keywords(rule))
        return [part.split([len(row) for row in chosen]) if chosen else () for part in (bounds.low, bounds.high)]

    for straight, permuted in zip(rows(sequences), rows([sequences[i] for i in order]), strict=True):
        assert all(torch.equal(permuted[new], straight[old]) for new, old in enumerate(order))


@given(batches(st.floats(-5, 5, width=16).filter(lambda x: x == 0 or abs(x) > 1e-3)), rules(), st.integers(-6, 6))
def test_scaling_by_a_power_of_two_scales_q_and_nothing_else(batch, rule, power):
    rule = Rule(**{**keywords(rule), "min_reference": 0.0})
    scaled = Batch(batch.log_ratio.double() * 2.0**power, batch.mask, batch.sequence_lengths)
    straight = bounds_of(Batch(batch.log_ratio.double(), batch.mask, batch.sequence_lengths), rule)
    bounds = bounds_of(scaled, rule)
    for name in ("low", "high", "gate"):
        assert torch.equal(getattr(bounds, name), getattr(straight, name))
    q = straight.quantile_reference
    assert (bounds.quantile_reference == q * 2.0**power) | q.isnan()


@given(batches(), rules())
def test_device_form_equals_the_cpu_form(batch, rule):
    here = bounds_of(batch, rule)
    there = bounds_on_device(batch.log_ratio, rule, batch.mask, batch.sequence_lengths)
    if rule.level == "sequence":  # a device adds a sequence up in another order
        assert torch.allclose(here.quantile_reference, there.quantile_reference, rtol=1e-6, equal_nan=True)
        return
    assert torch.equal(here.gate, there.gate)
    assert torch.equal(here.quantile_reference.nan_to_num(-1), there.quantile_reference.nan_to_num(-1))
    exact = {"rtol": 0.0, "atol": 0.0} if rule.exponent == 2 else {"rtol": 1e-6, "atol": 0.0}
    scores = score_batch(batch.log_ratio, rule, batch.mask, batch.sequence_lengths)
    for other in (there, scores.bounds_on_device(scores.reference())):
        assert torch.allclose(here.low, other.low, **exact)
        assert torch.allclose(here.high, other.high, **exact)
        assert torch.equal(here.gate, other.gate)


@given(batches(), rules(), st.floats(0, 6))
def test_a_reference_is_known_by_counting(batch, rule, other):
    if rule.level == "sequence":
        assume(batch.log_ratio.dim() == 2 or batch.sequence_lengths is not None)
    scores = score_batch(batch.log_ratio, rule, batch.mask, batch.sequence_lengths)
    q = scores.reference()
    assert scores.is_reference(q)
    assert scores.is_reference(other) == (other == q)
    assert scores.is_reference(math.nan) == math.isnan(q)


@given(batches(finite), rules(level=TOKEN), quantiles, radii, exponents)
def test_bounds_are_detached(batch, rule, _quantile, _radius, _exponent):
    tracked = batch.log_ratio.clone().requires_grad_()
    bounds = clip_bounds(tracked, **batch.layout, **keywords(rule))
    assert not any(t.requires_grad for t in (bounds.low, bounds.high, bounds.quantile_reference))
