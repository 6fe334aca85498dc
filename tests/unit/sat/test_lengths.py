"""Version lag by response length: sums that agree with the lag of the whole batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from satwatch.sat import lag_by_length, version_lag
from satwatch.types import LengthLag, VersionRun


def runs(*pairs):
    return [VersionRun(tokens, version) for tokens, version in pairs]


def test_responses_fall_into_buckets_that_double():
    found = lag_by_length(9, runs((1 + 2 + 3 + 4 + 5, 9)), [1, 2, 3, 4, 5])
    assert {longest: bucket.responses for longest, bucket in found.items()} == {1: 1, 2: 1, 4: 2, 8: 1}
    assert [bucket.length for bucket in found.values()] == [1, 2, 7, 5]


def test_a_response_over_several_versions():
    """Begun at v7, finished at v9, consumed by v12: N_PQS is 2 and 1 and 0, N_IQS is 3."""
    found = lag_by_length(12, runs((2, 7), (3, 8), (5, 9)), [10])
    assert found == {16: LengthLag(16, 1, 10, 10, 2 * 5 + 3 * 4 + 5 * 3, 10, 2 * 2 + 3 * 1, 30)}


def test_unknown_and_negative_lags_count_as_length_only():
    found = lag_by_length(5, runs((2, None), (2, 6), (3, 3), (1, None)), [4, 4])
    assert found == {4: LengthLag(4, 2, 8, tokens=3, lag=6)}


def test_without_versions_there_are_still_responses():
    for found in (lag_by_length(5, (), [3, 0, 3]), lag_by_length(None, runs((6, 1)), [3, 0, 3])):
        assert found == {4: LengthLag(4, 2, 6)}


def test_a_version_a_response_leaves_the_parts_unknown():
    assert lag_by_length(12, runs((8, 9)), [8], by_sequence=True) == {8: LengthLag(8, 1, 8, 8, 24)}


def test_without_lengths_nothing_is_known():
    assert lag_by_length(5, runs((4, 3)), ()) == {}
    assert lag_by_length(5, (), [0, 0]) == {}


lengths = st.lists(st.integers(0, 40), max_size=8)


@given(lengths, st.lists(st.tuples(st.integers(1, 30), st.one_of(st.none(), st.integers(0, 9))), max_size=12))
def test_the_buckets_add_up_to_the_batch(lengths, drawn):
    versions, left = [], sum(lengths)
    for tokens, version in [*drawn, (sum(lengths), None)]:
        taken = min(tokens, left)
        versions.append(VersionRun(taken, version))
        left -= taken
    found, whole = lag_by_length(6, versions, lengths), version_lag(6, versions, lengths)
    assert sum(bucket.length for bucket in found.values()) == sum(lengths)
    assert sum(bucket.responses for bucket in found.values()) == sum(length > 0 for length in lengths)
    if any(lengths):
        for name, counts in (("lag", whole.lags), ("generation_lag", whole.generation_lags)):
            expected = sum(lag * tokens for lag, tokens in counts.items())
            assert sum(getattr(bucket, name) for bucket in found.values()) == expected
        assert sum(bucket.tokens for bucket in found.values()) == sum(whole.lags.values())
        assert sum(bucket.split_tokens for bucket in found.values()) == sum(whole.queue_lags.values())
        assert sum(bucket.queue_lag for bucket in found.values()) == sum(k * n for k, n in whole.queue_lags.items())
