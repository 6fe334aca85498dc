"""The worst tokens of a batch: the right ones, in order, and with what is known of each and no more."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from satwatch.sat import pack, worst_tokens
from satwatch.types import EngineRun, TokenBatch, VersionRun, WorstToken
from tests.property.strategies import anything


def packed(values, dtype=torch.float64):
    return pack(torch.tensor(values, dtype=dtype))


@given(st.lists(anything, max_size=40), st.integers(0, 12))
def test_they_are_the_first_of_a_stable_sort(numbers, limit):
    worst = worst_tokens(TokenBatch(packed(numbers)), limit)
    keys = [math.inf if math.isnan(d) else abs(d) for d in numbers]
    order = sorted(range(len(numbers)), key=lambda i: (not math.isnan(numbers[i]), -keys[i], i))
    assert [token.position for token in worst] == order[:limit]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_nan_comes_first_then_infinity_then_the_largest(dtype):
    d = [0.5, -2.0, math.inf, 0.0, math.nan, -3.0]
    worst = worst_tokens(TokenBatch(packed(d, dtype)), 4)
    assert [token.position for token in worst] == [4, 2, 5, 1]
    assert math.isnan(worst[0].log_ratio)
    assert worst[1].log_ratio == math.inf


def test_all_that_was_sent_is_told_of_each():
    batch = TokenBatch(
        packed([0.1, 0.2, 4.0, -5.0, 0.3]),
        sequence_lengths=(2, 0, 3),
        sequence_advantage=packed([1.0, -9.0, -1.0]),
        behavior_logprob=packed([-1.0, -1.0, -6.0, -0.5, -1.0], torch.float32),
        reference_logprob=packed([-1.0, -1.0, -2.5, -5.0, -1.0]),
        behavior_versions=(VersionRun(3, 7), VersionRun(0, 9), VersionRun(1, None), VersionRun(1, 8)),
        behavior_engines=(EngineRun(2, "a"), EngineRun(1, "b"), EngineRun(2, "")),
    )
    assert worst_tokens(batch, 2) == (
        WorstToken(-5.0, 1, 2, -0.5, -5.5, -5.0, -1.0, None, None),
        WorstToken(4.0, 0, 2, -6.0, -2.0, -2.5, -1.0, 7, "b"),
    )


def test_what_was_not_sent_is_none():
    (worst,) = worst_tokens(TokenBatch(packed([0.0, -1.5])), 1)
    assert worst == WorstToken(-1.5, 1)


def test_an_advantage_a_token_is_its_own():
    batch = TokenBatch(packed([1.0, 3.0, 2.0]), advantage=packed([0.5, -0.5, 0.25], torch.bfloat16))
    assert [token.advantage for token in worst_tokens(batch)] == [-0.5, 0.25, 0.5]


@pytest.mark.parametrize("limit", [0, 3])
def test_an_empty_batch_has_none(limit):
    assert worst_tokens(TokenBatch(packed([])), limit) == ()


def test_nan_of_any_bit_pattern_is_one_rank():
    bits = np.array([0x7FC0_0001, 0x3F80_0000, 0xFFFF_FFFF, 0x7F80_0001], np.uint32)
    batch = TokenBatch(pack(torch.from_numpy(bits.view(np.float32))))
    assert [token.position for token in worst_tokens(batch, 3)] == [0, 2, 3]


def test_the_side_that_is_no_number_is_told_apart():
    """With NaN or infinity for log mu, d says nothing of log pi; with a number, a NaN d is the trainer's."""
    d, mu = [math.nan, math.nan, math.inf, -math.inf], [math.nan, -1.0, -math.inf, -2.0]
    worst = worst_tokens(TokenBatch(packed(d), behavior_logprob=packed(mu)))
    by_position = [token.policy_logprob for token in sorted(worst, key=lambda token: token.position)]
    assert by_position[0] is None
    assert math.isnan(by_position[1])
    assert by_position[2:] == [None, -math.inf]
