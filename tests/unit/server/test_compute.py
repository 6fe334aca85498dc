"""Devices: the choice, and the CPU when one refuses."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from satwatch.errors import ConfigError, InvalidBatchError
from satwatch.sat import Scores, pack
from satwatch.server.compute import RETRY_SECONDS, Selector, choose_device, score
from satwatch.types import Rule, TokenBatch

SCORES = score(TokenBatch(pack(torch.tensor([0.1, -0.2, 0.3]))), Rule(quantile=0.5))
CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("wanted", "visible", "chosen"),
    [
        ("cpu", 2, torch.device("cpu")),
        ("auto", 0, torch.device("cpu")),
        ("auto", 1, torch.device("cuda", 0)),
        ("cuda", 1, torch.device("cuda", 0)),
        ("cuda:1", 2, torch.device("cuda", 1)),
    ],
)
def test_the_device_chosen(wanted, visible, chosen):
    assert choose_device(wanted, lambda: visible) == chosen


def test_a_device_that_is_not_visible():
    with pytest.raises(ConfigError, match="device: got 'cuda:1' with 1 CUDA devices visible, required"):
        choose_device("cuda:1", lambda: 1)


class Moody:
    """A device that takes work while it is in the mood."""

    refusal = torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 MiB")

    def __init__(self):
        self.willing = True
        self.asked = 0
        self.now = 0.0

    def clock(self):
        return self.now

    def select(self, scores, device):
        assert device == CUDA
        self.asked += 1
        if not self.willing:
            raise self.refusal
        return scores.reference()


def test_a_device_that_refuses_is_replaced_by_the_cpu_said_once_and_tried_again(caplog):
    moody = Moody()
    selector = Selector(CUDA, 0, clock=moody.clock, select=moody.select)
    q = SCORES.reference()
    with caplog.at_level(logging.INFO):
        assert selector.select(SCORES).device == "cuda"
        moody.willing = False
        refused = [selector.select(SCORES) for _ in range(3)]
        assert moody.asked == 2
        moody.now = RETRY_SECONDS
        refused.append(selector.select(SCORES))
        assert moody.asked == 3
        moody.willing, moody.now = True, 2 * RETRY_SECONDS
        again = selector.select(SCORES)
    assert [(found.quantile_reference, found.device, found.refused) for found in refused] == [(q, "cpu", True)] * 4
    assert (again.quantile_reference, again.device, again.refused) == (q, "cuda", False)
    assert [record.getMessage() for record in caplog.records] == [
        "cuda:0 refuses: CUDA out of memory. Bounds come from the CPU, the same to the bit.",
        "cuda:0 takes work again.",
    ]


def test_the_cpu_refuses_nothing():
    found = Selector(torch.device("cpu"), 0).select(SCORES)
    assert (found.quantile_reference, found.device, found.refused) == (SCORES.reference(), "cpu", False)


def test_sequence_level_needs_lengths_unless_there_is_no_token():
    with pytest.raises(InvalidBatchError, match="sequence_lengths: got None, required the tokens of each sequence"):
        score(TokenBatch(pack(torch.ones(2))), Rule(level="sequence"))
    empty = score(TokenBatch(pack(torch.empty(0))), Rule(level="sequence"))
    assert torch.tensor(empty.reference()).isnan()


def test_cuda_is_given_a_share_of_its_memory_and_the_least_urgent_stream(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=1 << 30))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *given: asked.append(given))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device, priority: asked.append((device, priority)))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(Scores, "reference", lambda scores, device=None: 0.5)
    selector = Selector(CUDA, 1 << 28)
    assert [selector.select(SCORES).device for _ in range(2)] == ["cuda", "cuda"]
    assert asked == [(0.25, CUDA), (CUDA, 0)]


def test_a_device_that_can_not_be_prepared_is_a_device_that_refuses(monkeypatch):
    def fail(device):
        raise RuntimeError

    monkeypatch.setattr(torch.cuda, "get_device_properties", fail)
    found = Selector(CUDA, 1 << 28).select(SCORES)
    assert (found.device, found.refused, found.quantile_reference) == ("cpu", True, SCORES.reference())
