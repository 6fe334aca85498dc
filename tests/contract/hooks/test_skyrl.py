"""The SkyRL hook by signature: the real package is not run here; tests/trainers/skyrl runs it.

The stand-ins follow SkyRL 0.4.0: a registry of losses f(log_probs, old_log_probs, advantages, config, loss_mask,
rollout_logprobs) over (B, T) tensors, which return a masked sum and metrics of floats; `config` is a dataclass with the
radii and `off_policy_correction`; Megatron's and Ulysses' groups as its workers ask for them.
"""

from __future__ import annotations

import logging
import math
import sys
from dataclasses import dataclass, field
from types import ModuleType

import pytest
import torch

import satwatch
from satwatch.client import FakeClient
from satwatch.errors import ConfigError
from satwatch.hooks import skyrl as hook
from satwatch.sat import clip_bounds
from satwatch.types import Rule

UTILS = "skyrl.backends.skyrl_train.utils"
ULYSSES = "skyrl.backends.skyrl_train.distributed.ulysses.utils"
FLOOR = 1e-3


@dataclass
class Correction:
    """Off-policy correction: a weight, and a mask of tokens."""

    tis_ratio_type: str | None = None
    token_mask_is_threshold_high: float | None = None


@dataclass
class Config:
    """An algorithm's settings."""

    policy_loss_type: str = "sat"
    eps_clip_low: float = 0.2
    eps_clip_high: float = 0.2
    off_policy_correction: Correction = field(default_factory=Correction)


def correct(old, rollout, mask, correction):
    """Weight and mask by pi_old / mu."""
    ratio = (old - rollout).exp()
    limit = correction.token_mask_is_threshold_high
    if limit is not None:
        mask = mask * (ratio <= limit)
    return (ratio if correction.tis_ratio_type else None), {"kept": float(mask.sum())}, mask


def clip_loss(log_probs, old_log_probs, advantages, config, loss_mask=None, rollout_logprobs=None):
    """The clipped surrogate, per token, or per sequence for gspo."""
    assert config.policy_loss_type in ("regular", "gspo")
    d = log_probs - old_log_probs
    if config.policy_loss_type == "gspo":
        d = ((d * loss_mask).sum(1) / loss_mask.sum(1)).unsqueeze(1)
    ratio = d.exp()
    free, clipped = ratio * advantages, ratio.clamp(1 - config.eps_clip_low, 1 + config.eps_clip_high) * advantages
    loss, metrics = -torch.min(free, clipped), {"clip_ratio": float((clipped < free).sum())}
    if rollout_logprobs is not None:
        weight, more, loss_mask = correct(old_log_probs, rollout_logprobs, loss_mask, config.off_policy_correction)
        loss, metrics = loss if weight is None else loss * weight, metrics | more
    return torch.where(loss_mask != 0, loss * loss_mask, 0.0).sum(), metrics


@pytest.fixture(autouse=True)
def attach(monkeypatch):
    """Put the stand-ins in place, and give the hook a client and a fresh start; returns what makes it."""

    class PolicyLossRegistry:
        looked_up = 0

        @classmethod
        def get(cls, name):
            cls.looked_up += 1
            return {"regular": clip_loss, "gspo": clip_loss}[name]

    for name, contents in {
        f"{UTILS}.ppo_utils": {"PolicyLossRegistry": PolicyLossRegistry},
        f"{UTILS}.off_policy_correction_utils": {"compute_off_policy_correction": correct},
    }.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("SATWATCH_RUN", "SATWATCH_ADDRESS", "SATWATCH_CLIENT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hook, "_regular", hook.RegisteredLoss("regular", "token"))
    monkeypatch.setattr(hook, "_gspo", hook.RegisteredLoss("gspo", "sequence"))

    def use(script=(), **rule):
        client = FakeClient(script, rule=Rule(**{"min_reference": FLOOR, **rule}))
        client.registry = PolicyLossRegistry
        satwatch.hooks.use(client)
        return client

    yield use
    satwatch.hooks.use(None)


def batch(sequences=16, length=24, scale=0.09):
    generator = torch.Generator().manual_seed(0)

    def noise():
        return torch.randn(sequences, length, generator=generator, dtype=torch.float64)

    behavior = -noise().abs() - 0.05
    old = behavior + scale / 5 * noise()
    now = old + scale * noise()
    mask = (torch.arange(length) < (torch.arange(sequences) % 3 + length - 2)[:, None]).to(torch.float64)
    return now.requires_grad_(), old, noise().sign() / mask.sum(), mask, behavior.masked_fill(mask == 0, 0.0)


def run(tensors, config, loss=None):
    now, old, advantage, mask, behavior = tensors
    found = hook.sat_loss if loss is None else loss
    value, metrics = found(now, old, advantage, config=config, loss_mask=mask, rollout_logprobs=behavior)
    (gradient,) = torch.autograd.grad(value, now)
    return value.detach(), gradient, metrics


def surrogate_gradient(d, advantage, mask, bounds):
    """The derivative of -min(r A, clip(r) A), from its definition."""
    ratio = d.exp()
    clipped = ((advantage > 0) & (ratio > bounds.high)) | ((advantage < 0) & (ratio < bounds.low))
    return torch.where(clipped | (mask == 0), 0.0, -ratio * advantage * mask)


def test_a_token_that_the_trainer_likes_better_is_sent_as_positive(attach):
    client = attach()
    tensors = batch()
    now, _, advantage, mask, behavior = tensors
    run(tensors, Config())
    (call,) = client.calls
    liked = (mask != 0) & (now.detach() > behavior)
    assert liked.any()
    assert bool((call.batch.log_ratio[liked] > 0).all())
    assert torch.equal(call.batch.mask, mask != 0)
    assert torch.equal(call.batch.advantage, advantage)
    assert call.submitted


def test_the_gradient_is_that_of_the_clipped_surrogate(attach):
    client = attach()
    tensors = batch()
    now, _, advantage, mask, behavior = tensors
    config = Config()
    _, gradient, metrics = run(tensors, config)
    run(tensors, config)
    d = (now - behavior).detach()
    wanted = surrogate_gradient(d, advantage, mask, clip_bounds(d, mask=mask, min_reference=FLOOR))
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(wanted, surrogate_gradient(d, advantage, mask, clip_bounds(d, enabled=False)), atol=1e-9)
    assert metrics["satwatch/decoupled"] == 0
    assert config == Config()
    assert client.registry.looked_up == 1


def test_at_sequence_level_the_radii_are_the_sequences(attach):
    low, high = 0.01, 0.02
    attach(level="sequence", eps_low=low, eps_high=high, quantile=0.5)
    tensors = batch()
    now, _, advantage, mask, behavior = tensors
    advantage = advantage[:, :1].expand_as(now)
    config = Config(eps_clip_low=low, eps_clip_high=high)
    _, gradient, _ = run((now, *tensors[1:2], advantage, mask, behavior), config, hook.sat_gspo_loss)
    d = (now - behavior).detach()
    mean = ((d * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)).expand_as(d)
    rule = {"level": "sequence", "eps_low": low, "eps_high": high, "quantile": 0.5, "min_reference": FLOOR}
    bounds = clip_bounds(d, mask=mask, **rule)
    # Each of a sequence's tokens moves its mean, and each gains what the ratio gains.
    each = surrogate_gradient(mean, advantage, mask, bounds)
    torch.testing.assert_close(gradient, each, rtol=1e-9, atol=1e-14)
    nominal = surrogate_gradient(mean, advantage, mask, clip_bounds(d, mask=mask, **rule, enabled=False))
    assert ((each == 0) & (nominal != 0)).any()


@pytest.mark.parametrize("correction", [Correction(), Correction("token"), Correction("token", 1.01)])
def test_watching_is_bit_identical_to_the_stock_loss(attach, correction):
    client = attach(enabled=False)
    tensors = batch()
    config = Config(off_policy_correction=correction)
    value, gradient, metrics = run(tensors, config)
    wanted = run(tensors, Config("regular", off_policy_correction=correction), clip_loss)
    assert torch.equal(value, wanted[0])
    assert torch.equal(gradient, wanted[1])
    assert metrics.items() >= wanted[2].items()
    assert len(client.calls) == 1
    assert metrics["satwatch/decoupled"] == 1


@pytest.mark.parametrize("limit", [0.99, 1.01])
def test_the_weight_goes_and_the_mask_stays(attach, caplog, limit):
    attach()
    now, old, advantage, mask, behavior = batch()
    config = Config(off_policy_correction=Correction("token", limit))
    with caplog.at_level(logging.WARNING, "satwatch"):
        _, gradient, metrics = run((now, old, advantage, mask, behavior), config)
        run((now, old, advantage, mask, behavior), config)
    kept = mask * ((old - behavior).exp() <= limit)
    assert 0 < kept.sum() < mask.sum()
    d = (now - behavior).detach()
    wanted = surrogate_gradient(d, advantage, kept, clip_bounds(d, mask=mask, min_reference=FLOOR))
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-14)
    assert metrics["kept"] == float(kept.sum())
    assert len(caplog.records) == 1
    assert "tis_ratio_type" in caplog.text
    assert config.off_policy_correction == Correction("token", limit)


@pytest.mark.parametrize("garbage", [7.0, math.nan, math.inf])
def test_padding_and_tokens_without_a_logprob_keep_the_trainers_denominator(attach, garbage):
    client = attach()
    now, old, advantage, mask, behavior = batch()
    behavior = behavior.masked_fill(mask == 0, garbage)
    behavior[0, 0] = math.nan
    _, gradient, _ = run((now, old, advantage, mask, behavior), Config())
    d = (now - torch.where(behavior.isfinite(), behavior, old)).detach()
    bounds = clip_bounds((now - behavior).detach(), mask=mask, min_reference=FLOOR)
    wanted = surrogate_gradient(d, advantage, mask, bounds)
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-14)
    assert gradient[0, 0] != 0
    assert client.calls[0].batch.log_ratio[0, 0].isnan()


def test_without_rollout_logprobs_the_loss_is_the_stock_one_and_says_so_once(attach, caplog):
    client = attach()
    tensors = (*batch()[:4], None)
    with caplog.at_level(logging.WARNING, "satwatch"):
        value, gradient, metrics = run(tensors, Config())
        run(tensors, Config())
    wanted = run(tensors, Config("regular"), clip_loss)
    assert torch.equal(value, wanted[0])
    assert torch.equal(gradient, wanted[1])
    assert metrics == wanted[2]
    assert client.calls == []
    assert len(caplog.records) == 1
    assert "generator.sampling_params.logprobs" in caplog.text


def test_a_loss_that_raises_leaves_the_settings_alone(attach):
    attach()
    now, old, _, mask, behavior = batch()
    config = Config()
    with pytest.raises(RuntimeError):
        run((now, old, torch.ones(3), mask, behavior), config)
    assert config == Config()


def test_a_broken_client_does_not_break_the_loss(attach):
    attach([RuntimeError("broken")])
    tensors = batch()
    now, _, advantage, mask, behavior = tensors
    _, gradient, metrics = run(tensors, Config())
    d = (now - behavior).detach()
    wanted = surrogate_gradient(d, advantage, mask, clip_bounds(d, mask=mask, min_reference=FLOOR))
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-14)
    assert metrics["satwatch/hook_faults"] == 1


def test_a_microbatch_without_tokens_has_all_the_metrics(attach):
    attach()
    now, old, advantage, mask, behavior = batch()
    empty = (now, old, advantage, torch.zeros_like(mask), behavior)
    first = run(empty, Config())[2]
    full = run((now, old, advantage, mask, behavior), Config())[2]
    last = run(empty, Config())[2]
    assert [name for name in full if name.startswith("satwatch/")] == [f"satwatch/{name}" for name in hook.METRICS]
    assert list(first) == list(full) == list(last)
    assert math.isnan(first["satwatch/log_ratio_mean"])
    assert last["satwatch/log_ratio_mean"] == full["satwatch/log_ratio_mean"]


@pytest.mark.parametrize("radius", ["eps_low", "eps_high"])
def test_other_radii_are_refused(attach, radius):
    attach(**{radius: 0.3})
    with pytest.raises(ConfigError, match=rf"^{radius}: got"):
        run(batch(), Config())


def test_radii_that_change_later_are_the_stock_losss(attach, caplog):
    client = attach(eps_high=0.3)
    tensors = batch()
    run(tensors, Config(eps_clip_high=0.3))
    with caplog.at_level(logging.WARNING, "satwatch"):
        found = run(tensors, Config(eps_clip_high=0.1))
    assert torch.equal(found[1], run(tensors, Config("regular", eps_clip_high=0.1), clip_loss)[1])
    assert len(client.calls) == 1
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("level", "loss"), [("sequence", "sat_loss"), ("token", "sat_gspo_loss")], ids=["token", "sequence"]
)
def test_a_level_that_is_not_the_losss_is_refused(attach, level, loss):
    attach(level=level)
    with pytest.raises(ConfigError, match=r"^level: got"):
        run(batch(), Config(), getattr(hook, loss))


def test_no_run_is_refused():
    with pytest.raises(ConfigError, match="SATWATCH_RUN"):
        run(batch(), Config())


@pytest.mark.parametrize(
    ("tensor", "context", "leads"), [(0, 0, True), (1, 0, False), (0, 1, False)], ids=["first", "tensor", "context"]
)
def test_with_megatron_one_rank_of_a_data_parallel_group_sends(attach, monkeypatch, tensor, context, leads):
    megatron = ModuleType("megatron.core.parallel_state")
    megatron.model_parallel_is_initialized = lambda: True
    megatron.get_tensor_model_parallel_rank = lambda: tensor
    megatron.get_context_parallel_rank = lambda: context
    megatron.get_data_parallel_rank = lambda: 3
    megatron.get_data_parallel_world_size = lambda: 4
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", megatron)
    places = []
    attached = hook.Attachment

    def spy(*arguments, **settings):
        places.append((settings["rank"], settings["world_size"]))
        return attached(*arguments, **settings)

    monkeypatch.setattr(hook, "Attachment", spy)
    client = attach()
    tensors = batch()
    gradient = run(tensors, Config())[1]
    assert places == [(3, 4)]
    assert len(client.calls) == leads
    # A rank that sends nothing has the same bounds.
    now, _, advantage, mask, behavior = tensors
    d = (now - behavior).detach()
    wanted = surrogate_gradient(d, advantage, mask, clip_bounds(d, mask=mask, min_reference=FLOOR))
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("rank", "place"), [(0, (0, 2, True)), (1, (0, 2, False)), (2, (1, 2, True))])
def test_with_ulysses_one_rank_of_a_sequence_parallel_group_sends(monkeypatch, rank, place):
    ulysses = ModuleType(ULYSSES)
    ulysses.get_ulysses_sequence_parallel_world_size = lambda: 2
    monkeypatch.setitem(sys.modules, ULYSSES, ulysses)
    monkeypatch.setattr("satwatch.hooks.core.ranks.distributed_rank", lambda: (rank, 4))
    assert hook.place() == place


def test_alone_it_is_the_only_rank(attach):
    assert hook.place() == (0, 1, True)
