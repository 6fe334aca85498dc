"""Which of the processes that hold the same tokens sends them, and as which rank.

verl's sequence parallelism is the real module's; Megatron's state is by signature (``megatron.core.parallel_state``, as
verl 0.9.1 calls it): the real package is not run here.
"""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
from verl.utils import ulysses

from satwatch.client import FakeClient
from satwatch.errors import ConfigError
from satwatch.hooks import use
from satwatch.hooks.verl.microbatch import Place, place
from tests.trainers.verl.microbatches import Batch, actor_config


@pytest.fixture
def megatron(monkeypatch):
    """Stands for Megatron's process groups: data-parallel rank 1 of 4, and where the test says among the peers."""

    def start(tensor=0, context=0, initialized=True):
        state = ModuleType("megatron.core.parallel_state")
        state.model_parallel_is_initialized = lambda: initialized
        state.get_tensor_model_parallel_rank = lambda: tensor
        state.get_context_parallel_rank = lambda: context
        state.get_data_parallel_rank = lambda: 1
        state.get_data_parallel_world_size = lambda: 4
        monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)

    return start


def test_alone():
    assert place() == Place(None, None, sends=True)


@pytest.mark.parametrize(("tensor", "context", "sends"), [(0, 0, True), (1, 0, False), (0, 1, False)])
def test_of_megatrons_peers_the_first_sends(megatron, tensor, context, sends):
    megatron(tensor, context)
    assert place() == Place(1, 4, sends=sends)


def test_megatron_that_is_only_imported(megatron):
    megatron(tensor=1, initialized=False)
    assert place() == Place(None, None, sends=True)


def test_a_peer_in_sequence_parallelism_sends_nothing_and_has_the_same_loss(installed, monkeypatch):
    client = FakeClient()
    use(client)
    batch = Batch()
    sent = batch.run(installed.ppo_loss, actor_config())
    monkeypatch.setattr("satwatch.hooks.verl.loss._hooks", {})
    monkeypatch.setattr(ulysses, "get_ulysses_sequence_parallel_rank", lambda group=None: 1)
    kept = batch.run(installed.ppo_loss, actor_config())
    assert len(client.calls) == 1
    assert kept[0] == sent[0] and all(map(torch.equal, kept[2], sent[2]))
    # Its part of verl's metrics is the same: nothing waits for a rank that logs other names.
    assert kept[1].keys() == sent[1].keys()


def test_a_client_of_another_rank_is_refused(installed, megatron):
    import satwatch

    megatron()
    with satwatch.connect("127.0.0.1:1", run="x", rank=0, world_size=4) as client:
        use(client)
        with pytest.raises(ConfigError, match="rank"):
            Batch().run(installed.ppo_loss, actor_config())
