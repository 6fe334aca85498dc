"""A sidecar that is away, or dies: TRL's training goes on, and is the same training, bit for bit."""

from __future__ import annotations

import socket

import pytest
import torch
from transformers import TrainerCallback

import satwatch
import tests.trainers.trl.tiny as tiny
from satwatch.errors import UnavailableError
from satwatch.hooks.trl import SatGRPOTrainer

STEPS = 4


class AtStep(TrainerCallback):
    """Does something when a step has ended."""

    def __init__(self, step, act):
        self.step, self.act = step, act

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            self.act()


def trained(address, callback=None, **given):
    """Train under satwatch, on rollouts two versions old, and return the trainer and what its client did."""
    with satwatch.connect(address, run="outage", min_reference=1e-3, timeout=20.0, **given) as client:
        trainer = tiny.trainer(
            SatGRPOTrainer,
            satwatch=client,
            rollout_func=tiny.LaggedRollouts(lag=2),
            callbacks=None if callback is None else [callback],
            max_steps=STEPS,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
        )
        trainer.train()
        return trainer, client.stats


def assert_same(one, other):
    for name in ("loss", "grad_norm", "clip_ratio/region_mean", "satwatch/gate_rate", "satwatch/quantile_reference"):
        assert tiny.logged(one, name) == tiny.logged(other, name) != []
    weights = other.model.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in one.model.state_dict().items())


@pytest.fixture
def nobody():
    """An address where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def test_training_is_the_same_with_a_sidecar_without_one_and_with_one_that_dies(start_sidecar, nobody, caplog):
    alive, stats = trained(start_sidecar().address)
    assert (stats.bounds_from_sidecar, stats.bounds_from_fallback) == (2 * STEPS, 0)
    # The gate has had its say: this is not the nominal interval three times.
    assert max(tiny.logged(alive, "satwatch/gate_rate")) > 0

    dead, stats = trained(nobody)
    assert (stats.bounds_from_sidecar, stats.bounds_from_fallback) == (0, 2 * STEPS)
    assert_same(dead, alive)
    assert tiny.logged(dead, "satwatch/client_fallbacks")[STEPS - 1] == 2 * STEPS
    assert tiny.logged(dead, "satwatch/breaker_open")[STEPS - 1] == 1
    # The trainers before this one hear its steps, and wonder where their own are.
    said = [record.message for record in caplog.records if record.name == "satwatch" and nobody in record.message]
    assert len(said) == 1

    sidecar = start_sidecar()
    killed, stats = trained(sidecar.address, AtStep(2, sidecar.kill))
    assert (stats.bounds_from_sidecar, stats.bounds_from_fallback) == (4, 2 * STEPS - 4)
    assert_same(killed, alive)

    nominal, _ = trained(nobody, on_failure="nominal")
    assert tiny.logged(nominal, "grad_norm") != tiny.logged(alive, "grad_norm")


def test_raise_ends_the_run_for_those_who_ask_for_it(nobody):
    with pytest.raises(UnavailableError):
        trained(nobody, on_failure="raise")
