"""Summaries: what merges, what is absent, what the clip fractions count."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from satwatch.errors import InvalidBatchError
from satwatch.sat import clip_bounds, diagnostics, score_batch, summarize
from satwatch.types import Rule

GENERATOR = torch.Generator().manual_seed(5)


def summary_of(values, advantage=None, **rule):
    scores = score_batch(torch.as_tensor(values), Rule(**rule))
    return summarize(scores, scores.reference(), advantage)


def test_the_tail_of_a_step_is_not_the_mean_of_its_ranks_tails():
    """Rank A: 1000 x .01; rank B: 980 x .01 and 20 x 1: the step's p99 is .01, not the mean .505 of the two."""
    a = summary_of(np.full(1000, 0.01, np.float32))
    b = summary_of(np.concatenate([np.full(980, 0.01), np.full(20, 1.0)]).astype(np.float32))
    assert b.diagnostics()["log_ratio_abs_q0.99"] == 1.0
    assert a.merge(b).diagnostics()["log_ratio_abs_q0.99"] == pytest.approx(0.01, rel=2**-7)


def test_merged_diagnostics_equal_those_of_the_whole():
    parts = [torch.randn(n, generator=GENERATOR, dtype=torch.float64) * 0.1 for n in (700, 1, 1300)]
    merged = summary_of(parts[0]).merge(summary_of(parts[1])).merge(summary_of(parts[2])).diagnostics()
    whole = summary_of(torch.cat(parts)).diagnostics()
    depends_on_q = {"gate_rate", "clip_radius_low_mean", "clip_radius_high_mean", "contraction_min", "tail_index"}
    for name in whole.keys() - depends_on_q - {"quantile_reference"}:
        assert merged[name] == pytest.approx(whole[name], rel=2**-7 if "_q0" in name else 1e-12), name


def test_gate_sums_add_up_over_batches():
    parts = [torch.randn(n, generator=GENERATOR) for n in (50, 150)]
    a, b = (summary_of(part).diagnostics() for part in parts)
    merged = summary_of(parts[0]).merge(summary_of(parts[1])).diagnostics()
    for name in ("gate_rate", "clip_radius_low_mean", "clip_radius_high_mean"):
        assert merged[name] == pytest.approx((50 * a[name] + 150 * b[name]) / 200)
    assert merged["contraction_min"] == min(a["contraction_min"], b["contraction_min"])


def test_the_tail_index_leaves_infinite_scores_out():
    d = torch.tensor([0.1] * 17 + [0.2, math.inf, -math.inf], dtype=torch.float64)
    found = diagnostics(d, quantile=0.8)
    assert found["gate_rate"] == 3 / 20
    assert found["tail_index"] == pytest.approx(math.log(2))


def test_clip_fractions_only_cover_batches_that_came_with_advantages():
    d = torch.tensor([0.5] * 10, dtype=torch.float64)
    both = summary_of(d, torch.ones(10)).merge(summary_of(d))
    assert both.diagnostics()["clip_fraction_ppo"] == 1.0
    assert "clip_fraction" not in summary_of(d).diagnostics()


def test_clip_fractions_against_the_derivative():
    d = torch.randn(400, generator=GENERATOR, dtype=torch.float64) * 0.1
    advantage = torch.randn(400, generator=GENERATOR, dtype=torch.float64)
    advantage[::5] = 0
    bounds = clip_bounds(d)
    found = diagnostics(d, bounds, advantage=advantage)
    ratio = d.exp()
    clipped = ((advantage > 0) & (ratio > bounds.high)) | ((advantage < 0) & (ratio < bounds.low))
    nominal = ((advantage > 0) & (ratio > 1.2)) | ((advantage < 0) & (ratio < 0.8))
    assert found["clip_fraction"] == clipped.sum() / 400
    assert found["clip_fraction_ppo"] == nominal.sum() / 400
    assert found["intercepted_fraction"] == pytest.approx(found["clip_fraction"] - found["clip_fraction_ppo"])
    assert found["clip_fraction"] > found["clip_fraction_ppo"]


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 6)])
def test_an_advantage_comes_a_sequence_or_a_token(shape):
    d = torch.randn(4, 6, generator=GENERATOR)
    per_sequence = torch.tensor([1.0, -1.0, 0.0, 2.0])
    want = diagnostics(d, advantage=per_sequence.unsqueeze(1).expand(4, 6))
    given = per_sequence.unsqueeze(1).expand(4, 6) if shape == (4, 6) else per_sequence.reshape(shape)
    assert diagnostics(d, advantage=given) == want


def test_an_advantage_of_another_shape_is_refused():
    with pytest.raises(InvalidBatchError, match=r"advantage: got shape \(3,\), required \(4, 6\)"):
        diagnostics(torch.zeros(4, 6), advantage=torch.zeros(3))


def test_a_rounded_reference_does_not_move_the_gate():
    """A float32 floor or mean is not the q that the bounds were built from; the diagnostics select it again."""
    d = torch.full((20,), 1e-3, dtype=torch.float32)
    d[-1] = 0.0010000001
    bounds = clip_bounds(d, min_reference=1e-3)
    again = diagnostics(d, bounds, min_reference=1e-3)
    assert again["gate_rate"] == bounds.gate.double().mean()


def test_empty_batches():
    assert diagnostics(torch.empty(0)) == {"tokens": 0, "nan_tokens": 0, "inf_tokens": 0}
    found = diagnostics(torch.tensor([math.nan]), advantage=torch.ones(1))
    assert found["clip_fraction"] == 0.0
    assert "quantile_reference" not in found
    assert "log_ratio_mean" not in found
