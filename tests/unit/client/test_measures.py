"""What a trainer reports of a step: in any of its forms the same sums, and what holds no numbers named."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from satwatch.client.measures import read_measures
from satwatch.errors import InvalidBatchError
from satwatch.types import Total

NAN = math.nan

FORMS = {
    "a list": [1.0, 2.5, -0.5],
    "a tuple of ints and floats": (1, 2.5, Fraction(-1, 2)),
    "a tensor": torch.tensor([1.0, 2.5, -0.5]),
    "a column": torch.tensor([[1.0], [2.5], [-0.5]]),
    "a gradient's": torch.tensor([1.0, 2.5, -0.5], requires_grad=True),
    "bfloat16": torch.tensor([1.0, 2.5, -0.5], dtype=torch.bfloat16),
    "an array": np.array([1.0, 2.5, -0.5], dtype=np.float16),
    "an array backwards": np.array([-0.5, 2.5, 1.0])[::-1],
    "an array of objects": np.array([1, 2.5, -0.5], dtype=object),
    "scalars of tensors": [torch.tensor(1.0), torch.tensor(2.5), torch.tensor(-0.5)],
    "scalars of numpy": [np.float32(1.0), np.float64(2.5), np.float16(-0.5)],
    "rows": [[1.0], [2.5, -0.5]],
    "rows of tensors and a number": [torch.tensor([1.0, 2.5]), -0.5],
    "rows of arrays": [np.array([1.0]), np.array([[2.5, -0.5]])],
}


@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_read_as_the_same(name):
    expected = Total(3.0, 3)
    assert read_measures(reward=FORMS[name], loss=FORMS[name]) == {"reward": expected, "loss": expected}


@pytest.mark.parametrize("number", [2, 2.0, np.float32(2), np.int8(2), torch.tensor(2), torch.tensor(2.0), np.array(2)])
def test_a_number_alone_is_one(number):
    assert read_measures(loss=number) == {"loss": Total(2.0, 1)}


@pytest.mark.parametrize(
    "right", [[True, False, True], torch.tensor([True, False, True]), np.array([True, False, True])]
)
def test_right_and_wrong_are_1_and_0(right):
    assert read_measures(reward=right) == {"reward": Total(2.0, 3)}


@pytest.mark.parametrize("lengths", [[5, 0, 7], torch.tensor([5, 0, 7]), np.array([5, 0, 7], dtype=np.uint16)])
def test_response_lengths_are_whole_numbers_of_tokens(lengths):
    assert read_measures(response_lengths=lengths) == {"response_length": Total(12.0, 3)}


def test_nan_is_counted_apart():
    assert read_measures(reward=torch.tensor([NAN, 1.0, NAN]))["reward"] == Total(1.0, 1, 2)
    assert read_measures(loss=NAN)["loss"] == Total(0.0, 0, 1)


def test_infinite_numbers_are_numbers():
    assert read_measures(reward=[math.inf, 1.0])["reward"] == Total(math.inf, 2)
    both = read_measures(reward=[math.inf, -math.inf])["reward"]
    assert math.isnan(both.total)
    assert (both.count, both.nan_count) == (2, 0)


@pytest.mark.parametrize("nothing", [None, [], torch.zeros(0), np.zeros((0, 3)), [[], []]])
def test_what_holds_no_number_is_absent_and_not_zero(nothing):
    assert read_measures(reward=nothing, loss=nothing, response_lengths=nothing) == {}


def test_a_sum_is_taken_in_float64():
    many = torch.full((4096,), 2049.0, dtype=torch.float16)  # float16 holds 2048 and 2050
    assert read_measures(reward=many)["reward"] == Total(4096 * float(many[0]), 4096)
    assert read_measures(reward=torch.full((2**24 + 1,), 1.0))["reward"].total == 2**24 + 1


@given(st.lists(st.floats(-1e6, 1e6) | st.just(NAN)), st.lists(st.floats(-1e6, 1e6) | st.just(NAN)))
def test_parts_add_up_to_the_whole(a, b):
    def read(numbers):
        return read_measures(reward=numbers).get("reward", Total())

    merged, whole = read(a).merge(read(b)), read(a + b)
    assert merged.total == pytest.approx(whole.total, abs=1e-6)
    assert (merged.count, merged.nan_count) == (whole.count, whole.nan_count)


REFUSALS = {
    "text": ({"reward": "high"}, r"reward: got 'high' \(str\), required a number"),
    "a dict": ({"reward": {"a": 1.0}}, r"reward: got \{'a': 1.0\} \(dict\)"),
    "None among numbers": ({"reward": [1.0, None]}, r"reward\[1\]: got None \(NoneType\), required a number"),
    "text in a row": ({"loss": [[1.0], ["x"]]}, r"loss\[1\]\[0\]: got 'x'"),
    "text in an array": ({"loss": np.array(["1"])}, "loss.dtype: got <U1, required one of real numbers"),
    "a complex number": ({"loss": 1j}, "loss: got 1j"),
    "complex numbers": ({"loss": torch.zeros(2, dtype=torch.complex64)}, "loss.dtype: got torch.complex64"),
    "complex numbers in an array": ({"loss": np.zeros(2, dtype=complex)}, "loss.dtype: got complex128"),
    "a number that no double holds": ({"loss": 10**400}, "loss: got 1000"),
    "a sparse tensor": ({"reward": torch.eye(2).to_sparse()}, "reward: got a tensor that is torch.sparse_coo"),
    "a tensor without values": ({"reward": torch.zeros(2, device="meta")}, "reward: got a tensor without values"),
    "a response of -1 tokens": (
        {"response_lengths": torch.tensor([3, -1])},
        "response_lengths: got -1, required numbers of tokens, 0 or more",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_holds_no_numbers_is_refused_by_name(name):
    fields, words = REFUSALS[name]
    with pytest.raises(InvalidBatchError, match=f"^{words}"):
        read_measures(**fields)
