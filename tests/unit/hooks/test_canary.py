"""The trainer's side of the canary, on a small model of torch alone."""

from __future__ import annotations

import logging
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from satwatch.client import FakeClient, default_canary
from satwatch.errors import InvalidBatchError
from satwatch.hooks import canary as hook
from satwatch.hooks.core.notices import Notices
from satwatch.types import Canary

CANARY = Canary.of([[5, 9, 2], [7, 7, 1, 0]])


class Bigram(torch.nn.Module):
    """Logits of the next token by the present one, with a dropout that eval mode turns off."""

    def __init__(self, vocabulary=256, wraps=False):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(vocabulary, vocabulary)
        self.dropout = torch.nn.Dropout(0.5)
        self.wraps = wraps

    def forward(self, input_ids):
        logits = self.dropout(self.table(input_ids))
        return SimpleNamespace(logits=logits) if self.wraps else logits


def expected(model, sequence):
    table = model.table.weight.detach().double()
    return [float(torch.log_softmax(table[a], 0)[b]) for a, b in pairwise(sequence)]


@pytest.mark.parametrize("wraps", [False, True], ids=["logits", "an output that has them"])
def test_it_scores_every_token_but_the_first(wraps):
    model = Bigram(wraps=wraps)
    scored = hook.canary_logprobs(model, CANARY)
    for logprobs, sequence in zip(scored, CANARY.sequences, strict=True):
        assert logprobs.dtype == torch.float64
        assert logprobs.tolist() == pytest.approx(expected(model, sequence), abs=1e-5)


def test_every_module_is_left_in_its_own_mode_with_its_own_gradients():
    model = Bigram().train()
    model.table.eval()  # a frozen part
    weight = model.table.weight
    weight.grad = torch.ones_like(weight)
    state = torch.get_rng_state()
    hook.canary_logprobs(model, CANARY)
    assert (model.training, model.table.training, model.dropout.training) == (True, False, True)
    assert torch.equal(weight.grad, torch.ones_like(weight))
    assert torch.equal(torch.get_rng_state(), state)


def test_it_reports_the_version_with_the_tokens():
    client, model = FakeClient(), Bigram()
    assert hook.report_canary(model, 3, client=client, canary=CANARY)
    (scores,) = client.canaries
    assert (scores.version, scores.canary, scores.temperature) == (3, CANARY, 1.0)
    assert len(scores.logprobs) == CANARY.scored


def test_the_default_canary_is_the_engines():
    client = FakeClient()
    assert hook.report_canary(Bigram(), 1, client=client)
    assert client.canaries[0].canary == default_canary()


def test_a_model_that_can_not_score_it_costs_the_canary_and_is_said_once(caplog, monkeypatch):
    monkeypatch.setattr(hook, "_notices", Notices("canary"))
    client, small = FakeClient(), Bigram(vocabulary=4).train()
    with caplog.at_level(logging.WARNING, "satwatch"):
        assert not hook.report_canary(small, 1, client=client, canary=CANARY)
        assert not hook.report_canary(small, 2, client=client, canary=CANARY)
    (record,) = caplog.records
    assert "IndexError" in record.getMessage()
    assert client.canaries == []
    assert small.training and small.dropout.training


def test_a_client_that_nobody_else_keeps_hears_it_all_the_same():
    heard = []

    class Listener(FakeClient):
        def report_canary(self, version, *scores, **given):
            heard.append(version)

    hook.report_canary(Bigram(), 4, client=Listener())  # in an assert it would be kept, to be shown
    assert heard == [4]


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (lambda logits: torch.cat([logits[:, :1], logits], 1), "logits: got shape (1, 4, 256), required (1, 3, voc"),
        (lambda logits: logits[:, -1:], "logits: got shape (1, 1, 256), required (1, 3, vocabulary)"),
        (lambda logits: logits[0], "logits: got shape (3, 256), required (1, 3, vocabulary)"),
        (lambda logits: logits[..., :9], "vocabulary: got 9, required 10 or more: the canary has token 9"),
    ],
    ids=["more positions than tokens", "the last position alone", "no batch", "a part of the vocabulary"],
)
def test_logits_of_another_shape_are_not_taken_for_the_canary_s(shape, said):
    class Other(Bigram):
        def forward(self, input_ids):
            return shape(super().forward(input_ids))

    with pytest.raises(InvalidBatchError) as refused:
        hook.canary_logprobs(Other(), CANARY)
    assert str(refused.value).startswith(said)


def test_tokens_that_the_model_does_not_have_are_not_looked_up():
    class Configured(Bigram):
        config = SimpleNamespace(vocab_size=9)

        def forward(self, input_ids):
            raise AssertionError

    with pytest.raises(InvalidBatchError, match=r"^vocabulary: got 9, required 10 or more"):
        hook.canary_logprobs(Configured(), CANARY)
