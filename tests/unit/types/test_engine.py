"""The canary that trainer and probe agree on without a word, and reports that can't be meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satwatch import types as t
from satwatch.errors import ConfigError, InvalidBatchError


def test_the_default_canary_is_valid_in_any_vocabulary():
    canary = t.default_canary()
    assert [len(sequence) for sequence in canary.sequences] == [32] * 4
    assert all(10 <= token < 200 for sequence in canary.sequences for token in sequence)
    assert canary.scored == 124


def test_the_default_canary_is_one_for_all_releases():
    """A trainer and a probe of different releases compare it token by token: it must never change."""
    canary = t.default_canary()
    assert canary.sequences[0][:8] == (159, 49, 125, 54, 143, 129, 63, 79)
    assert canary.sequences[3][-8:] == (167, 167, 167, 26, 94, 194, 13, 189)


def test_the_default_canary_s_sequences_say_different_things():
    canary = t.default_canary()
    assert len(set(canary.sequences)) == 4
    assert all(len(set(sequence)) > 20 for sequence in canary.sequences)


@given(st.integers(12, 400))
def test_a_small_vocabulary_has_a_canary_of_its_own_tokens(vocab_size):
    canary = t.default_canary(vocab_size)
    assert all(10 <= token < min(vocab_size, 200) for sequence in canary.sequences for token in sequence)
    assert (canary == t.default_canary()) == (vocab_size >= 200)


@pytest.mark.parametrize("vocab_size", [0, 11, -5])
def test_a_vocabulary_without_a_choice_is_refused(vocab_size):
    with pytest.raises(InvalidBatchError, match=f"^vocab_size: got {vocab_size}, required 12 or more"):
        t.default_canary(vocab_size)


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"probe": ""}, InvalidBatchError, "probe: got ''"),
        ({"probe": 7}, InvalidBatchError, "probe: got 7"),
        ({"period_seconds": 0}, InvalidBatchError, "period_seconds: got 0"),
        ({"period_seconds": True}, InvalidBatchError, "period_seconds: got True"),
        ({"run": "a\tb"}, ConfigError, "run: got"),
        ({"engines": (t.EngineStatus("e"), t.EngineStatus("e"))}, InvalidBatchError, "engines: got 'e' twice"),
    ],
)
def test_a_report_that_can_t_be_meant_is_refused(fields, error, words):
    with pytest.raises(error, match=f"^{words}"):
        t.EnginesReport(**{"probe": "p", "engines": (), "period_seconds": 1.0, **fields})
