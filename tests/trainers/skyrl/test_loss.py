"""SkyRL's own `regular` and `gspo` losses with the hook around them."""

from __future__ import annotations

import logging
import math

import pytest
import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry
from skyrl.train.config import OffPolicyCorrectionConfig

import satwatch
from satwatch.client import FakeClient
from satwatch.errors import ConfigError, UnavailableError
from satwatch.hooks import skyrl as hook
from satwatch.sat import clip_bounds
from satwatch.types import Rule
from tests.trainers.skyrl.batches import batch, clipped_loss, config

FLOOR = {"min_reference": 1e-3}


@pytest.fixture(autouse=True)
def attach(monkeypatch):
    """Give the hook a client and a fresh start; returns what makes it."""
    monkeypatch.delenv("SATWATCH_RUN", raising=False)

    def use(script=(), **rule):
        client = FakeClient(script, rule=Rule(**{**FLOOR, **rule}))
        satwatch.hooks.use(client)
        return client

    monkeypatch.setattr(hook, "_regular", hook.RegisteredLoss("regular", "token"))
    monkeypatch.setattr(hook, "_gspo", hook.RegisteredLoss("gspo", "sequence"))
    yield use
    satwatch.hooks.use(None)


def run(loss, tensors, settings):
    """Call a loss as the worker does; returns loss, gradient, metrics."""
    now, old, advantage, mask, behavior = tensors
    value, metrics = loss(now, old, advantage, config=settings, loss_mask=mask, rollout_logprobs=behavior)
    (gradient,) = torch.autograd.grad(value, now)
    return value.detach(), gradient, metrics


def stock(tensors, settings, name="regular"):
    """What SkyRL does without the hook."""
    settings.policy_loss_type = name
    return run(PolicyLossRegistry.get(name), tensors, settings)


def bounds_of(tensors, level="token", **rule):
    """The bounds of a batch, computed here."""
    now, _, _, mask, behavior = tensors
    return clip_bounds((now - behavior).detach(), mask=mask, level=level, **{**FLOOR, **rule})


def test_a_token_that_the_trainer_likes_better_is_sent_as_positive(attach):
    client = attach()
    tensors = batch()
    now, _, advantage, mask, behavior = tensors
    run(hook.sat_loss, tensors, config())
    (call,) = client.calls
    active = mask != 0
    liked = active & (now.detach() > behavior)
    assert liked.any()
    assert bool((call.batch.log_ratio[liked] > 0).all())
    torch.testing.assert_close(call.batch.log_ratio[active], (now - behavior).detach()[active], rtol=0, atol=0)
    assert torch.equal(call.batch.mask, active)
    assert torch.equal(call.batch.advantage, advantage)
    assert torch.equal(call.batch.behavior_logprob, behavior)
    assert call.batch.step == 0
    assert call.batch.behavior_versions is None
    assert call.batch.reference_logprob is None


@pytest.mark.parametrize(("low", "high"), [(0.2, 0.2), (0.2, 0.28), (0.003, 0.004)])
def test_loss_and_gradient_are_those_of_the_clipped_surrogate(attach, low, high):
    attach(eps_low=low, eps_high=high)
    # Scaled so that q is inside PPO's interval: there SAT clips what PPO does not.
    tensors = batch(scale=0.45 * low)
    now, _, advantage, mask, behavior = tensors
    bounds = bounds_of(tensors, eps_low=low, eps_high=high)
    assert bounds.gate.any()
    value, gradient, metrics = run(hook.sat_loss, tensors, config(eps_clip_low=low, eps_clip_high=high))
    wanted, wanted_gradient = clipped_loss(now, behavior, advantage, mask, bounds.low, bounds.high)
    # SkyRL takes exp in float32, whatever comes.
    torch.testing.assert_close(value, wanted, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(gradient, wanted_gradient, rtol=1e-6, atol=1e-8)
    nominal = clipped_loss(
        now, behavior, advantage, mask, torch.full_like(now, 1 - low), torch.full_like(now, 1 + high)
    )
    assert not torch.allclose(nominal[1], wanted_gradient, rtol=1e-3)
    assert metrics["clip_ratio"] > 0
    assert metrics["satwatch/gate_rate"] == pytest.approx(float(bounds.gate.sum() / mask.sum()))
    assert metrics["satwatch/decoupled"] == 0


def test_nothing_of_skyrls_is_changed(attach):
    attach()
    settings = config(off_policy_correction=OffPolicyCorrectionConfig(tis_ratio_type="token"))
    tensors = batch()
    copies = [t.detach().clone() for t in tensors]
    before = repr(settings)
    run(hook.sat_loss, tensors, settings)
    assert repr(settings) == before
    assert all(torch.equal(a, b) for a, b in zip(tensors, copies, strict=True))


def test_a_loss_that_raises_leaves_the_settings_alone(attach):
    attach()
    settings = config()
    before = repr(settings)
    now, old, _, mask, behavior = batch()
    with pytest.raises(RuntimeError):
        hook.sat_loss(now, old, torch.ones(3, 5), settings, mask, behavior)
    assert repr(settings) == before


@pytest.mark.parametrize(
    "correction",
    [
        {},
        {"tis_ratio_type": "token"},
        {"tis_ratio_type": "sequence", "sequence_mask_metric": "geometric"},
        {"outlier_token_is_threshold_high": 1.02},
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_watching_is_bit_identical_to_the_stock_loss(attach, correction, dtype):
    client = attach(enabled=False)
    tensors = batch(dtype=dtype)
    settings = config(off_policy_correction=OffPolicyCorrectionConfig(**correction))
    value, gradient, metrics = run(hook.sat_loss, tensors, settings)
    wanted, wanted_gradient, wanted_metrics = stock(tensors, settings)
    assert torch.equal(value, wanted)
    assert torch.equal(gradient, wanted_gradient)
    assert metrics.items() >= wanted_metrics.items()
    assert len(client.calls) == 1
    assert metrics["satwatch/decoupled"] == 1


def test_truncated_importance_sampling_is_left_out(attach, caplog):
    attach()
    tensors = batch()
    plain = run(hook.sat_loss, tensors, config())
    settings = config(off_policy_correction=OffPolicyCorrectionConfig(tis_ratio_type="token"))
    with caplog.at_level(logging.WARNING, "satwatch"):
        weighted = run(hook.sat_loss, tensors, settings)
        run(hook.sat_loss, tensors, settings)
    assert torch.equal(plain[1], weighted[1])
    assert [r.name for r in caplog.records] == ["satwatch"]
    assert "tis_ratio_type" in caplog.text


def test_the_masks_of_the_off_policy_correction_stay(attach):
    attach()
    tensors = batch()
    now, old, advantage, mask, behavior = tensors
    masked = OffPolicyCorrectionConfig(token_mask_is_threshold_low=0.99, token_mask_is_threshold_high=1.01)
    value, gradient, metrics = run(hook.sat_loss, tensors, config(off_policy_correction=masked))
    ratio = (old - behavior).exp()
    kept = mask * ((ratio >= 0.99) & (ratio <= 1.01))
    assert 0 < kept.sum() < mask.sum()
    bounds = bounds_of(tensors)
    wanted, wanted_gradient = clipped_loss(now, behavior, advantage, kept, bounds.low, bounds.high)
    torch.testing.assert_close(value, wanted, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(gradient, wanted_gradient, rtol=1e-6, atol=1e-8)
    # And its metrics, which describe it.
    wanted = stock(tensors, config(off_policy_correction=masked))[2]
    assert metrics.items() >= {name: wanted[name] for name in wanted if name != "clip_ratio"}.items()


def test_padding_is_not_looked_at(attach):
    attach()
    tensors = batch()
    value, gradient, metrics = run(hook.sat_loss, tensors, config())
    now, old, advantage, mask, behavior = tensors
    for garbage in (0.0, 7.0, math.nan, -math.inf):
        other = behavior.masked_fill(mask == 0, garbage)
        again = run(hook.sat_loss, (now, old, advantage, mask, other), config())
        assert torch.equal(again[0], value)
        assert torch.equal(again[1], gradient)
        assert again[2]["satwatch/nan_tokens"] == 0
        assert again[2]["satwatch/quantile_reference"] == metrics["satwatch/quantile_reference"]


def test_a_token_without_a_rollout_logprob_keeps_the_trainers_denominator(attach):
    client = attach()
    now, old, advantage, mask, behavior = batch()
    behavior[0, 0], behavior[1, 1] = math.nan, -math.inf
    tensors = (now, old, advantage, mask, behavior)
    value, gradient, metrics = run(hook.sat_loss, tensors, config())
    denominator = torch.where(behavior.isfinite(), behavior, old)
    bounds = bounds_of(tensors)
    wanted, wanted_gradient = clipped_loss(now, denominator, advantage, mask, bounds.low, bounds.high)
    torch.testing.assert_close(value, wanted, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(gradient, wanted_gradient, rtol=1e-6, atol=1e-8)
    assert client.calls[0].batch.log_ratio[0, 0].isnan()
    assert (metrics["satwatch/nan_tokens"], metrics["satwatch/inf_tokens"]) == (1, 1)


@pytest.mark.parametrize("enabled", [True, False])
def test_without_rollout_logprobs_the_loss_is_the_stock_one_and_says_so_once(attach, caplog, enabled):
    client = attach(enabled=enabled)
    now, old, advantage, mask, _ = batch()
    tensors = (now, old, advantage, mask, None)
    with caplog.at_level(logging.WARNING, "satwatch"):
        value, gradient, metrics = run(hook.sat_loss, tensors, config())
        run(hook.sat_loss, tensors, config())
    wanted = stock(tensors, config())
    assert torch.equal(value, wanted[0])
    assert torch.equal(gradient, wanted[1])
    assert metrics == wanted[2]
    assert client.calls == []
    assert [r.name for r in caplog.records] == ["satwatch"]
    assert "generator.sampling_params.logprobs" in caplog.text


def test_the_old_logprobs_may_be_missing_where_mu_stands_for_them(attach):
    attach()
    now, old, advantage, mask, behavior = batch()
    wanted = run(hook.sat_loss, (now, old, advantage, mask, behavior), config())
    found = run(hook.sat_loss, (now, None, advantage, mask, behavior), config())
    assert torch.equal(found[0], wanted[0])
    assert torch.equal(found[1], wanted[1])


def test_without_a_mask_all_tokens_are_active(attach):
    client = attach()
    now, old, advantage, mask, behavior = batch()
    whole = torch.ones_like(mask)
    wanted = run(hook.sat_loss, (now, old, advantage, whole, behavior), config())
    found = run(hook.sat_loss, (now, old, advantage, None, behavior), config())
    assert torch.equal(found[1], wanted[1])
    assert client.calls[1].batch.mask is None


@pytest.mark.parametrize("fault", [RuntimeError("broken"), "nominal"])
def test_a_broken_client_does_not_break_the_loss(attach, fault):
    attach([fault])
    tensors = batch()
    now, _, advantage, mask, behavior = tensors
    value, gradient, metrics = run(hook.sat_loss, tensors, config())
    # One whose answer can't be used leaves the bounds to the hook; one that says nominal means it.
    bounds = bounds_of(tensors, enabled=isinstance(fault, Exception))
    wanted, wanted_gradient = clipped_loss(now, behavior, advantage, mask, bounds.low, bounds.high)
    torch.testing.assert_close(value, wanted, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(gradient, wanted_gradient, rtol=1e-6, atol=1e-8)
    assert metrics["satwatch/hook_faults"] == isinstance(fault, Exception)


def test_a_client_that_raises_on_purpose_is_let_through(attach):
    attach([UnavailableError("gone")])
    with pytest.raises(UnavailableError, match="gone"):
        run(hook.sat_loss, batch(), config())


def test_every_rank_has_the_same_metrics_in_the_same_order(attach):
    attach()
    now, old, advantage, mask, behavior = batch()
    empty = (now, old, advantage, torch.zeros_like(mask), behavior)
    first = run(hook.sat_loss, empty, config())[2]
    full = run(hook.sat_loss, (now, old, advantage, mask, behavior), config())[2]
    last = run(hook.sat_loss, empty, config())[2]
    assert list(first) == list(full) == list(last)
    assert all(isinstance(value, float) for value in full.values())
    assert math.isnan(first["satwatch/log_ratio_abs_mean"])
    assert first["satwatch/tokens"] == last["satwatch/tokens"] == 0
    assert last["satwatch/log_ratio_abs_mean"] == full["satwatch/log_ratio_abs_mean"]


@pytest.mark.parametrize("settings", [{"eps_clip_high": 0.28}, {"eps_clip_low": 0.1}])
def test_a_client_of_other_radii_is_refused(attach, settings):
    attach()
    with pytest.raises(ConfigError, match=r"^eps_"):
        run(hook.sat_loss, batch(), config(**settings))


def test_no_run_is_refused(attach):
    with pytest.raises(ConfigError, match="SATWATCH_RUN"):
        run(hook.sat_loss, batch(), config())


def test_radii_that_change_later_are_the_stock_losses(attach, caplog):
    client = attach()
    tensors = batch()
    run(hook.sat_loss, tensors, config())
    with caplog.at_level(logging.WARNING, "satwatch"):
        value, gradient, _ = run(hook.sat_loss, tensors, config(eps_clip_low=0.05))
    wanted = stock(tensors, config(eps_clip_low=0.05))
    assert torch.equal(value, wanted[0])
    assert torch.equal(gradient, wanted[1])
    assert len(client.calls) == 1
    assert "other clip radii" in caplog.text


def test_a_level_that_is_not_the_losss_is_refused(attach):
    attach(level="sequence")
    with pytest.raises(ConfigError, match=r"^level: got"):
        run(hook.sat_loss, batch(), config())
    attach(level="token")
    with pytest.raises(ConfigError, match=r"^level: got"):
        run(hook.sat_gspo_loss, batch(), config())


def test_gspo_has_the_bounds_of_sequences(attach):
    low, high = 0.01, 0.02
    attach(level="sequence", eps_low=low, eps_high=high, quantile=0.5)
    tensors = batch()
    now, _, advantage, mask, behavior = tensors
    settings = config(eps_clip_low=low, eps_clip_high=high, loss_reduction="sequence_mean")
    _, gradient, metrics = run(hook.sat_gspo_loss, tensors, settings)
    bounds = bounds_of(tensors, level="sequence", eps_low=low, eps_high=high, quantile=0.5)
    assert bounds.gate.any()
    mean = ((now - behavior).detach() * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
    ratio = mean.exp().expand_as(now)
    clipped = ((advantage > 0) & (ratio > bounds.high)) | ((advantage < 0) & (ratio < bounds.low))
    clipped_by_ppo = ((advantage > 0) & (ratio > 1 + high)) | ((advantage < 0) & (ratio < 1 - low))
    assert ((clipped & ~clipped_by_ppo) & (mask != 0)).any()
    wanted = torch.where(clipped | (mask == 0), torch.zeros_like(ratio), -ratio * advantage)
    torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-12)
    assert metrics["satwatch/quantile_reference"] == pytest.approx(float(bounds.quantile_reference))
    watched = config(eps_clip_low=low, eps_clip_high=high, loss_reduction="sequence_mean")
    attach(level="sequence", eps_low=low, eps_high=high, enabled=False)
    hook._gspo = hook.RegisteredLoss("gspo", "sequence")
    assert torch.equal(run(hook.sat_gspo_loss, tensors, watched)[1], stock(tensors, watched, "gspo")[1])
