"""Version lag: unknown is not zero, and negative is a fault."""

from __future__ import annotations

import pytest

from satwatch.sat import version_lag
from satwatch.types import VersionRun


def runs(*pairs):
    return [VersionRun(tokens, version) for tokens, version in pairs]


def test_mixed_versions():
    lag = version_lag(12, runs((100, 10), (900, 11)), [1000])
    assert (lag.mean, lag.oldest, lag.coverage) == (pytest.approx(1.1), 2, 1.0)
    assert lag.versions == {10: 100, 11: 900}


def test_an_unknown_version_lowers_the_coverage_and_not_the_lag():
    lag = version_lag(6, runs((1, 5), (1, None), (1, 5)), [3])
    assert (lag.mean, lag.coverage) == (1.0, pytest.approx(2 / 3))
    assert 0 not in lag.lags


def test_a_negative_lag_is_counted_apart():
    lag = version_lag(5, runs((3, 7), (1, 4)), [4])
    assert (lag.negative_tokens, lag.lags, lag.oldest) == (3, {1: 1}, 1)


def test_waiting_and_generating_add_up():
    """A response begun at v7 and finished at v9, consumed by v12."""
    lag = version_lag(12, runs((2, 7), (3, 8), (5, 9)), [10])
    assert lag.generation_lags == {2: 2, 1: 3, 0: 5}
    assert lag.queue_lags == {3: 10}
    assert lag.lags == {5: 2, 4: 3, 3: 5}


def test_runs_are_cut_at_the_responses_ends():
    """One run may span responses; each response waits since its own last version."""
    lag = version_lag(10, runs((6, 8), (2, 9)), [3, 0, 5])
    assert lag.queue_lags == {2: 3, 1: 5}
    assert lag.generation_lags == {0: 5, 1: 3}


def test_without_lengths_the_parts_are_unknown():
    lag = version_lag(10, runs((4, 8)))
    assert lag.lags == {2: 4}
    assert not lag.generation_lags
    assert not lag.queue_lags


def test_an_unknown_last_version_leaves_the_parts_unknown():
    lag = version_lag(10, runs((4, 8), (1, None)), [5])
    assert lag.lags == {2: 4}
    assert not lag.queue_lags


def test_a_version_a_response_tells_nothing_of_what_passed_meanwhile():
    """The parts are unknown, and not all of it the queue's."""
    lag = version_lag(12, runs((100, 10), (900, 11)), [100, 900], by_sequence=True)
    assert lag.lags == {2: 100, 1: 900}
    assert (lag.coverage, lag.generation_lags, lag.queue_lags) == (1.0, {}, {})


def test_nothing_known():
    lag = version_lag(None, runs((4, 8)), [4])
    assert (lag.mean, lag.oldest, lag.coverage) == (None, None, 0.0)
    assert version_lag(3, []).coverage is None


def test_merging_adds_counts():
    a = version_lag(12, runs((100, 10), (900, 11)), [1000])
    b = version_lag(12, runs((50, None), (50, 13)), [100])
    merged = a.merge(b)
    assert merged.tokens == 1100
    assert merged.lags == {2: 100, 1: 900}
    assert merged.negative_tokens == 50
    assert merged.coverage == pytest.approx(1050 / 1100)
