"""A step's totals: merged parts equal the whole, and nothing unknown becomes a number."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from satwatch.sat import (
    Sketch,
    StepTotals,
    lag_0_tokens,
    lag_by_length,
    score_batch,
    split_deltas,
    summarize,
    version_lag,
)
from satwatch.types import HEAT_BUCKETS, HEAT_EDGES, LayerRouting, Routing, Rule, Total, VersionRun
from tests.property.strategies import anything

POLICY_VERSION = 6

versions = st.one_of(st.none(), st.integers(0, 8))
responses = st.lists(st.tuples(st.lists(anything, min_size=1, max_size=12), versions, versions), max_size=5)


def totals_of(drawn):
    """Return the totals of one batch of responses, each with the version of its first half and of its second."""
    d = np.array([value for values, _, _ in drawn for value in values])
    runs = []
    for values, first, last in drawn:
        half = len(values) // 2
        runs += [VersionRun(half, first), VersionRun(len(values) - half, last)]
    lengths = [len(values) for values, _, _ in drawn]
    mu = -np.ones(len(d))
    reference = mu + np.where(np.isfinite(d), d, 0.0) / 2
    scores = score_batch(torch.from_numpy(d), Rule())
    return StepTotals(
        summarize(scores, scores.reference()),
        lag=version_lag(POLICY_VERSION, runs, lengths),
        deltas=split_deltas(d, mu, reference, lag_0_tokens(POLICY_VERSION, runs)),
        lengths=lag_by_length(POLICY_VERSION, runs, lengths),
        measures={"reward": Total(float(len(d)), 1)},
        batches=1,
        client_fallbacks=2,
    )


def assert_close(a, b):
    for name in ("policy", "impl", "lag_0"):
        one, other = getattr(a, name), getattr(b, name)
        assert one.tokens == other.tokens
        assert one.total == pytest.approx(other.total, rel=1e-9, abs=1e-9)
        assert one.absolute == pytest.approx(other.absolute, rel=1e-9, abs=1e-9)


@given(responses, responses)
def test_merged_batches_equal_one_batch_of_all_their_tokens(a, b):
    merged, whole = totals_of(a).merge(totals_of(b)), totals_of(a + b)
    assert merged.heat() == whole.heat()
    assert merged.lag == whole.lag
    assert merged.lengths == whole.lengths
    assert (merged.batches, merged.client_fallbacks) == (2, 4)
    assert merged.measures == {"reward": Total(float(whole.lag.tokens), 2)}
    assert_close(merged.deltas, whole.deltas)


@given(responses)
def test_the_totals_of_no_batch_are_the_unit(drawn):
    totals = totals_of(drawn)
    assert totals.merge(StepTotals.empty()) == totals
    assert StepTotals.empty().merge(totals) == totals


@given(st.lists(anything, max_size=60), st.sampled_from([np.float32, np.float64]))
def test_the_heat_is_a_count_between_its_edges(numbers, dtype):
    d = np.array(numbers, dtype=dtype)
    totals = StepTotals(summarize(scores := score_batch(torch.from_numpy(d), Rule()), scores.reference()), batches=1)
    edges = np.array([-1.0, *HEAT_EDGES, math.inf])
    expected = [0] * HEAT_BUCKETS
    for value in np.abs(d[~np.isnan(d)].astype(np.float64)):
        expected[int(np.searchsorted(edges, value, side="right")) - 1 if value < math.inf else -1] += 1
    assert list(totals.heat()) == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_edge_opens_its_bucket_and_the_value_below_it_does_not(dtype):
    for bucket, edge in enumerate(HEAT_EDGES):
        value = dtype(edge)
        for tokens, expected in (([value], bucket + 1), ([-np.nextafter(value, dtype(0))], bucket)):
            summary = summarize(scores := score_batch(torch.tensor(np.array(tokens)), Rule()), scores.reference())
            assert StepTotals(summary, batches=1).heat()[expected] == 1, edge


def test_values_are_those_of_all_tokens():
    first = totals_of([([0.5, -0.5], 6, 6)])
    second = totals_of([([1.0, 1.0, 1.0, 1.0], 4, None)])
    values = first.merge(second).values()
    assert values["tokens"] == 6
    assert values["log_ratio_abs_mean"] == pytest.approx(5 / 6)
    assert values["log_ratio_abs_mean_lag0"] == 0.5
    assert (values["version_lag_mean"], values["version_coverage_ratio"]) == (1.0, 4 / 6)
    assert values["delta_impl_abs_mean"] == pytest.approx((0.25 * 2 + 0.5 * 4) / 6)
    assert values["delta_policy_mean"] == pytest.approx((0.0 + 0.5 * 4) / 6)
    assert values["reference_coverage_ratio"] == 1.0
    assert values["response_length_mean"] == 3.0
    assert values["reward_mean"] == 3.0
    assert values["negative_lag_tokens"] == 0


def test_what_is_unknown_has_no_value():
    scores = score_batch(torch.tensor([0.1, 0.2]), Rule())
    values = StepTotals(summarize(scores, scores.reference()), batches=1).values()
    absent = {
        "version_lag_mean",
        "version_lag_max",
        "version_coverage_ratio",
        "negative_lag_tokens",
        "delta_policy_mean",
        "delta_impl_abs_mean",
        "log_ratio_abs_mean_lag0",
        "response_length_mean",
        "reward_mean",
        "router_flip_rate",
    }
    assert not absent & set(values)
    assert values["reference_coverage_ratio"] == 0.0  # known: no token came with references
    assert StepTotals.empty().values() == {"client_fallbacks": 0}


def test_a_report_alone_adds_its_measures_and_keeps_the_batch_exact():
    batch = totals_of([([0.3, 0.1, 0.2], 5, 5)])
    report = StepTotals(StepTotals.empty().summary, measures={"reward": Total(1.0, 4, 1), "loss": Total(0.0, 0, 2)})
    for merged in (batch.merge(report), report.merge(batch)):
        values = merged.values()
        assert values["reward_mean"] == 4.0 / 5
        assert "loss_mean" not in values  # NaN alone is no loss of 0
        assert values["log_ratio_abs_q0.5"] == 0.2
        assert merged.batches == 1


def test_reported_lengths_stand_before_those_of_active_tokens():
    batch = totals_of([([0.3, 0.1], 5, 5)])
    report = StepTotals(StepTotals.empty().summary, measures={"response_length": Total(30.0, 3)})
    assert batch.values()["response_length_mean"] == 2.0
    assert batch.merge(report).values()["response_length_mean"] == 10.0


def test_layer_flip_rates_merge_by_counts():
    a, b = (
        StepTotals(StepTotals.empty().summary, routing=Routing((LayerRouting(3, n, 1, 1, 2),), n, 1), batches=1)
        for n in (10, 30)
    )
    assert a.merge(b).layer_flip_rates() == {3: 2 / 40}
    assert StepTotals.empty().layer_flip_rates() == {}


def test_the_heat_of_merged_sketches_needs_no_tokens():
    parts = [np.array([2.0**-25, 3.0]), np.array([np.inf, 64.0, 0.0])]
    sketch = Sketch.build(parts[0]).merge(Sketch.build(parts[1]))
    summary = StepTotals.empty().summary
    heat = StepTotals(type(summary)(sketch, summary.gate, math.nan, has_advantage=False, abs_quantiles=None)).heat()
    assert (heat[0], heat[1], heat[-1], sum(heat)) == (1, 1, 2, 5)
