"""The parts of d add up to it, over the tokens where both are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satwatch.errors import InvalidBatchError
from satwatch.sat import Gap, lag_0_tokens, split_deltas
from satwatch.sat.quantile import CHUNK
from satwatch.types import VersionRun
from tests.property.strategies import anything

logprobs = st.one_of(st.floats(-30, 0, width=32), st.sampled_from([np.nan, -np.inf]))


@given(st.lists(st.tuples(anything, logprobs, logprobs), max_size=40))
def test_the_parts_add_up_to_d_over_the_tokens_that_have_both(rows):
    d, mu, reference = (np.array([row[i] for row in rows], dtype=np.float64) for i in range(3))
    found = split_deltas(d, mu, reference)
    with np.errstate(all="ignore"):
        impl = reference - mu
        policy = d - impl
    known = np.isfinite(impl) & np.isfinite(policy)
    assert found.impl.tokens == found.policy.tokens == known.sum()
    assert found.impl.absolute == pytest.approx(np.abs(impl[known]).sum())
    assert found.policy.total + found.impl.total == pytest.approx(d[known].sum(), abs=1e-6, rel=1e-9)


def test_float32_is_subtracted_in_float64():
    d, mu, reference = (np.array([x], dtype=np.float32) for x in (0.1, -8.3, -8.2))
    found = split_deltas(d, mu, reference)
    assert found.impl.total == float(reference[0]) - float(mu[0])
    assert found.policy.total == float(d[0]) - found.impl.total


def test_one_log_prob_alone_tells_neither_part():
    d, mu = np.array([0.1, 0.2]), np.array([-1.0, -1.0])
    for found in (split_deltas(d, mu, None), split_deltas(d, None, mu), split_deltas(d)):
        assert found.policy == found.impl == Gap()
        assert found.impl.mean is None


def test_tokens_of_lag_0_are_the_floor():
    runs = [VersionRun(1, 3), VersionRun(2, 4), VersionRun(1, None), VersionRun(1, 5), VersionRun(2, 4)]
    d = np.array([9.0, 0.5, -0.5, 9.0, 9.0, np.nan, 0.25])
    found = split_deltas(d, lag_0=lag_0_tokens(4, runs)).lag_0
    assert (found.tokens, found.total, found.absolute_mean) == (3, 0.25, 1.25 / 3)


@pytest.mark.parametrize("policy_version", [None, 7])
def test_no_token_of_lag_0_is_no_floor(policy_version):
    runs = [VersionRun(1, 3), VersionRun(1, None)]
    assert lag_0_tokens(policy_version, runs) is None
    assert split_deltas(np.array([0.1, 0.2])).lag_0.absolute_mean is None


def test_sums_that_overflow_saturate():
    gap = Gap.of(np.array([1.5e308, 1.5e308]))
    assert gap.absolute_mean < float("inf")
    assert gap.merge(gap).absolute_mean < float("inf")


@pytest.mark.parametrize("name", ["behavior_logprob", "reference_logprob", "lag_0"])
def test_a_field_of_another_length_is_refused(name):
    values = np.array([True]) if name == "lag_0" else np.array([-1.0])
    with pytest.raises(InvalidBatchError, match=f"{name}.*1 values.*2"):
        split_deltas(np.array([0.1, 0.2]), **{name: values})


def test_several_chunks_are_summed_as_one():
    rng = np.random.default_rng(0)
    n = 2 * CHUNK + 77
    d, mu, reference = rng.normal(0, 0.1, n), -rng.random(n), -rng.random(n)
    fresh = rng.random(n) < 0.3
    found = split_deltas(d, mu, reference, fresh)
    assert (found.impl.tokens, found.policy.tokens, found.lag_0.tokens) == (n, n, fresh.sum())
    assert found.impl.absolute == pytest.approx(np.abs(reference - mu).sum(), rel=1e-12)
    assert found.policy.absolute == pytest.approx(np.abs(d - reference + mu).sum(), rel=1e-12)
    assert found.lag_0.absolute == pytest.approx(np.abs(d[fresh]).sum(), rel=1e-12)
