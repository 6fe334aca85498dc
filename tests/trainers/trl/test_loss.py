"""The loss of SatGRPOTrainer against SAT's definitions in float64, and against TRL's own where it must not differ."""

from __future__ import annotations

import logging
import math
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from trl import GRPOTrainer

import tests.trainers.trl.tiny as tiny
from satwatch.client import FakeClient
from satwatch.errors import DeadlineError
from satwatch.hooks.trl import SatGRPOTrainer
from satwatch.types import Rule

LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
BATCH, PROMPT, LENGTHS = 8, 5, (9, 4, 7, 9, 1, 6, 9, 5)
ACCUMULATION, ITEMS = 2, 123.0


# The oracle: float64, from the definitions, none of it TRL's or satwatch's.


def logprobs(policy, inputs, temperature=1.0):
    """Log pi of each completion token, in the policy's own precision."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    scores = policy(input_ids=ids, attention_mask=attention).logits[:, :-1] / temperature
    return torch.log_softmax(scores, -1).gather(-1, ids[:, 1:, None])[:, PROMPT - 1 :, 0]


def interval(score, tokens, rule):
    """The clip interval of each score (eqs. 13-19); a score stands for that many tokens."""
    magnitude = np.abs(score)
    order = np.sort(np.repeat(magnitude, tokens)[~np.isnan(np.repeat(magnitude, tokens))])
    rank = next(k for k in range(1, len(order) + 1) if k / len(order) >= rule.quantile)
    q = max(order[rank - 1], rule.min_reference)
    contraction = np.where(magnitude > q, 1 / (1 + (magnitude / q) ** rule.exponent), 1.0)
    low = np.where(score < 0, contraction, 1.0)
    high = np.where(score > 0, contraction, 1.0)
    if not rule.enabled:
        low = high = np.ones_like(score)
    return 1 - rule.eps_low * low, 1 + rule.eps_high * high


def surrogate(logprob, mu, inputs, rule, delta=math.inf):
    """Each token's loss, min(r A, clip(r) A) negated, with the ratio and the interval of the rule's level."""
    mask = mask_of(inputs)
    log_ratio = torch.where(mask, logprob - mu, 0.0)
    if rule.level == "sequence":
        tokens = mask.sum(1)
        log_ratio = (log_ratio.sum(1) / tokens.clamp(min=1)).unsqueeze(1)
        score = log_ratio.detach().numpy()[:, 0]
        low, high = (torch.tensor(b).unsqueeze(1) for b in interval(score, tokens.numpy(), rule))
    else:
        score = log_ratio.detach().numpy()[mask.numpy()]
        low, high = torch.full_like(logprob, 0.0), torch.full_like(logprob, 9.0)
        low[mask], high[mask] = (torch.tensor(b) for b in interval(score, 1, rule))
    advantage = inputs["advantages"].double().unsqueeze(1)
    ratio = log_ratio.exp()
    clipped = torch.maximum(torch.minimum(ratio, high), low)
    outward = ((advantage > 0) & (ratio.detach() > high)) | ((advantage < 0) & (ratio.detach() < low))
    loss = -torch.minimum(ratio.clamp(max=delta) * advantage, clipped * advantage)
    return loss.expand_as(mask), outward.expand_as(mask)


def reduced(loss, inputs, kind, trainer):
    """The mean that each loss type takes, divided among the accumulated microbatches."""
    mask = mask_of(inputs)
    by_sequence, tokens = (loss * mask).sum(1), mask.sum(1)
    if kind == "dapo":
        return by_sequence.sum() / (ITEMS * ACCUMULATION / trainer.args.steps_per_generation)
    mean = {
        "grpo": (by_sequence / tokens.clamp(min=1)).mean(),
        "bnpo": by_sequence.sum() / tokens.sum(),
        "dr_grpo": by_sequence.sum() / (BATCH * tiny.WIDTH),
        "luspo": by_sequence.mean(),
    }[kind]
    return mean / ACCUMULATION


def mask_of(inputs):
    mask = inputs["completion_mask"].bool()
    return mask & inputs["tool_mask"].bool() if "tool_mask" in inputs else mask


# What is judged.


def microbatch(policy, seed=0, spread=0.25):
    """A microbatch as TRL makes it; mu is off the policy by heavy-tailed noise, and is garbage in the padding."""
    generator = torch.Generator().manual_seed(seed)
    width = max(LENGTHS)
    mask = torch.tensor([[t < length for t in range(width)] for length in LENGTHS]).long()
    inputs = {
        "prompt_ids": torch.randint(0, 256, (BATCH, PROMPT), generator=generator),
        "prompt_mask": torch.tensor([[t >= row % 3 for t in range(PROMPT)] for row in range(BATCH)]).long(),
        "completion_ids": torch.randint(0, 256, (BATCH, width), generator=generator),
        "completion_mask": mask,
        "advantages": torch.randn(BATCH, generator=generator),
        "num_items_in_batch": torch.tensor(ITEMS),
    }
    normal = torch.randn(BATCH, width, generator=generator)
    chi = torch.randn(3, BATCH, width, generator=generator).square().sum(0) / 3
    with torch.no_grad():
        mu = logprobs(policy, inputs) + spread * normal / chi.sqrt()
    garbage = torch.tensor([math.nan, math.inf, -math.inf, 1e30])[torch.arange(width) % 4].expand_as(mu)
    inputs["sampling_per_token_logps"] = torch.where(mask.bool(), mu, garbage)
    return inputs


def made(kind=SatGRPOTrainer, rule=None, script=(), **given):
    """A trainer in the middle of a step, and what it asks."""
    fake = FakeClient(script, rule=rule or Rule(min_reference=1e-3))
    client = {} if kind is GRPOTrainer else {"satwatch": fake}
    given = {"gradient_accumulation_steps": ACCUMULATION, "steps_per_generation": 4, **given}
    trainer = tiny.trainer(kind, **client, **given)
    trainer.current_gradient_accumulation_steps = ACCUMULATION
    trainer.model.train()
    return trainer, fake


def loss_and_gradient(trainer, inputs):
    trainer.model.zero_grad()
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    return loss.detach(), {name: weight.grad.clone() for name, weight in trainer.model.named_parameters()}


def exact(trainer, inputs, kind, rule, *, mu=None, delta=math.inf):
    """The oracle's loss, its gradient, and the share of tokens or sequences that the interval clips."""
    policy = tiny.model().double()
    policy.load_state_dict(trainer.model.state_dict())
    mu = inputs["sampling_per_token_logps"].double() if mu is None else mu
    losses, outward = surrogate(logprobs(policy, inputs), mu, inputs, rule, delta)
    loss = reduced(losses, inputs, kind, trainer)
    loss.backward()
    clipped = (outward & mask_of(inputs)).sum() / mask_of(inputs).sum()
    if rule.level == "sequence":
        clipped = outward[:, 0].double().mean()
    return loss.detach(), {name: weight.grad for name, weight in policy.named_parameters()}, clipped


def distance(one, other):
    """How far two gradients are apart, as a share of their length."""
    difference = sum(float((one[name].double() - other[name].double()).square().sum()) for name in one)
    return math.sqrt(difference / sum(float(grad.double().square().sum()) for grad in other.values()))


CASES = [(kind, level) for kind in LOSSES for level in ("token", "sequence")]


@pytest.mark.parametrize(("kind", "level"), CASES)
def test_loss_and_gradient_are_those_of_the_definition(kind, level):
    rule = Rule(level=level, quantile=0.7, eps_low=0.15, eps_high=0.28, min_reference=1e-3)
    trainer, fake = made(
        rule=rule, loss_type=kind, importance_sampling_level=level, epsilon=0.15, epsilon_high=0.28, temperature=1.0
    )
    inputs = microbatch(tiny.model(), spread=0.1 if level == "token" else 0.2)
    loss, gradient = loss_and_gradient(trainer, inputs)
    expected, expected_gradient, clipped = exact(trainer, inputs, kind, rule)
    assert float(loss) == pytest.approx(float(expected), rel=2e-5)
    assert distance(gradient, expected_gradient) < 2e-5
    # And not merely because the gate never mattered.
    _, nominal_gradient, nominal_clipped = exact(trainer, inputs, kind, replace(rule, enabled=False))
    assert distance(nominal_gradient, expected_gradient) > 1e-2
    assert clipped > nominal_clipped > 0
    # TRL counts what is clipped by these radii too: tokens, or sequences.
    assert trainer._metrics["train"]["clip_ratio/region_mean"] == [pytest.approx(float(clipped), rel=1e-6)]
    assert len(fake.calls) == 1


def test_the_second_clip_stays_the_trainers_own():
    rule = Rule(min_reference=1e-3)
    trainer, _ = made(rule=rule, loss_type="dapo", delta=1.3)
    inputs = microbatch(tiny.model())
    loss, gradient = loss_and_gradient(trainer, inputs)
    expected, expected_gradient, _ = exact(trainer, inputs, "dapo", rule, delta=1.3)
    unbounded, _, _ = exact(trainer, inputs, "dapo", rule)
    assert float(loss) == pytest.approx(float(expected), rel=2e-5) != pytest.approx(float(unbounded), rel=1e-3)
    assert distance(gradient, expected_gradient) < 2e-5


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_tools_tokens_are_not_judged(level):
    rule = Rule(level=level, min_reference=1e-3)
    trainer, fake = made(rule=rule, loss_type="grpo", importance_sampling_level=level)
    inputs = microbatch(tiny.model())
    inputs["tool_mask"] = (torch.arange(max(LENGTHS)) % 3 != 1).long().expand_as(inputs["completion_mask"])
    # What an engine says of tokens that it did not sample.
    inputs["sampling_per_token_logps"] = torch.where(mask_of(inputs), inputs["sampling_per_token_logps"], -1e30)
    loss, gradient = loss_and_gradient(trainer, inputs)
    expected, expected_gradient, _ = exact(trainer, inputs, "grpo", rule)
    assert float(loss) == pytest.approx(float(expected), rel=2e-5)
    assert distance(gradient, expected_gradient) < 2e-5
    assert torch.equal(fake.calls[0].batch.mask, mask_of(inputs))


def test_the_sign_what_is_sent_and_the_padding():
    trainer, fake = made()
    inputs = microbatch(tiny.model())
    with torch.no_grad():
        now = logprobs(trainer.model, inputs)
    likes = (torch.arange(max(LENGTHS)) % 2 == 0).expand_as(now)
    mu = now - torch.where(likes, 0.5, -0.5)
    active = inputs["completion_mask"].bool()
    inputs["sampling_per_token_logps"] = torch.where(active, mu, math.nan)
    loss_and_gradient(trainer, inputs)
    batch = fake.calls[0].batch
    assert fake.calls[0].submitted
    assert ((batch.log_ratio > 0.49) == likes)[active].all() and ((batch.log_ratio < -0.49) == ~likes)[active].all()
    assert torch.equal(batch.mask, active)
    assert torch.equal(batch.advantage, inputs["advantages"])
    assert torch.equal(batch.behavior_logprob[active], mu[active])
    assert (batch.step, batch.policy_version, batch.reference_logprob) == (0, 0, None)


def test_old_log_probs_are_not_the_denominator_but_the_reference():
    """TRL's loss clips pi / pi_old; guarded, it clips the ratio that is measured, pi / mu, and is told so."""
    rule = Rule(min_reference=1e-3)
    trainer, fake = made(rule=rule, loss_type="bnpo")
    inputs = microbatch(tiny.model())
    own = inputs["sampling_per_token_logps"].nan_to_num(0.0, 0.0, 0.0) + 0.1
    inputs["old_per_token_logps"] = own
    inputs["satwatch_own_weights"] = torch.arange(BATCH) % 2 == 0
    given = dict(inputs)
    loss, gradient = loss_and_gradient(trainer, inputs)
    expected, expected_gradient, _ = exact(trainer, inputs, "bnpo", rule)
    assert float(loss) == pytest.approx(float(expected), rel=2e-5)
    assert distance(gradient, expected_gradient) < 2e-5
    # The trainer's own batch is as it was: it is used again.
    assert list(inputs) == list(given) and all(inputs[name] is given[name] for name in given)
    reference = fake.calls[0].batch.reference_logprob
    assert torch.equal(reference[0::2], own[0::2]) and reference[1::2].isnan().all()
    assert trainer.attachment.drain()["satwatch/decoupled"] == 0


def test_old_log_probs_stand_in_for_the_generators_and_it_is_said_once(caplog):
    rule = Rule(min_reference=1e-3)
    trainer, fake = made(rule=rule, loss_type="grpo")
    inputs = microbatch(tiny.model())
    inputs["old_per_token_logps"] = inputs.pop("sampling_per_token_logps").nan_to_num(0.0, 0.0, 0.0).clamp(-99, 99)
    inputs["satwatch_own_weights"] = torch.ones(BATCH, dtype=torch.bool)
    for _ in range(2):
        loss, gradient = loss_and_gradient(trainer, inputs)
    expected, expected_gradient, _ = exact(trainer, inputs, "grpo", rule, mu=inputs["old_per_token_logps"].double())
    assert float(loss) == pytest.approx(float(expected), rel=2e-5)
    assert distance(gradient, expected_gradient) < 2e-5
    assert len(fake.calls) == 2 and fake.calls[0].batch.reference_logprob is None
    assert [record.levelname for record in caplog.records if "stand in" in record.message] == ["WARNING"]


def test_without_any_log_probs_to_compare_the_stock_loss_runs_and_it_is_said_once(caplog):
    trainer, fake = made()
    stock, _ = made(GRPOTrainer)
    inputs = microbatch(tiny.model())
    del inputs["sampling_per_token_logps"]
    for _ in range(2):
        ours, theirs = loss_and_gradient(trainer, inputs), loss_and_gradient(stock, inputs)
        assert torch.equal(ours[0], theirs[0]) and all(torch.equal(ours[1][n], theirs[1][n]) for n in ours[1])
    assert fake.calls == []
    said = [record.message for record in caplog.records if record.name == "satwatch"]
    assert len(said) == 1 and "rollout_func" in said[0] and "nothing is sent" in said[0]


@pytest.mark.parametrize("with_old", [False, True])
def test_tokens_without_a_log_prob_do_not_poison_the_loss(with_old):
    """vLLM has none for some tokens: TRL makes NaN of it. They count, and TRL's own ratio stands for them."""
    rule = Rule(min_reference=1e-3)
    trainer, fake = made(rule=rule, loss_type="dapo")
    inputs = microbatch(tiny.model())
    mu = inputs["sampling_per_token_logps"]
    missing = torch.zeros_like(mu, dtype=torch.bool)
    missing[0, 3] = missing[3, 0] = missing[4, 0] = True
    if with_old:
        inputs["old_per_token_logps"] = mu.nan_to_num(0.0, 0.0, 0.0) + 0.05
    inputs["sampling_per_token_logps"] = mu.masked_fill(missing, math.nan)
    loss, gradient = loss_and_gradient(trainer, inputs)

    policy = tiny.model().double()
    policy.load_state_dict(trainer.model.state_dict())
    now = logprobs(policy, inputs)
    own = inputs["old_per_token_logps"].double() if with_old else now.detach()
    present = {**inputs, "completion_mask": inputs["completion_mask"] * ~missing}
    losses, _ = surrogate(now, mu.double(), present, rule)
    advantage = inputs["advantages"].double().unsqueeze(1)
    ratio = (now - own).exp()
    nominal = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    expected = reduced(torch.where(missing, nominal, losses), inputs, "dapo", trainer)
    expected.backward()
    assert float(loss) == pytest.approx(float(expected.detach()), rel=2e-5)
    assert distance(gradient, {name: weight.grad for name, weight in policy.named_parameters()}) < 2e-5
    sent = fake.calls[0].batch
    assert sent.log_ratio[sent.mask].isnan().sum() == 3
    assert trainer.attachment.drain()["satwatch/nan_tokens"] == 3


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("mu", [-93.0, -1e4, -math.inf, math.inf])
def test_an_absurd_log_prob_gives_a_finite_loss_and_gradient(mu, level):
    trainer, fake = made(rule=Rule(level=level), loss_type="grpo", importance_sampling_level=level)
    inputs = microbatch(tiny.model())
    inputs["sampling_per_token_logps"][[0, 3], [2, 2]] = mu
    inputs["advantages"][0], inputs["advantages"][3] = 1.0, -1.0
    loss, gradient = loss_and_gradient(trainer, inputs)
    assert loss.isfinite() and all(grad.isfinite().all() for grad in gradient.values())
    # The sidecar sees what came, not what the loss was spared.
    assert not (fake.calls[0].batch.log_ratio[0, 2].abs() < 80)


def test_a_good_token_far_above_the_interval_has_no_gradient():
    trainer, _ = made(loss_type="bnpo")
    inputs = microbatch(tiny.model())
    with torch.no_grad():
        now = logprobs(trainer.model, inputs)
    inputs["advantages"] = torch.ones(BATCH)
    inputs["sampling_per_token_logps"] = now - torch.tensor([0.5, 25.0, 89.0, 1e6])[torch.arange(max(LENGTHS)) % 4]
    _, gradient = loss_and_gradient(trainer, inputs)
    assert all(grad.abs().max() == 0 for grad in gradient.values())


# The correction that TRL makes where vLLM generates.


def with_correction(trainer, mode, inputs):
    trainer.use_vllm, trainer.vllm_importance_sampling_correction = True, True
    own = inputs["sampling_per_token_logps"].nan_to_num(0.0, 0.0, 0.0).clamp(-99, 99) + 0.4
    ratio = torch.full_like(own, math.exp(0.4))
    if mode == "mask":
        ratio[:, 1] = 0.0  # beyond the largest that TRL tolerates
    return {**inputs, "old_per_token_logps": own, "importance_sampling_ratio": ratio}


@pytest.mark.parametrize("mode", ["truncate", "mask"])
def test_what_is_in_the_ratio_is_not_corrected_again(mode):
    rule = Rule(min_reference=1e-3)
    trainer, _ = made(rule=rule, loss_type="bnpo")
    inputs = with_correction(trainer, mode, microbatch(tiny.model()))
    loss, gradient = loss_and_gradient(trainer, inputs)
    policy = tiny.model().double()
    policy.load_state_dict(trainer.model.state_dict())
    losses, _ = surrogate(logprobs(policy, inputs), inputs["sampling_per_token_logps"].double(), inputs, rule)
    expected = reduced(losses * (inputs["importance_sampling_ratio"] != 0), inputs, "bnpo", trainer)
    expected.backward()
    assert float(loss) == pytest.approx(float(expected.detach()), rel=2e-5)
    assert distance(gradient, {name: weight.grad for name, weight in policy.named_parameters()}) < 2e-5


# Watching only: not a bit differs.


MODES = ("plain", "old", "truncate", "mask", "short")
WATCHED = [*((kind, "plain") for kind in (*LOSSES, "cispo", "sapo", "vespo")), *(("dapo", mode) for mode in MODES[1:])]


@pytest.mark.parametrize(("kind", "mode"), WATCHED)
def test_watching_changes_no_bit(kind, mode):
    trainer, fake = made(rule=Rule(enabled=False), loss_type=kind)
    stock, _ = made(GRPOTrainer, loss_type=kind)
    inputs = microbatch(tiny.model())
    if mode == "old":
        inputs["old_per_token_logps"] = inputs["sampling_per_token_logps"].nan_to_num(0.0, 0.0, 0.0).clamp(-9, 9) + 0.3
    elif mode == "short":
        inputs["sampling_per_token_logps"] = inputs["sampling_per_token_logps"][:, :-1]
    elif mode != "plain":
        inputs = with_correction(trainer, mode, inputs)
        with_correction(stock, mode, inputs)
    (loss, gradient), (theirs, their_gradient) = (loss_and_gradient(t, dict(inputs)) for t in (trainer, stock))
    assert torch.equal(loss, theirs) and loss.isfinite()
    assert all(torch.equal(gradient[name], their_gradient[name]) for name in gradient)
    assert any(grad.abs().max() > 0 for grad in gradient.values())
    for name, values in stock._metrics["train"].items():
        assert trainer._metrics["train"][name] == values
    # It was sent, and the log says that the loss's ratio is another one.
    assert len(fake.calls) == (mode != "short")
    assert trainer.attachment.drain()["satwatch/decoupled"] == 1


class Silent(FakeClient):
    """A client that never answers."""

    def submit(self, log_ratio, **batch):
        super().submit(log_ratio, **batch)
        return Future()


@pytest.mark.timeout(60)
def test_watching_waits_for_no_answer():
    trainer = tiny.trainer(SatGRPOTrainer, satwatch=Silent(rule=Rule(enabled=False)))
    trainer.current_gradient_accumulation_steps = 1
    for _ in range(3):
        loss_and_gradient(trainer, microbatch(tiny.model()))
    assert len(trainer.attachment.client.calls) == 3


def test_a_batch_in_evaluation_is_not_sent():
    trainer, fake = made()
    stock, _ = made(GRPOTrainer)
    inputs = microbatch(tiny.model())
    losses = []
    for each in (trainer, stock):
        each.model.eval()
        losses.append(each._compute_loss(each.model, inputs))
    assert torch.equal(*losses)
    assert fake.calls == [] and trainer.epsilon_high == 0.2


# Whatever goes wrong.


@pytest.mark.parametrize("where", ["answer", "forward", "metrics"])
def test_the_slots_hold_the_trainers_own_epsilons_again_when_the_loss_raises(where, monkeypatch):
    script = [DeadlineError("late")] if where == "answer" else []
    trainer, fake = made(script=script, epsilon=0.2, epsilon_high=0.28, rule=Rule(eps_high=0.28))
    inputs = microbatch(tiny.model())
    if where == "forward":
        monkeypatch.setattr(trainer.model, "forward", lambda **_: 1 / 0)
    elif where == "metrics":
        monkeypatch.setattr(trainer.accelerator, "reduce", lambda *_, **__: 1 / 0)
    with pytest.raises(DeadlineError if where == "answer" else ZeroDivisionError):
        trainer._compute_loss(trainer.model, inputs)
    monkeypatch.undo()
    assert (trainer.epsilon_low, trainer.epsilon_high) == (0.2, 0.28)
    # What scores a generation after it is not taken for a loss.
    asked = len(fake.calls)
    assert asked == (where != "forward")
    score(trainer, inputs)
    assert len(fake.calls) == asked
    trainer._compute_loss(trainer.model, inputs)
    assert len(fake.calls) == asked + 1 and trainer.epsilon_low == 0.2


def score(trainer, inputs):
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    return trainer._get_per_token_logps_and_entropies(trainer.model, ids, attention, max(LENGTHS))


def test_the_first_forward_pass_of_a_loss_is_the_policys(monkeypatch):
    def twice(trainer, model, inputs):
        score(trainer, inputs)
        return score(trainer, inputs)[0].sum()

    monkeypatch.setattr(GRPOTrainer, "_compute_loss", twice)
    trainer, fake = made()
    trainer._compute_loss(trainer.model, microbatch(tiny.model()))
    assert len(fake.calls) == 1


class Broken(FakeClient):
    """A client with a defect in it."""

    def submit(self, log_ratio, **batch):
        raise RuntimeError

    def publish_version(self, version):
        raise RuntimeError


def test_a_broken_client_costs_its_sidecar_and_not_the_bounds(caplog):
    trainer = tiny.trainer(
        SatGRPOTrainer,
        satwatch=Broken(),
        loss_type="grpo",
        gradient_accumulation_steps=ACCUMULATION,
        steps_per_generation=4,
    )
    trainer.current_gradient_accumulation_steps = ACCUMULATION
    inputs = microbatch(tiny.model())
    loss, gradient = loss_and_gradient(trainer, inputs)
    expected, expected_gradient, _ = exact(trainer, inputs, "grpo", Rule())
    assert float(loss) == pytest.approx(float(expected), rel=2e-5)
    assert distance(gradient, expected_gradient) < 2e-5
    trainer._publish(3)
    trainer._publish(4)
    assert trainer.attachment.drain()["satwatch/hook_faults"] == 1
    assert len([record for record in caplog.records if "published" in record.message]) == 1


def test_log_probs_of_another_width_cost_their_bounds_and_not_the_loss(caplog):
    """A rollout_func's own mistake, which TRL without vLLM never looks at."""
    trainer, fake = made(loss_type="grpo")
    stock, _ = made(GRPOTrainer, loss_type="grpo")
    inputs = microbatch(tiny.model())
    inputs["sampling_per_token_logps"] = inputs["sampling_per_token_logps"][:, :-1]
    (loss, gradient), (theirs, their_gradient) = (loss_and_gradient(t, dict(inputs)) for t in (trainer, stock))
    # Tensors of the trainer's own radii are the trainer's own interval, to the bit.
    assert torch.equal(loss, theirs)
    assert all(torch.equal(gradient[name], their_gradient[name]) for name in gradient)
    assert fake.calls == []
    assert trainer.attachment.drain()["satwatch/hook_faults"] == 1
    assert any("behavior_logprob" in record.message for record in caplog.records if record.levelno == logging.WARNING)


def test_an_unreadable_field_costs_itself_and_the_batch_is_bounded():
    trainer, fake = made(loss_type="grpo")
    inputs = microbatch(tiny.model())
    inputs["satwatch_behavior_version"] = torch.rand(BATCH)
    trainer.state = SimpleNamespace(global_step="three", is_world_process_zero=True)
    loss, _ = loss_and_gradient(trainer, inputs)
    expected, _, _ = exact(trainer, inputs, "grpo", fake.rule)
    assert float(loss) == pytest.approx(float(expected), rel=2e-5)
    assert fake.calls[0].batch.behavior_versions is None and fake.calls[0].batch.step is None
