"""Metrics of many microbatches are those of all their tokens together."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from satwatch.client.batch import read_microbatch
from satwatch.hooks.core.metrics import MicrobatchMetrics
from satwatch.sat import clip_bounds
from satwatch.types import Rule


def _add(metrics, d, *, mask=None, lengths=None, rule=None, **fields):
    rule = Rule() if rule is None else rule
    batch = read_microbatch(d, rule.level, mask=mask, sequence_lengths=lengths, **fields)
    bounds = clip_bounds(d, mask=mask, sequence_lengths=lengths, quantile=rule.quantile, level=rule.level)
    metrics.add_batch(batch)
    metrics.add_bounds(batch, bounds)
    return bounds


def _read(d, **given):
    metrics = MicrobatchMetrics()
    bounds = _add(metrics, d, **given)
    return metrics.read(), bounds


def test_of_nothing_there_is_nothing():
    metrics = MicrobatchMetrics()
    assert metrics.read() == {}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_microbatches_add_up_to_all_their_active_tokens(dtype):
    generator = np.random.default_rng(0)
    metrics, tokens, lows, highs, gated, qs = MicrobatchMetrics(), [], [], [], 0, []
    for rows in (3, 5):
        d = torch.from_numpy(generator.standard_t(3, size=(rows, 40)) * 0.05).to(dtype)
        mask = torch.from_numpy(generator.random((rows, 40)) < 0.7)
        bounds = _add(metrics, d, mask=mask)
        tokens += d[mask].double().tolist()
        lows += bounds.low[mask].double().tolist()
        highs += bounds.high[mask].double().tolist()
        gated += int(bounds.gate.sum())
        qs.append(float(bounds.quantile_reference))
    expected = {
        "tokens": len(tokens),
        "nan_tokens": 0,
        "inf_tokens": 0,
        "log_ratio_mean": math.fsum(tokens) / len(tokens),
        "log_ratio_abs_mean": math.fsum(map(abs, tokens)) / len(tokens),
        "gate_rate": gated / len(tokens),
        "clip_radius_low_mean": 1 - math.fsum(lows) / len(tokens),
        "clip_radius_high_mean": math.fsum(highs) / len(tokens) - 1,
        "quantile_reference": max(qs),
    }
    assert metrics.read() == pytest.approx({f"satwatch/{name}": value for name, value in expected.items()}, rel=1e-9)
    assert 0 < expected["gate_rate"] < 0.1


def test_nan_and_infinite_tokens_are_counted_and_in_no_mean():
    d = torch.tensor([[0.01, 0.01, math.nan, math.inf], [-math.inf, 0.0, math.nan, 0.0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0]])
    out, _ = _read(d, mask=mask)
    assert (out["satwatch/tokens"], out["satwatch/nan_tokens"], out["satwatch/inf_tokens"]) == (5, 1, 2)
    assert out["satwatch/log_ratio_abs_mean"] == pytest.approx(0.01)


def test_padding_takes_no_part_whatever_it_holds():
    d = torch.tensor([[0.1, 0.2, 0.3]])
    padded = torch.tensor([[0.1, 0.2, 0.3, math.nan, 1e30]])
    alone, _ = _read(d, behavior_version=[3], policy_version=4)
    masked, _ = _read(padded, mask=torch.tensor([[1.0, 0.5, 1.0, 0.0, 0.0]]), behavior_version=[3], policy_version=4)
    assert masked == alone


def test_what_has_no_value_is_absent():
    out, _ = _read(torch.tensor([[math.nan, 0.5]]), mask=torch.tensor([[1, 0]]))
    assert out["satwatch/tokens"] == out["satwatch/nan_tokens"] == 1
    assert not {"satwatch/log_ratio_mean", "satwatch/quantile_reference", "satwatch/version_coverage"} & set(out)
    out, _ = _read(torch.tensor([[0.5]]), mask=torch.tensor([[0]]), behavior_version=1, policy_version=1)
    assert out == {"satwatch/tokens": 0, "satwatch/nan_tokens": 0, "satwatch/inf_tokens": 0}


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0)])
def test_an_empty_batch(shape):
    out, _ = _read(torch.empty(shape), behavior_version=2, policy_version=4)
    assert out == {"satwatch/tokens": 0, "satwatch/nan_tokens": 0, "satwatch/inf_tokens": 0}


def test_a_batch_whose_bounds_never_came_counts_as_tokens_only():
    metrics = MicrobatchMetrics()
    metrics.add_batch(read_microbatch(torch.tensor([0.1, 0.3]), "token"))
    out = metrics.read()
    assert out["satwatch/tokens"] == 2
    assert "satwatch/gate_rate" not in out
    _add(metrics, torch.tensor([0.1] * 9 + [0.5]))
    assert metrics.read()["satwatch/gate_rate"] == pytest.approx(0.1)


def _lag(**given):
    out, _ = _read(torch.full((2, 3), 0.1), **given)
    return {name.removeprefix("satwatch/"): out[name] for name in sorted(out) if "version" in name or "lag" in name}


def test_version_lag_by_token_by_sequence_and_by_batch():
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    by_sequence = {"version_coverage": 1.0, "version_lag_mean": (3 * 2 + 5) / 4, "version_lag_max": 5.0}
    assert _lag(mask=mask, policy_version=10, behavior_version=[8, 5]) == by_sequence
    assert _lag(mask=mask, policy_version="10", behavior_version=torch.tensor([[8], [5]])) == by_sequence
    per_token = torch.tensor([[8, 8, 8], [5, 1, 11]])
    assert _lag(mask=mask, policy_version=10, behavior_version=per_token) == by_sequence
    assert _lag(policy_version=10, behavior_version=7) == {
        "version_coverage": 1.0,
        "version_lag_mean": 3.0,
        "version_lag_max": 3.0,
    }


def test_version_lag_of_a_flat_batch_by_sequence():
    d = torch.full((6,), 0.1)
    mask = torch.tensor([1, 1, 0, 1, 1, 1])
    out, _ = _read(d, mask=mask, lengths=[3, 2, 1], policy_version=4, behavior_version=[4, 3, 0])
    assert out["satwatch/version_lag_mean"] == (0 + 0 + 1 + 1 + 4) / 5
    assert out["satwatch/version_lag_max"] == 4


def test_an_unknown_version_is_coverage_and_not_lag_zero():
    out, _ = _read(torch.full((3,), 0.1), policy_version=6, behavior_version=[5, None, 5])
    assert out["satwatch/version_lag_mean"] == 1
    assert out["satwatch/version_coverage"] == pytest.approx(2 / 3)
    assert _lag(policy_version=None, behavior_version=3) == {"version_coverage": 0.0}
    assert _lag(policy_version=3, behavior_version="default") == {"version_coverage": 0.0}
    assert _lag(policy_version=3) == {}


def test_microbatches_without_versions_are_not_covered():
    metrics = MicrobatchMetrics()
    _add(metrics, torch.full((1, 3), 0.1), policy_version=6, behavior_version=4)
    _add(metrics, torch.full((1, 1), 0.1), policy_version=6)
    assert metrics.read()["satwatch/version_coverage"] == 0.75


def test_a_negative_lag_is_a_fault_and_in_no_mean():
    out, _ = _read(torch.full((3,), 0.1), policy_version=5, behavior_version=[7, 4, 4])
    assert out["satwatch/negative_lag_tokens"] == 1
    assert out["satwatch/version_lag_mean"] == out["satwatch/version_lag_max"] == 1
    assert out["satwatch/version_coverage"] == 1
    out, _ = _read(torch.full((1,), 0.1), policy_version=5, behavior_version=7)
    assert "satwatch/version_lag_mean" not in out
    assert "satwatch/version_lag_max" not in out


def test_the_largest_lag_and_threshold_of_several_microbatches():
    metrics = MicrobatchMetrics()
    for version, d in ((3, 0.1), (1, 0.4), (None, math.nan), (5, 0.2)):
        _add(metrics, torch.full((2,), d), policy_version=6, behavior_version=version)
    out = metrics.read()
    assert out["satwatch/version_lag_max"] == 5
    assert out["satwatch/quantile_reference"] == pytest.approx(0.4)


def test_clear_starts_over():
    metrics = MicrobatchMetrics()
    _add(metrics, torch.tensor([0.1]), policy_version=1, behavior_version=1)
    metrics.clear()
    assert metrics.read() == {}
