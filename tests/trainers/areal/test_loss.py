"""The hook around AReaL's own loss function, and how well the contract tests' stand-in knows it."""

from __future__ import annotations

import pytest
import torch
from areal.api.cli_args import RejectionSamplingConfig
from areal.trainer.ppo import actor as actors

from satwatch.client import FakeClient
from satwatch.errors import ConfigError
from satwatch.hooks.areal import install
from satwatch.types import Rule
from tests.contract.hooks.areal_stand_in import EPS_HIGH, EPS_LOW, batch, close, expected, run, stock_loss

RULE = Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH)
CLAMPS = RejectionSamplingConfig(action="clamp", upper=1.1)
MASKS = RejectionSamplingConfig(action="mask", upper=1.1)
# AReaL's statistics take float32 and nothing else.
SINGLE = {"dtype": torch.float32}
ROUNDING = 1e-5


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"c_clip": 1.1},
        {"eps_clip_higher": None},
        {"importance_sampling_level": "sequence"},
        {"use_decoupled_loss": True},
        {"use_decoupled_loss": True, "rejection_sampling": CLAMPS},
        {"use_decoupled_loss": True, "rejection_sampling": MASKS},
        {"use_decoupled_loss": True, "m2_threshold": 0.003},
    ],
)
def test_the_stand_in_of_the_contract_tests_computes_what_areal_does(settings):
    inputs, now = batch(decoupled="use_decoupled_loss" in settings, **SINGLE)
    value, gradient = run(actors.grpo_loss_fn, inputs, now, **settings)
    stood_in, slope = run(stock_loss, inputs, now, **settings)
    assert close(value, stood_in, ROUNDING)
    assert close(gradient, slope, ROUNDING)


@pytest.mark.parametrize("garbage", [0.0, 5.0])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_decoupled_loss": True},
        {"use_decoupled_loss": True, "rejection_sampling": CLAMPS},
        {"use_decoupled_loss": True, "prox_logp_method": "metrics"},
        {"use_decoupled_loss": True, "prox_logp_method": "loglinear"},
    ],
)
def test_areals_loss_clips_pi_now_to_mu_at_the_bounds(settings, garbage):
    client = FakeClient(rule=RULE)
    handle = install(client)
    inputs, now = batch(decoupled="use_decoupled_loss" in settings, garbage=garbage, **SINGLE)
    value, gradient = run(actors.grpo_loss_fn, inputs, now, **settings)
    wide = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in inputs.items()}
    right, slope, bounds = expected(wide, now.detach().double().requires_grad_())
    assert bounds.gate.any()
    assert close(value, right, ROUNDING)
    assert close(gradient, slope, ROUNDING)
    nominal, _ = run(stock_loss, inputs, now)
    assert not close(value, nominal, 1e-3)
    assert handle.metrics()["satwatch/decoupled"] == 0
    assert len(client.calls) == 1


@pytest.mark.parametrize("settings", [{"rejection_sampling": MASKS}, {"m2_threshold": 0.05}])
def test_what_drops_tokens_keeps_its_proximal_policy_and_has_the_radii_in_its_slots(settings):
    handle = install(FakeClient(rule=RULE))
    inputs, now = batch(decoupled=True, **SINGLE)
    now = (now + 0.4 * torch.sign(inputs["advantages"])).detach().requires_grad_()
    value, gradient = run(actors.grpo_loss_fn, inputs, now, use_decoupled_loss=True, **settings)
    _, _, bounds = expected(inputs, now)
    handle.uninstall()
    radii = {"eps_clip": 1 - bounds.low, "eps_clip_higher": bounds.high - 1}
    right, slope = run(actors.grpo_loss_fn, inputs, now, use_decoupled_loss=True, **settings, **radii)
    nominal, _ = run(actors.grpo_loss_fn, inputs, now, use_decoupled_loss=True, **settings)
    assert torch.equal(value, right)
    assert torch.equal(gradient, slope)
    assert not torch.equal(value, nominal)
    assert handle.metrics()["satwatch/decoupled"] == 1


def test_at_sequence_level_areal_clips_the_sequences_ratio_at_the_sequences_bounds():
    install(FakeClient(rule=Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, level="sequence", quantile=0.5)))
    inputs, now = batch(**SINGLE)
    inputs["advantages"] = inputs["advantages"].abs()
    now = (now + 0.15 * (torch.arange(len(now)) < inputs["cu_seqlens"][1])).detach().requires_grad_()
    value, gradient = run(actors.grpo_loss_fn, inputs, now, importance_sampling_level="sequence")
    right, slope, bounds = expected(inputs, now, level="sequence", quantile=0.5)
    assert bounds.gate.any()
    assert close(value, right, ROUNDING)
    assert close(gradient, slope, ROUNDING)


def test_a_token_without_a_finite_log_prob_ends_no_decoupled_run():
    handle = install(FakeClient(rule=RULE))
    inputs, now = batch(decoupled=True, **SINGLE)
    inputs["logprobs"][3] = float("-inf")
    value, gradient = run(actors.grpo_loss_fn, inputs, now, use_decoupled_loss=True)
    assert value.isfinite()
    assert gradient.isfinite().all()
    assert handle.metrics()["satwatch/inf_tokens"] == 1


def test_sapo_can_only_be_watched():
    inputs, now = batch(**SINGLE)
    stock, _ = run(actors.grpo_loss_fn, inputs, now, use_sapo_loss=True)
    install(FakeClient(rule=RULE))
    with pytest.raises(ConfigError, match="use_sapo_loss"):
        run(actors.grpo_loss_fn, inputs, now, use_sapo_loss=True)
    install().uninstall()
    client = FakeClient(rule=Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, enabled=False))
    install(client)
    watched, _ = run(actors.grpo_loss_fn, inputs, now, use_sapo_loss=True)
    assert torch.equal(watched, stock)
    assert len(client.calls) == 1
