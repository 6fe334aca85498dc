"""The way to a worker: registered on the driver, synchronised by SkyRL, found by name in another Ray process."""

from __future__ import annotations

import sys

import pytest
import ray
import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry, repopulate_all_registries, sync_registries

from satwatch.hooks.skyrl import sat_loss
from satwatch.sat import clip_bounds
from tests.trainers.skyrl.batches import batch, clipped_loss, config


@pytest.fixture
def cluster(sidecar):
    """A Ray of one core; its processes end with the test."""
    PolicyLossRegistry.register("sat", sat_loss)
    variables = {"SATWATCH_RUN": "ray", "SATWATCH_ADDRESS": sidecar.address, "PYTHONPATH": ":".join(sys.path)}
    ray.init(
        num_cpus=1,
        include_dashboard=False,
        runtime_env={"env_vars": variables},
        _node_ip_address="127.0.0.1",
        object_store_memory=100 * 2**20,
    )
    yield
    ray.shutdown()
    PolicyLossRegistry.unregister("sat")


def test_a_worker_finds_the_loss_by_its_name(cluster, sidecar):
    # As SkyRL's entry point does: the configuration is checked, then the registries are shared.
    repopulate_all_registries()
    sync_registries()
    assert "sat" in PolicyLossRegistry.list_available()
    tensors = [tensor.detach() for tensor in batch()]
    settings = config()

    @ray.remote
    def worker(now, old, advantage, mask, behavior):
        found = PolicyLossRegistry.get("sat")
        now.requires_grad_()
        loss, metrics = found(now, old, advantage, config=settings, loss_mask=mask, rollout_logprobs=behavior)
        loss.backward()
        return f"{found.__module__}.{found.__name__}", loss.detach(), now.grad, metrics

    name, loss, gradient, metrics = ray.get(worker.remote(*tensors), timeout=200)
    assert name == "satwatch.hooks.skyrl.sat_loss"
    now, _, advantage, mask, behavior = tensors
    bounds = clip_bounds(now - behavior, mask=mask, min_reference=1e-3)
    wanted, wanted_gradient = clipped_loss(now, behavior, advantage, mask, bounds.low, bounds.high)
    torch.testing.assert_close(loss, wanted, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(gradient, wanted_gradient, rtol=1e-6, atol=1e-8)
    assert metrics["satwatch/client_fallbacks"] == 0
    assert sidecar.metrics()['satwatch_tokens_total{run="ray"}'] == int(mask.sum())
