from __future__ import annotations

import numpy as np
import pytest
import torch

from satwatch.client.versions import read_behavior_versions, read_version
from satwatch.errors import InvalidBatchError
from satwatch.sat.layout import lay_out

MASK = torch.tensor([[True, True, False, True], [False, True, True, False]])


def runs(value, shape=(2, 4), mask=None, lengths=None):
    ratios = torch.zeros(shape)
    frame = lay_out(ratios, None, lengths)
    read = read_behavior_versions("behavior_version", value, frame)
    found = read.runs(lay_out(ratios, mask, lengths))
    return [(run.tokens, run.version) for run in found]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        (0, 0),
        ("7", 7),
        ("+7", 7),
        ("007", 7),
        (np.int32(7), 7),
        (torch.tensor(7), 7),
        (2**63 - 1, 2**63 - 1),
        (None, None),
        (-1, None),
        ("-1", None),
        ("step-7", None),
        ("7.0", None),
        ("", None),
        ("\N{ARABIC-INDIC DIGIT SEVEN}", None),
        ("9" * 40, None),
    ],
)
def test_one_version(value, expected):
    assert read_version("policy_version", value) == expected


@pytest.mark.parametrize("value", [True, 1.5, torch.tensor(1.5), [1], 2**63, {}])
def test_what_is_no_version_is_refused_by_name(value):
    with pytest.raises(InvalidBatchError, match=r"^policy_version: got "):
        read_version("policy_version", value)


def test_one_for_the_batch_counts_the_active_tokens():
    assert runs("12") == [(8, 12)]
    assert runs("12", mask=MASK) == [(5, 12)]


def test_none_at_all_is_nothing_to_send():
    assert read_behavior_versions("behavior_version", None, lay_out(torch.zeros(3))) is None


@pytest.mark.parametrize("value", [-1, "a", [-1, None], torch.full((2, 4), -1)])
def test_all_unknown_is_nothing_to_send(value):
    assert runs(value) == []


@pytest.mark.parametrize(
    "value", [[3, 5], ["3", 5], (3, 5), np.array([3, 5]), torch.tensor([3, 5]), np.array(["3", "5"])]
)
def test_one_a_sequence(value):
    assert runs(value) == [(4, 3), (4, 5)]
    assert runs(value, mask=MASK) == [(3, 3), (2, 5)]


def test_one_a_sequence_as_a_column():
    assert runs(torch.tensor([[3], [5]])) == [(4, 3), (4, 5)]


def test_an_unknown_version_among_known_ones_stays_unknown():
    assert runs([None, 5]) == [(4, None), (4, 5)]
    assert runs(np.array([4, -9], dtype=np.int16)) == [(4, 4), (4, None)]


def test_equal_neighbours_are_one_run():
    assert runs([6, 6]) == [(8, 6)]


def test_a_sequence_without_active_tokens_takes_no_run():
    mask = torch.tensor([[False] * 4, [True] * 4])
    assert runs([3, 5], mask=mask) == [(4, 5)]


TOKENS = [[1, 1, 2, 2], [2, 2, 3, 3]]


@pytest.mark.parametrize(
    "value",
    [
        TOKENS,
        torch.tensor(TOKENS),
        np.array(TOKENS),
        [torch.tensor(row) for row in TOKENS],
        [[str(v) for v in r] for r in TOKENS],
    ],
)
def test_one_a_token(value):
    assert runs(value) == [(2, 1), (4, 2), (2, 3)]
    assert runs(value, mask=MASK) == [(2, 1), (2, 2), (1, 3)]


def test_one_a_token_of_ragged_sequences():
    for value in ([[1], [2, 2]], [1, 2, 2], torch.tensor([1, 2, 2])):
        assert runs(value, shape=(3,), lengths=[1, 2]) == [(1, 1), (2, 2)]


def test_flat_versions_of_ragged_sequences_are_one_a_sequence_where_only_that_fits():
    assert runs([1, 2], shape=(3,), lengths=[1, 2]) == [(1, 1), (2, 2)]


def test_where_both_fit_it_is_one_a_token():
    assert runs([1, 2], shape=(2,), lengths=[2, 0]) == [(1, 1), (1, 2)]


def test_no_tokens_no_runs():
    assert runs(3, shape=(0,)) == []
    assert runs([], shape=(0,), lengths=[]) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            [1, 2, 3],
            r"got 3 versions, required one version, or one a token in log_ratio's shape \(2, 4\), or one for each of 2",
        ),
        (torch.zeros(4, 2, dtype=torch.int64), r"got shape \(4, 2\)"),
        ([[1, 1], [2, 2]], "got 2 lists of 4 versions"),
        (torch.zeros(2, 4), "dtype: got torch.float32, required an integer dtype"),
        (torch.zeros(2, 4, dtype=torch.bool), "dtype: got torch.bool"),
        ([1.5, 2], r"got 1.5 \(float\), required an int, a string or None"),
        (np.array([1.5, 2]), r"got 1.5 \(float\)"),
        (object(), r"\(object\), required an int"),
    ],
)
def test_misfits_are_refused_by_name(value, message):
    with pytest.raises(InvalidBatchError, match=rf"^behavior_version.*{message}"):
        runs(value)
