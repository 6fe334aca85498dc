"""A hook that has seen nothing yet, for each test."""

from __future__ import annotations

import os

import pytest

import satwatch.hooks.verl as hook
from satwatch.hooks import use
from satwatch.hooks.core.notices import Notices
from satwatch.hooks.verl import loss as hook_loss
from satwatch.hooks.verl import microbatch as hook_microbatch

for name in ("SATWATCH_RUN", "SATWATCH_ADDRESS", "SATWATCH_CLIENT_CONFIG"):
    os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(hook_loss, "_hooks", {})
    monkeypatch.setattr(hook_loss, "_heartbeat", [])
    monkeypatch.setattr(hook_loss, "_notices", Notices("verl"))
    monkeypatch.setattr(hook_microbatch, "_policy_version", [])
    yield
    use(None)


@pytest.fixture
def installed(monkeypatch):
    """verl with satwatch asked for; all as it was, afterwards."""
    from verl.trainer.ppo import core_algos
    from verl.workers import engine_workers
    from verl.workers.utils import losses

    monkeypatch.setattr(hook, "_installed", [])
    monkeypatch.setattr(losses, "ppo_loss", losses.ppo_loss)
    monkeypatch.setitem(core_algos.POLICY_LOSS_REGISTRY, "bypass_mode", core_algos.POLICY_LOSS_REGISTRY["bypass_mode"])
    worker = engine_workers.ActorRolloutRefWorker
    monkeypatch.setattr(worker, "update_weights", worker.update_weights)
    hook.install()
    return losses
