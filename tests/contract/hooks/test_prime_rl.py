"""The prime-rl hook by signature: the real package is not run here.

The stand-ins follow prime-rl 0.8.0 at commit 559b447: `LossInputs`, `LossOutputs` and `default_loss_fn` of
`prime_rl.trainer.rl.loss`, `DefaultLossConfig` of `prime_rl.configs.trainer`. A custom loss is called once a sequence,
with flat tensors and a mask of booleans, and returns a sum over the tokens and 0-d metrics.
"""

from __future__ import annotations

import gc
import logging
import math
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import satwatch
from satwatch.client import FakeClient
from satwatch.errors import ConfigError, UnavailableError
from satwatch.hooks import prime_rl as hook
from satwatch.sat import clip_bounds, quantile_reference
from satwatch.sat.interval import contract
from satwatch.types import Rule

FLOOR = 1e-3
GARBAGE = (0.0, 9.0, math.nan, math.inf)


@dataclass
class LossInputs:
    """One sequence."""

    trainer_logprobs: torch.Tensor
    inference_logprobs: torch.Tensor
    ref_logprobs: torch.Tensor | None
    advantages: torch.Tensor
    loss_mask: torch.Tensor
    loss_weights: torch.Tensor | None = None


@dataclass
class LossOutputs:
    """Its loss."""

    loss: torch.Tensor
    metrics: dict[str, torch.Tensor]


class DefaultLossConfig(BaseModel):
    """The default loss's settings."""

    model_config = ConfigDict(extra="forbid")
    dppo_mask_low: float = Field(0.2, ge=0)
    dppo_mask_high: float = Field(0.2, ge=0)
    adv_tau: float = Field(1.0, ge=0)
    kl_tau: float = Field(1e-3, ge=0)


def default_loss_fn(inputs, loss_config):
    """Drop what moved outward by more than a threshold; sum -tau A r over the others, and d^2 over all."""
    d = inputs.trainer_logprobs - inputs.inference_logprobs
    moved = inputs.trainer_logprobs.exp() - inputs.inference_logprobs.exp()
    up, down = moved > loss_config.dppo_mask_high, moved < -loss_config.dppo_mask_low
    dropped = torch.where(inputs.advantages > 0, up, down)
    gain = (inputs.loss_mask & ~dropped) * (loss_config.adv_tau * inputs.advantages) * d.exp()
    value = loss_config.kl_tau * (inputs.loss_mask * d**2) - gain
    if inputs.loss_weights is not None:
        value = value * inputs.loss_weights
    share = dropped[inputs.loss_mask].sum() / inputs.loss_mask.sum().clamp_min(1)
    return LossOutputs(value.sum(), {"is_masked": share})


@pytest.fixture(autouse=True)
def attach(monkeypatch):
    """Put the stand-ins in place, and give the hook a client and a fresh start; returns what makes it."""
    for name, contents in {
        "prime_rl.configs.trainer": {"DefaultLossConfig": DefaultLossConfig},
        "prime_rl.trainer.rl.loss": {"default_loss_fn": default_loss_fn, "LossOutputs": LossOutputs},
    }.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("SATWATCH_RUN", "SATWATCH_ADDRESS", "SATWATCH_CLIENT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hook, "_loss", [])

    def use(script=(), **rule):
        client = FakeClient(script, rule=Rule(**{"min_reference": FLOOR, **rule}))
        satwatch.hooks.use(client)
        return client

    yield use
    satwatch.hooks.use(None)


def sequence(seed=0, length=200, scale=0.09, dtype=torch.float64):
    """A sequence whose first tokens are a prompt's: masked, and with anything in them."""
    generator = torch.Generator().manual_seed(seed)

    def noise():
        return torch.randn(length, generator=generator, dtype=torch.float64)

    behavior = -noise().abs() - 0.05
    now = behavior + scale * noise()
    mask = torch.arange(length) >= length // 10
    now, behavior = (values.masked_fill(~mask, -7.0) for values in (now, behavior))
    return LossInputs(
        trainer_logprobs=now.to(dtype).requires_grad_(),
        inference_logprobs=behavior.to(dtype),
        ref_logprobs=None,
        advantages=noise().sign().to(dtype) * (1 + seed),
        loss_mask=mask,
    )


def optimizer_step():
    weight = torch.zeros(1, requires_grad=True)
    weight.grad = torch.zeros(1)
    torch.optim.SGD([weight], lr=0.1).step()


def run(inputs, **settings):
    """Return loss, gradient and metrics."""
    outputs = hook.sat_loss(inputs, **settings)
    (gradient,) = torch.autograd.grad(outputs.loss, inputs.trainer_logprobs)
    return outputs.loss.detach(), gradient, outputs.metrics


def stock(inputs, **settings):
    outputs = default_loss_fn(inputs, DefaultLossConfig(**settings))
    (gradient,) = torch.autograd.grad(outputs.loss, inputs.trainer_logprobs)
    return outputs.loss.detach(), gradient, outputs.metrics


def log_ratio(inputs):
    return (inputs.trainer_logprobs - inputs.inference_logprobs).detach()


def clipped_gradient(inputs, q, rule=None, adv_tau=1.0, kl_tau=1e-3):
    """The derivative of -min(r A, clip(r) A) + tau d^2 in log pi, from its definition, in float64."""
    rule = Rule(min_reference=FLOOR) if rule is None else rule
    d, gain = log_ratio(inputs).to(torch.float64), inputs.advantages.to(torch.float64)
    psi = 1 / (1 + (d.abs() / q) ** 2)
    gated = (d.abs() > q) & inputs.loss_mask
    low = 1 - rule.eps_low * torch.where(gated & (d < 0), psi, torch.ones_like(psi))
    high = 1 + rule.eps_high * torch.where(gated & (d > 0), psi, torch.ones_like(psi))
    clipped = ((gain > 0) & (d.exp() > high)) | ((gain < 0) & (d.exp() < low))
    found = -adv_tau * gain * d.exp() * ~clipped + 2 * kl_tau * d
    return torch.where(inputs.loss_mask, found, torch.zeros_like(found))


def own_q(inputs, quantile=0.9):
    return quantile_reference(log_ratio(inputs), quantile, mask=inputs.loss_mask)


def test_a_step_is_sent_together_when_the_optimizer_steps(attach):
    client = attach()
    sequences = [sequence(seed, length=40 + 10 * seed) for seed in range(3)]
    for inputs in sequences:
        run(inputs)
    assert client.calls == []
    optimizer_step()
    (call,) = client.calls
    assert call.submitted
    assert call.batch.sequence_lengths.tolist() == [40, 50, 60]
    wanted = torch.cat([log_ratio(inputs) for inputs in sequences])
    assert torch.equal(call.batch.log_ratio, wanted.to(torch.float64))
    assert torch.equal(call.batch.mask, torch.cat([inputs.loss_mask for inputs in sequences]))
    assert torch.equal(call.batch.advantage, torch.cat([inputs.advantages for inputs in sequences]))
    assert torch.equal(call.batch.behavior_logprob, torch.cat([inputs.inference_logprobs for inputs in sequences]))
    assert call.batch.behavior_versions is None
    # A step without a loss sends nothing, and steps are numbered one by one.
    optimizer_step()
    run(sequences[0])
    optimizer_step()
    assert [call.batch.step for call in client.calls] == [0, 1]


def test_a_token_that_the_trainer_likes_better_is_sent_as_positive(attach):
    client = attach()
    inputs = sequence()
    run(inputs)
    optimizer_step()
    liked = inputs.loss_mask & (inputs.trainer_logprobs.detach() > inputs.inference_logprobs)
    assert liked.any()
    assert bool((client.calls[0].batch.log_ratio[liked] > 0).all())


@pytest.mark.parametrize("radii", [{}, {"eps_low": 0.1, "eps_high": 0.3}])
def test_the_gradient_is_that_of_the_clipped_surrogate(attach, radii):
    attach(**radii)
    rule = Rule(min_reference=FLOOR, **radii)
    first, second = sequence(1), sequence(2)
    for inputs in (first, second):
        q = own_q(inputs)
        _, gradient, _ = run(inputs, **radii)
        torch.testing.assert_close(gradient, clipped_gradient(inputs, q, rule), rtol=1e-12, atol=1e-12)
        nominal = clipped_gradient(inputs, math.inf, rule)
        assert not torch.allclose(gradient, nominal, rtol=1e-3)
        # Where SAT clips and PPO does not, prime-rl's own loss drops nothing.
        assert not torch.allclose(gradient, stock(inputs)[1], rtol=1e-3)


def test_float_noise_is_no_tail(attach):
    radii = {"eps_low": 2e-5, "eps_high": 2e-5}
    attach(**radii)
    inputs = sequence(1, scale=1e-5)
    assert own_q(inputs) < FLOOR
    _, gradient, _ = run(inputs, **radii)
    floored, noise = (clipped_gradient(inputs, q, Rule(**radii)) for q in (FLOOR, own_q(inputs)))
    torch.testing.assert_close(gradient, floored, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(gradient, noise, rtol=1e-3)


def test_a_step_is_bounded_by_the_q_of_the_step_before(attach):
    attach()
    first, second, third = sequence(1, scale=0.05), sequence(2, scale=0.15), sequence(3)
    run(first)
    run(second)
    optimizer_step()
    q = quantile_reference(
        torch.cat([log_ratio(first), log_ratio(second)]), mask=torch.cat([first.loss_mask, second.loss_mask])
    )
    _, gradient, _ = run(third)
    torch.testing.assert_close(gradient, clipped_gradient(third, q), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(gradient, clipped_gradient(third, own_q(third)), rtol=1e-3)


def test_prime_rls_settings_and_weights_stay_its_own(attach):
    attach()
    inputs = sequence(1)
    inputs.loss_weights = torch.linspace(0.5, 2.0, len(inputs.loss_mask), dtype=torch.float64)
    _, gradient, _ = run(inputs, adv_tau=0.5, kl_tau=0.02)
    wanted = clipped_gradient(inputs, own_q(inputs), adv_tau=0.5, kl_tau=0.02) * inputs.loss_weights
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-12)


def test_prime_rls_own_thresholds_still_hold_inside_the_interval(attach):
    attach()
    inputs = sequence(1)
    settings = {"dppo_mask_low": 0.05, "dppo_mask_high": 0.06}
    _, gradient, metrics = run(inputs, **settings)
    dropped = stock(inputs, kl_tau=0, **settings)[1] == 0
    clipped = clipped_gradient(inputs, own_q(inputs), kl_tau=0) == 0
    active = inputs.loss_mask
    assert (dropped & ~clipped & active).any()
    assert (clipped & ~dropped & active).any()
    d = log_ratio(inputs)
    wanted = torch.where(dropped | clipped, 0.0, -inputs.advantages * d.exp()) + 2e-3 * d
    torch.testing.assert_close(gradient, torch.where(active, wanted, 0.0), rtol=1e-12, atol=1e-12)
    assert metrics["is_masked"] == pytest.approx(float(((dropped | clipped) & active).sum() / active.sum()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_watching_is_bit_identical_to_the_stock_loss(attach, dtype):
    client = attach(enabled=False)
    settings = {"kl_tau": 0.01, "dppo_mask_high": 0.05}
    for seed in range(3):
        inputs = sequence(seed, dtype=dtype)
        loss, gradient, metrics = run(inputs, **settings)
        wanted = stock(inputs, **settings)
        assert torch.equal(loss, wanted[0])
        assert torch.equal(gradient, wanted[1])
        assert metrics["is_masked"] == wanted[2]["is_masked"]
        optimizer_step()
    assert len(client.calls) == 3


@pytest.mark.parametrize("d", [-40.0, -10.0, -0.23, 0.19, 10.0, 40.0])
@pytest.mark.parametrize("behavior", [-1e-6, -60.0, -150.0])
def test_what_ppo_clips_is_dropped_however_small_its_probability(attach, d, behavior):
    attach()
    # In float32 e**-150 is 0, and no difference of probabilities tells the two apart.
    mu = torch.full((1,), behavior if d < 0 else behavior - d)
    inputs = LossInputs((mu + d).requires_grad_(), mu, None, torch.tensor([1.0 if d > 0 else -1.0]), mu < 0)
    assert run(inputs, kl_tau=0.0)[1].item() == 0


def test_inside_the_nominal_interval_the_gradient_is_the_stock_losss(attach):
    attach(["nominal"])
    run(sequence(1))
    optimizer_step()
    inputs = sequence(2, scale=0.03)
    assert torch.equal(run(inputs)[1], stock(inputs)[1])
    assert torch.equal(run(inputs)[0], stock(inputs)[0])


def test_the_prompt_is_not_looked_at(attach):
    attach()
    inputs = sequence(1)
    gradient = run(inputs)[1]
    q = hook._loss[0]._bounded(inputs)
    for garbage in GARBAGE:
        other = sequence(1)
        other.inference_logprobs = other.inference_logprobs.masked_fill(~other.loss_mask, garbage)
        again = hook._loss[0]._bounded(other)
        active = other.loss_mask
        assert torch.equal(again.dppo_mask_low[active], q.dppo_mask_low[active])
        assert torch.equal(again.dppo_mask_high[active], q.dppo_mask_high[active])
    assert bool((gradient[~inputs.loss_mask] == 0).all())


def test_a_sequence_without_active_tokens(attach):
    attach()
    inputs = sequence(1)
    inputs.loss_mask = torch.zeros_like(inputs.loss_mask)
    loss, gradient, _ = run(inputs)
    assert loss == 0
    assert not gradient.any()
    optimizer_step()
    _, gradient, metrics = run(sequence(2))
    # A batch without a score has no threshold: PPO's interval.
    torch.testing.assert_close(gradient, clipped_gradient(sequence(2), math.inf), rtol=1e-12, atol=1e-12)
    assert metrics["satwatch/tokens"] == 0


def test_a_nan_token_takes_nothing_with_it(attach):
    client = attach()
    inputs = sequence(1)
    inputs.inference_logprobs[30] = math.nan
    _, gradient, _ = run(inputs)
    rest = torch.arange(len(gradient)) != 30
    torch.testing.assert_close(gradient[rest], clipped_gradient(inputs, own_q(inputs))[rest], rtol=1e-12, atol=1e-12)
    optimizer_step()
    assert client.calls[0].batch.log_ratio[30].isnan()


def test_metrics_come_once_a_step(attach):
    attach()
    first, second = sequence(1), sequence(2)
    assert run(first)[2].keys() == {"is_masked"}
    run(second)
    optimizer_step()
    metrics = run(first)[2]
    assert run(second)[2].keys() == {"is_masked"}
    assert all(value.shape == () for value in metrics.values())
    assert metrics["satwatch/tokens"] == first.loss_mask.sum() + second.loss_mask.sum()
    assert metrics["satwatch/hook_faults"] == 0
    assert metrics["satwatch/decoupled"] == 0
    both = torch.cat([log_ratio(first), log_ratio(second)])
    bounds = clip_bounds(both, mask=torch.cat([first.loss_mask, second.loss_mask]), min_reference=FLOOR)
    assert float(metrics["satwatch/quantile_reference"]) == pytest.approx(float(bounds.quantile_reference))


def test_a_long_step_is_sent_in_parts(attach, monkeypatch):
    client = attach()
    monkeypatch.setattr(hook, "MOST_TOKENS", 250)
    for seed in range(5):
        run(sequence(seed, length=100))
    assert [call.batch.log_ratio.numel() for call in client.calls] == [300]
    optimizer_step()
    assert [call.batch.log_ratio.numel() for call in client.calls] == [300, 200]
    # A part that ends with the step is of that step too.
    for seed in range(3):
        run(sequence(seed, length=100))
    optimizer_step()
    run(sequence(1))
    optimizer_step()
    assert [call.batch.step for call in client.calls] == [0, 0, 1, 2]


def test_a_broken_client_does_not_break_the_loss(attach, caplog):
    attach([RuntimeError("broken")])
    first, second = sequence(1), sequence(2)
    run(first)
    with caplog.at_level(logging.WARNING, "satwatch"):
        optimizer_step()
        _, gradient, metrics = run(second)
    torch.testing.assert_close(gradient, clipped_gradient(second, own_q(first)), rtol=1e-12, atol=1e-12)
    assert metrics["satwatch/hook_faults"] == 1
    assert "broken" in caplog.text


def test_a_client_that_raises_on_purpose_is_let_through(attach):
    attach([UnavailableError("gone")])
    run(sequence(1))
    optimizer_step()
    with pytest.raises(UnavailableError, match="gone"):
        run(sequence(2))


def test_a_loss_that_raises_leaves_nothing_changed(attach):
    client = attach()
    inputs = sequence(1)
    run(inputs)
    before = hook._loss[0]._config.model_copy()
    broken = sequence(1)
    broken.advantages = torch.ones(3)
    with pytest.raises(RuntimeError):
        run(broken)
    assert hook._loss[0]._config == before == DefaultLossConfig()
    optimizer_step()
    assert client.calls[0].batch.log_ratio.numel() == len(inputs.loss_mask)


def test_the_table_may_describe_the_client(attach, monkeypatch):
    seen = {}

    def connect(**settings):
        seen.update(settings)
        names = ("quantile", "eps_low", "eps_high", "min_reference", "enabled")
        return FakeClient(rule=Rule(**{name: settings[name] for name in names if name in settings}))

    monkeypatch.setattr(hook, "connect", connect)
    monkeypatch.setenv("SATWATCH_RUN", "from-environment")
    settings = {"quantile": 0.8, "eps_low": 0.1, "eps_high": 0.1, "run": "from-table", "timeout": 0.5, "kl_tau": 0.0}
    inputs = sequence(1)
    _, gradient, _ = run(inputs, **settings)
    assert seen == {
        "quantile": 0.8,
        "eps_low": 0.1,
        "eps_high": 0.1,
        "timeout": 0.5,
        "run": "from-environment",
        "min_reference": FLOOR,
        "rank": 0,
        "world_size": 1,
    }
    rule = Rule(eps_low=0.1, eps_high=0.1)
    wanted = clipped_gradient(inputs, own_q(inputs, 0.8), rule, kl_tau=0.0)
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-12)


def test_a_file_and_a_table_that_both_describe_it_are_refused(attach, monkeypatch, tmp_path):
    (tmp_path / "satwatch.toml").write_text("quantile = 0.8")
    monkeypatch.setenv("SATWATCH_CLIENT_CONFIG", str(tmp_path / "satwatch.toml"))
    monkeypatch.setenv("SATWATCH_RUN", "r")
    with pytest.raises(ConfigError, match=r"SATWATCH_CLIENT_CONFIG: .*timeout"):
        run(sequence(1), timeout=2.0)
    run(sequence(1), eps_low=0.1)
    assert hook._loss[0].attachment.rule == Rule(quantile=0.8, eps_low=0.1, min_reference=FLOOR)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"eps_clip": 0.2}, "eps_clip"),
        ({"scope": "step"}, "scope"),
        ({"context_parallel": 0}, "context_parallel"),
        ({"context_parallel": 2}, "context_parallel"),
        ({"context_parallel": "2"}, "context_parallel"),
        ({"eps_low": 0.1}, "eps_low"),
        ({"quantile": 0.8}, "quantile"),
        ({"enabled": False}, "enabled"),
        ({"level": "sequence"}, "level"),
    ],
)
def test_a_table_that_cant_be_meant_is_refused(attach, settings, name):
    attach()
    with pytest.raises(ConfigError, match=rf"^{name}: got"):
        run(sequence(1), **settings)


def test_a_rule_over_sequences_is_refused(attach):
    attach(level="sequence")
    with pytest.raises(ConfigError, match=r"^level: got"):
        run(sequence(1))


def test_prime_rls_own_settings_are_checked_by_prime_rl(attach):
    attach()
    with pytest.raises(ValidationError):
        run(sequence(1), kl_tau=-1.0)


def test_no_run_is_refused():
    with pytest.raises(ConfigError, match="SATWATCH_RUN"):
        run(sequence(1))


@pytest.mark.parametrize(("rank", "sends"), [(4, True), (5, False)])
def test_of_a_context_parallel_group_one_rank_sends(attach, monkeypatch, rank, sends):
    client = attach()
    monkeypatch.setattr(hook, "distributed_rank", lambda: (rank, 8))
    places = []
    attached = hook.Attachment

    def spy(*arguments, **settings):
        places.append((settings["rank"], settings["world_size"]))
        return attached(*arguments, **settings)

    monkeypatch.setattr(hook, "Attachment", spy)
    first, second = sequence(1), sequence(2)
    run(first, context_parallel=2)
    optimizer_step()
    _, gradient, _ = run(second, context_parallel=2)
    assert places == [(2, 4)]
    assert len(client.calls) == sends
    torch.testing.assert_close(gradient, clipped_gradient(second, own_q(first)), rtol=1e-12, atol=1e-12)


def test_the_interval_is_the_librarys(attach):
    attach()
    inputs = sequence(1, dtype=torch.float32)
    run(inputs)
    config = hook._loss[0]._bounded(inputs)
    d = log_ratio(inputs)
    rule = Rule(min_reference=FLOOR)
    bounds = contract(d, inputs.loss_mask, own_q(inputs).to(torch.float64), rule)
    assert torch.equal(config.dppo_mask_high.isinf(), d.exp() > bounds.high)
    assert torch.equal(config.dppo_mask_low.isinf(), d.exp() < bounds.low)


def test_the_pages_table_is_one_that_the_hook_takes(attach):
    client = attach()
    page = (Path(__file__).resolve().parents[3] / "docs/hooks/prime_rl.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    loss = tomllib.loads(table)["trainer"]["loss"]
    assert loss["type"] == "custom"
    assert loss["import_path"] == f"{hook.sat_loss.__module__}.{hook.sat_loss.__name__}"
    run(sequence(1), **loss["kwargs"])
    optimizer_step()
    assert len(client.calls) == 1
    for key in (*hook.STOCK_KEYS, *hook.TABLE_KEYS, *(key for key in hook.FILE_KEYS if key != "level")):
        assert f"`{key}`" in page


def test_a_loss_that_is_gone_hears_of_no_step(attach):
    client = attach()
    run(sequence(1))
    hook._loss.clear()
    gc.collect()
    optimizer_step()
    assert client.calls == []
