"""A trainer's scores of the canary: in any of its forms the same on the wire, and what does not fit named."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from satwatch.client import FakeClient, default_canary
from satwatch.client.canary import read_canary_scores
from satwatch.errors import InvalidBatchError
from satwatch.sat import unpack
from satwatch.types import Canary

TOKENS = [[11, 12, 13], [14, 15, 16]]
LOGPROBS = [[-1.0, -2.0], [-3.0, -4.0]]
FIRST_TOO = [[9.0, -1.0, -2.0], [9.0, -3.0, -4.0]]

FORMS = {
    "lists": (TOKENS, LOGPROBS),
    "tuples": (((11, 12, 13), (14, 15, 16)), ((-1.0, -2.0), (-3.0, -4.0))),
    "tensors": (torch.tensor(TOKENS), torch.tensor(LOGPROBS)),
    "tensors with a column for the first token": (torch.tensor(TOKENS, dtype=torch.int32), torch.tensor(FIRST_TOO)),
    "lists with a value for the first token": (TOKENS, FIRST_TOO),
    "arrays": (np.array(TOKENS), np.array(LOGPROBS, dtype=np.float32)),
    "rows of tensors": ([torch.tensor(row) for row in TOKENS], [torch.tensor(row) for row in FIRST_TOO]),
    "rows of arrays": ([np.array(row, dtype=np.uint16) for row in TOKENS], [np.array(row) for row in LOGPROBS]),
    "numpy's ints": ([[np.int64(token) for token in row] for row in TOKENS], LOGPROBS),
    "a canary": (Canary.of(TOKENS), LOGPROBS),
    "a gradient's": (TOKENS, torch.tensor(LOGPROBS, requires_grad=True)),
    "not contiguous": (torch.tensor(TOKENS).T.contiguous().T, torch.tensor(LOGPROBS).T.contiguous().T),
}


@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_read_as_the_same(name):
    tokens, logprobs = FORMS[name]
    scores = read_canary_scores(7, tokens, logprobs)
    assert scores.canary.sequences == ((11, 12, 13), (14, 15, 16))
    assert all(type(token) is int for sequence in scores.canary.sequences for token in sequence)
    assert unpack(scores.logprobs).tolist() == [-1.0, -2.0, -3.0, -4.0]
    assert (scores.version, scores.temperature, scores.top_p) == (7, 1.0, 1.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_log_probs_keep_their_dtype(dtype):
    scores = read_canary_scores("7", TOKENS, torch.tensor(LOGPROBS, dtype=dtype))
    assert unpack(scores.logprobs).dtype == dtype


def test_sequences_may_differ_in_length_and_in_what_they_say_of_their_first_token():
    scores = read_canary_scores(0, [[1, 2], [3, 4, 5, 6]], [[9.0, -1.0], [-2.0, -3.0, -4.0]])
    assert unpack(scores.logprobs).tolist() == [-1.0, -2.0, -3.0, -4.0]


def test_a_model_that_has_gone_to_nan_is_reported_as_it_is():
    scores = read_canary_scores(0, TOKENS, torch.full((2, 2), torch.nan))
    assert unpack(scores.logprobs).isnan().all()


REFUSALS = {
    "no version": ((None, TOKENS, LOGPROBS), "version: got None, required a whole number, 0 or more"),
    "a version that is no number": (("step", TOKENS, LOGPROBS), "version: got 'step'"),
    "a version below 0": ((-1, TOKENS, LOGPROBS), "version: got -1"),
    "tokens that are none": ((1, "text", LOGPROBS), "tokens: got str, required a list"),
    "no sequence": ((1, [], []), "tokens: got 0 sequences, required 1 to 64"),
    "text in a row": ((1, ["ab", "cd"], LOGPROBS), r"tokens\[0\]: got str, required a list of token ids"),
    "a token that is no whole number": ((1, [[1, 2.5, 3]], [[-1.0, -2.0]]), r"tokens\[0\]: got 2.5"),
    "a token that is a truth": ((1, [[1, True, 3]], [[-1.0, -2.0]]), r"tokens\[0\]: got True"),
    "a token below 0": ((1, [[1, -1, 3]], [[-1.0, -2.0]]), r"tokens\[0\]: got token -1"),
    "float tokens": ((1, torch.ones(2, 3), LOGPROBS), r"tokens.dtype: got torch.float32, required an integer"),
    "flat tokens": ((1, torch.tensor([1, 2]), LOGPROBS), r"tokens: got shape \(2,\), required \(S, T\)"),
    "a row of two dimensions": ((1, [torch.ones(1, 3, dtype=torch.int64)], [[-1.0, -2.0]]), r"tokens\[0\]: got shape"),
    "one token a sequence": ((1, [[1], [2]], [[-1.0], [-1.0]]), r"tokens\[0\]: got 1 tokens, required 2 or more"),
    "too many sequences": ((1, [[1, 2]] * 65, [[-1.0]] * 65), "tokens: got 65 sequences, required 1 to 64"),
    "too many tokens": (
        (1, torch.ones(1, 16_385, dtype=torch.int64), torch.ones(1, 16_384)),
        "tokens: got 16385 tokens, required at most 16384",
    ),
    "sparse tokens": ((1, torch.tensor(TOKENS).to_sparse(), LOGPROBS), "tokens: got a tensor that is torch.sparse_coo"),
    "log-probs that are none": ((1, TOKENS, "text"), "logprobs: got str"),
    "whole log-probs": ((1, TOKENS, torch.tensor([[1, 2], [3, 4]])), "logprobs"),
    "flat log-probs": ((1, TOKENS, torch.zeros(4)), r"logprobs: got shape \(4,\), required a row a sequence"),
    "a row too few": ((1, TOKENS, [[-1.0, -2.0]]), "logprobs: got 1 rows, required 2, one a sequence of tokens"),
    "a value too few": ((1, TOKENS, [[-1.0, -2.0], [-3.0]]), r"logprobs\[1\]: got 1 values, required 2"),
    "a value too many": ((1, TOKENS, torch.zeros(2, 4)), r"logprobs\[0\]: got 4 values, required 2"),
    "no temperature": ((1, TOKENS, LOGPROBS, 0.0), "temperature: got 0.0"),
    "a nucleus of nothing": ((1, TOKENS, LOGPROBS, 1.0, 0.0), "top_p: got 0.0"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_does_not_fit_is_refused_by_name(name):
    given, words = REFUSALS[name]
    with pytest.raises(InvalidBatchError, match=f"^{words}"):
        read_canary_scores(*given)


def test_the_fake_remembers_scores_as_the_client_reads_them():
    fake, canary = FakeClient(), default_canary()
    fake.report_canary(3, canary, torch.zeros(4, 31), temperature=0.7)
    (scores,) = fake.canaries
    assert (scores.canary, scores.version, scores.temperature) == (canary, 3, 0.7)
    assert (fake.stats.canaries_reported, fake.stats.canaries_missed) == (1, 0)
    with pytest.raises(InvalidBatchError, match=r"^logprobs"):
        fake.report_canary(3, canary, torch.zeros(4, 33))
    assert len(fake.canaries) == 1
