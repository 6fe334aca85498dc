"""The hook around OpenRLHF's own ``PolicyLoss``, and how well the contract tests' stand-in knows it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from openrlhf.models.loss import PolicyLoss

from satwatch.client import FakeClient
from satwatch.hooks.openrlhf import install
from satwatch.types import Rule
from tests.contract.hooks.openrlhf_stand_in import EPS_HIGH, EPS_LOW, batch, close, expected, run
from tests.contract.hooks.openrlhf_stand_in import PolicyLoss as StandIn

EPS = {"clip_eps_low": EPS_LOW, "clip_eps_high": EPS_HIGH}
CLIPS = {"is_correction_level": "token", "is_correction_mode": "clip", "is_correction_threshold": (0.9, 1.1)}
MASKS = {"is_correction_level": "token", "is_correction_threshold": (0.9, 1.1)}
BY_ROW = {"is_correction_level": "seq", "is_correction_threshold": (0.95, 1.1)}
CLOSE = 1e-7  # OpenRLHF divides by counts with a small number added


def attach(loss_fn, **rule):
    trainer = SimpleNamespace(actor_loss_fn=loss_fn, strategy=None, ppo_train=dict)
    client = FakeClient(rule=Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, **rule))
    return install(trainer, client), client


@pytest.mark.parametrize("correction", [{}, CLIPS, MASKS, BY_ROW])
@pytest.mark.parametrize(
    "settings", [{}, {"dual_clip": 1.1}, {"policy_loss_type": "gspo"}, {"token_level_loss": False}]
)
def test_the_stand_in_of_the_contract_tests_computes_what_openrlhf_does(correction, settings):
    arguments = batch()
    real, gradient = run(PolicyLoss(**EPS, **settings, **correction), arguments)
    stood_in, slope = run(StandIn(**settings, **correction), arguments)
    assert len(real) == len(stood_in)
    for one, other in zip(real, stood_in, strict=True):
        assert (one is None) == (other is None)
        assert one is None or close(one, other, CLOSE)
    assert close(gradient, slope, CLOSE)


@pytest.mark.parametrize("garbage", [0.0, 5.0])
@pytest.mark.parametrize("correction", [{}, CLIPS])
def test_openrlhfs_loss_clips_pi_now_to_mu_at_the_bounds_and_weighs_nothing(correction, garbage):
    loss_fn = PolicyLoss(**EPS, **correction)
    handle, client = attach(loss_fn)
    arguments = batch(garbage=garbage)
    out, gradient = run(loss_fn, arguments)
    right, slope, bounds = expected(arguments)
    assert bounds.gate.any()
    assert close(out[0], right, CLOSE)
    assert close(gradient, slope, CLOSE)
    stock, _ = run(PolicyLoss(**EPS, **correction), arguments)
    assert not close(out[0], stock[0], 1e-4)
    assert out[3:] == stock[3:]
    assert handle.metrics()["satwatch/decoupled"] == 0
    assert len(client.calls) == 1
    assert (loss_fn.clip_eps_low, loss_fn.clip_eps_high) == (EPS_LOW, EPS_HIGH)
    assert loss_fn.is_correction_level == correction.get("is_correction_level", "off")


@pytest.mark.parametrize("correction", [MASKS, BY_ROW])
def test_a_correction_that_drops_tokens_is_kept_with_the_radii_in_the_slots(correction):
    loss_fn = PolicyLoss(**EPS, **correction)
    handle, _ = attach(loss_fn, quantile=0.3)
    arguments = batch()
    towards = torch.sign(arguments["advantages"]) * (arguments["action_mask"] != 0)
    arguments["log_probs"] = (arguments["log_probs"] + 0.25 * towards).detach().requires_grad_()
    out, gradient = run(loss_fn, arguments)
    _, _, bounds = expected(arguments, quantile=0.3)
    radii = {"clip_eps_low": 1 - bounds.low, "clip_eps_high": bounds.high - 1}
    right, slope = run(PolicyLoss(**radii, **correction), arguments)
    nominal, _ = run(PolicyLoss(**EPS, **correction), arguments)
    assert torch.equal(out[0], right[0])
    assert torch.equal(gradient, slope)
    assert not torch.equal(out[0], nominal[0])
    assert handle.metrics()["satwatch/decoupled"] == 1


@pytest.mark.parametrize("correction", [{}, MASKS])
def test_at_sequence_level_openrlhf_clips_the_sequences_ratio_at_the_sequences_bounds(correction):
    loss_fn = PolicyLoss(**EPS, policy_loss_type="gspo", **correction)
    handle, _ = attach(loss_fn, level="sequence", quantile=0.5)
    arguments = batch()
    arguments["advantages"] = arguments["advantages"].abs()
    shift = torch.tensor([[0.2], [0.0], [0.0], [0.0]])
    arguments["log_probs"] = (arguments["log_probs"] + shift).detach().requires_grad_()
    out, gradient = run(loss_fn, arguments)
    right, slope, bounds = expected(arguments, "sequence", 0.5, "sequence")
    assert bounds.gate[0].any()
    assert close(out[0], right, CLOSE)
    assert close(gradient, slope, CLOSE)
    assert handle.metrics()["satwatch/decoupled"] == 0


def test_what_was_lent_is_put_back_when_openrlhfs_loss_raises():
    loss_fn = PolicyLoss(**EPS, **CLIPS)
    attach(loss_fn)
    arguments = batch() | {"advantages": None}
    with pytest.raises(TypeError):
        run(loss_fn, arguments)
    assert (loss_fn.clip_eps_low, loss_fn.clip_eps_high) == (EPS_LOW, EPS_HIGH)
    assert loss_fn.is_correction_level == "token"
