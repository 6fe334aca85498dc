from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from satwatch.client.misses import Missed
from satwatch.client.reply import _is_contained, accept
from satwatch.errors import UnavailableError
from satwatch.sat import clip_bounds, score_batch
from satwatch.types import BoundsReply, Rule
from tests.property.strategies import batches, keywords, rules

RULE = Rule()
D = torch.tensor([0.1, -0.2, 0.3, -0.4, 0.5, -0.6, 0.7, -0.8, 0.9, -1.0], dtype=torch.float64)
RIGHT = BoundsReply(RULE, 0.9, 10)


def scored(rule=RULE, log_ratio=D):
    return score_batch(log_ratio, rule)


def test_a_right_reply_gives_the_local_bounds():
    bounds, local = accept(RIGHT, RULE, scored()), clip_bounds(D)
    assert torch.equal(bounds.low, local.low)
    assert torch.equal(bounds.high, local.high)
    assert torch.equal(bounds.gate, local.gate)
    assert torch.equal(bounds.quantile_reference, local.quantile_reference)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (replace(RIGHT, tokens=9), "reply.tokens: got 9, required 10"),
        (replace(RIGHT, tokens=0), "reply.tokens: got 0"),
        (replace(RIGHT, tokens=11), "reply.tokens: got 11"),
        (replace(RIGHT, quantile_reference=None), "reply.quantile_reference: got None"),
        (replace(RIGHT, quantile_reference=math.nan), "reply.quantile_reference: got nan"),
        (replace(RIGHT, quantile_reference=math.inf), "reply.quantile_reference: got inf"),
        (replace(RIGHT, quantile_reference=-0.9), "reply.quantile_reference: got -0.9"),
        (replace(RIGHT, quantile_reference=0.0), "reply.quantile_reference: got 0.0"),
        (replace(RIGHT, quantile_reference=0.8), "reply.quantile_reference: got 0.8"),
        (replace(RIGHT, quantile_reference=1.0), "reply.quantile_reference: got 1.0"),
        (replace(RIGHT, quantile_reference=math.nextafter(0.9, 1)), "reply.quantile_reference: got 0.9"),
        (replace(RIGHT, quantile_reference=math.nextafter(0.9, 0)), "reply.quantile_reference: got 0.8999"),
        (replace(RIGHT, rule=replace(RULE, eps_high=0.4)), "reply.rule: got .*eps_high=0.4"),
        (replace(RIGHT, rule=replace(RULE, quantile=0.8)), "reply.rule: got "),
        (replace(RIGHT, rule=replace(RULE, scope="step")), "reply.rule: got "),
        (replace(RIGHT, rule=replace(RULE, enabled=False)), "reply.rule: got "),
    ],
)
def test_a_wrong_reply_is_not_used(reply, message):
    with pytest.raises(Missed, match=message) as caught:
        accept(reply, RULE, scored())
    assert caught.value.kind == "reply"
    assert caught.value.opens_breaker
    assert isinstance(caught.value.error, UnavailableError)


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.79, 1.2), (1.01, 1.2), (0.8, 1.21), (0.8, 0.99), (math.nan, 1.2), (0.8, math.nan)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bounds_outside_ppos_interval_are_seen(low, high, dtype):
    inside = clip_bounds(D.to(dtype))
    assert _is_contained(inside, RULE)
    bounds = replace(inside, low=inside.low.clone(), high=inside.high.clone())
    bounds.low[4], bounds.high[4] = low, high
    assert not _is_contained(bounds, RULE)


def test_without_a_score_the_reply_has_no_q():
    nothing = torch.tensor([math.nan, math.nan])
    bounds = accept(BoundsReply(RULE, None, 2), RULE, scored(log_ratio=nothing))
    assert bounds.quantile_reference.isnan()
    assert not bounds.gate.any()
    with pytest.raises(Missed, match=r"quantile_reference: got 0.5"):
        accept(BoundsReply(RULE, 0.5, 2), RULE, scored(log_ratio=nothing))


def test_a_floor_is_the_least_that_a_reply_may_say():
    rule = Rule(min_reference=2.0)
    assert accept(BoundsReply(rule, 2.0, 10), rule, scored(rule)).quantile_reference == 2.0
    with pytest.raises(Missed, match=r"got 0.9, required at least min_reference, 2.0"):
        accept(BoundsReply(rule, 0.9, 10), rule, scored(rule))


def test_a_wider_scope_may_use_the_microbatch_and_say_so():
    rule = Rule(scope="step")
    assert accept(RIGHT, rule, scored(rule)).quantile_reference == 0.9
    with pytest.raises(Missed, match=r"got 0.8"):
        accept(replace(RIGHT, quantile_reference=0.8), rule, scored(rule))


@pytest.mark.parametrize("scope", ["step", "window"])
def test_a_wider_scope_than_the_client_can_prove_is_not_used(scope):
    rule = Rule(scope=scope)
    for q in (0.9, 1e-9, 2.0):
        with pytest.raises(Missed, match=r"reply.rule: got .*required .*scope='microbatch'"):
            accept(BoundsReply(rule, q, 10), rule, scored(rule))


@given(batches(), rules(), st.floats(allow_nan=True) | st.none())
def test_any_other_q_than_the_batch_s_own_is_refused(batch, rule, said):
    assume(batch.log_ratio.dim() == 2 or batch.sequence_lengths is not None)
    scores = score_batch(batch.log_ratio, rule, batch.mask, batch.sequence_lengths)
    q = scores.reference()
    right = BoundsReply(replace(rule, scope="microbatch"), None if math.isnan(q) else q, scores.layout.tokens)
    local = clip_bounds(batch.log_ratio, **batch.layout, **keywords(rule))
    assert torch.equal(accept(right, rule, scores).low, local.low)
    if said != right.quantile_reference:
        with pytest.raises(Missed, match=r"reply.quantile_reference"):
            accept(replace(right, quantile_reference=said), rule, scores)


def test_bounds_outside_ppo_s_interval_would_be_refused(monkeypatch):
    # What a proved q gives is inside; this is the guard against the code that builds the bounds.
    scores = scored()
    loose = replace(scores.bounds(0.9), high=torch.full((10,), 1.3, dtype=torch.float64))
    monkeypatch.setattr(type(scores), "bounds", lambda *_: loose)
    with pytest.raises(Missed, match=r"inside PPO's interval"):
        accept(RIGHT, RULE, scores)
