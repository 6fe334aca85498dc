"""The engines of a batch: one name for all or one a sequence, as runs of active tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from satwatch.client.origins import read_behavior_engines
from satwatch.errors import InvalidBatchError
from satwatch.sat.layout import lay_out

MASK = torch.tensor([[True, True, False, True], [False, True, True, False]])


def runs(value, shape=(2, 4), mask=None, lengths=None):
    ratios = torch.zeros(shape)
    read = read_behavior_engines("behavior_engine", value, lay_out(ratios, None, lengths))
    return [(run.tokens, run.engine) for run in read.runs(lay_out(ratios, mask, lengths))]


def test_one_for_the_batch_counts_the_active_tokens():
    assert runs("10.0.0.7:30000") == [(8, "10.0.0.7:30000")]
    assert runs("a", mask=MASK) == [(5, "a")]
    assert runs("a", shape=(3,)) == [(3, "a")]


@pytest.mark.parametrize("value", [["a", "b"], ("a", "b"), np.array(["a", "b"]), np.array(["a", "b"], dtype=object)])
def test_one_a_sequence(value):
    assert runs(value) == [(4, "a"), (4, "b")]
    assert runs(value, mask=MASK) == [(3, "a"), (2, "b")]
    assert runs(value, shape=(3,), lengths=[1, 2]) == [(1, "a"), (2, "b")]


def test_equal_neighbours_are_one_run():
    assert runs(["a", "a"]) == [(8, "a")]
    assert runs(["a", "b", "a"], shape=(3, 1)) == [(1, "a"), (1, "b"), (1, "a")]


@pytest.mark.parametrize("unknown", [None, ""])
def test_an_unknown_engine_among_known_ones_stays_unknown(unknown):
    assert runs([unknown, "b"]) == [(4, ""), (4, "b")]


@pytest.mark.parametrize("value", ["", [None, ""], [None, None]])
def test_all_unknown_is_nothing_to_send(value):
    assert runs(value) == []
    assert read_behavior_engines("behavior_engine", None, lay_out(torch.zeros(3))) is None


def test_a_sequence_without_active_tokens_takes_no_run():
    mask = torch.tensor([[False] * 4, [True] * 4])
    assert runs(["a", "b"], mask=mask) == [(4, "b")]
    assert runs(["a", None], mask=mask) == []
    assert runs(["a", "b", "a"], shape=(3,), lengths=[1, 0, 2]) == [(3, "a")]


def test_no_tokens_no_runs():
    assert runs("a", shape=(0,)) == []
    assert runs([], shape=(0,), lengths=[]) == []


@pytest.mark.parametrize(
    ("value", "shape", "words"),
    [
        (["a"], (2, 4), "behavior_engine: got 1 names, required one name, or one for each of 2 sequences"),
        (["a"], (4,), "behavior_engine: got 1 names, required one name$"),
        (["a", 7], (2, 4), r"behavior_engine\[1\]: got 7, required a name of 1 to 200 printable characters"),
        (7, (2, 4), "behavior_engine: got 7, required a name"),
        ("a\nb", (2, 4), r"behavior_engine: got 'a\\nb'"),
        (["a", "x" * 201], (2, 4), r"behavior_engine\[1\]: got 'xxx"),
        (torch.zeros(2, 4), (2, 4), "behavior_engine: got tensor"),
        (np.array([1, 2]), (2, 4), r"behavior_engine\[0\]: got 1, required a name"),
    ],
)
def test_misfits_are_refused_by_name(value, shape, words):
    with pytest.raises(InvalidBatchError, match=f"^{words}"):
        runs(value, shape)
