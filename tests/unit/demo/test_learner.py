import math

import numpy as np
import pytest
import torch

from satwatch.client import FakeClient
from satwatch.client.fallback import local_bounds
from satwatch.demo import DemoConfig
from satwatch.demo.engine import generate
from satwatch.demo.learner import Learner, clipped_objective, group_advantages
from satwatch.demo.policy import initial_policy
from satwatch.demo.task import TASKS
from satwatch.hooks import ClipRadii
from satwatch.sat import clip_bounds, surrogate
from satwatch.types import Rule


def _config(**changes):
    return DemoConfig(**{"prompts": 4, "samples": 8, **changes})


def _client(config):
    return FakeClient(rule=Rule(level=config.level, enabled=config.adaptive))


def _log_ratios(client):
    return torch.cat([call.batch.log_ratio for call in client.calls])


def _learner(config, client, seed=None):
    return Learner(config, initial_policy(TASKS[config.task], config.seed if seed is None else seed), client)


def _vector(policy):
    return torch.nn.utils.parameters_to_vector(policy.parameters()).detach().clone()


def test_advantages_have_mean_zero_and_deviation_one_in_each_group():
    reward = torch.tensor([0.0, 0.0, 1.0, 1.0, 0.2, 0.4, 0.6, 0.8])
    advantage = group_advantages(reward, 4)
    assert advantage[:4].tolist() == [-1.0, -1.0, 1.0, 1.0]
    expected = (np.array([0.2, 0.4, 0.6, 0.8]) - 0.5) / np.std([0.2, 0.4, 0.6, 0.8])
    np.testing.assert_allclose(advantage[4:].numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("reward", [0.0, 1.0, 5 / 6, 1 / 3])
def test_a_group_of_equal_rewards_has_advantage_zero(reward):
    rewards = torch.tensor([reward] * 7 + [0.0] * 6 + [1.0])
    advantage = group_advantages(rewards, 7)
    assert advantage[:7].tolist() == [0.0] * 7
    assert advantage[7:].abs().min() > 0


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_ppos_objective_with_the_radii_in_it_is_the_surrogate_of_sat(level):
    generator = torch.Generator().manual_seed(0)
    d = (torch.randn(64, 6, generator=generator, dtype=torch.float64) * 0.2).requires_grad_()
    advantage = torch.randn(64, 1, generator=generator, dtype=torch.float64)
    bounds = clip_bounds(d, level=level)
    assert bounds.gate.any()
    radii = ClipRadii(lambda: bounds)
    if level == "token":
        ours = clipped_objective(d, advantage, radii.low, radii.high)
    else:
        ours = clipped_objective(d.mean(dim=1, keepdim=True), advantage, *radii.per_sequence(torch.ones_like(d)))
    expected = surrogate(d, advantage, bounds, level=level)
    torch.testing.assert_close(ours.mean(), expected.mean(), rtol=1e-12, atol=0)
    gradients = [torch.autograd.grad(objective.mean(), d)[0] for objective in (ours, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-15)


def test_every_microbatch_is_sent_with_what_is_known_of_it():
    config = _config(lag=3, microbatches=2)
    client = _client(config)
    batch = generate(config, initial_policy(TASKS["reverse"], 0), number=5)
    _learner(config, client).step(batch)
    sent = [call.batch for call in client.calls]
    assert all(call.submitted for call in client.calls)
    assert [(b.step, b.microbatch, b.policy_version) for b in sent] == [(5, 0, 5), (5, 1, 5)]
    for part, microbatch in enumerate(sent):
        rows = slice(16 * part, 16 * part + 16)
        assert microbatch.behavior_versions.values.tolist() == [2] * microbatch.log_ratio.numel()
        assert microbatch.behavior_versions.unit == "token"
        np.testing.assert_array_equal(microbatch.behavior_logprob.numpy(), batch.behavior_logprob[rows])
        expected = group_advantages(torch.from_numpy(batch.reward[rows]), 8)
        assert torch.equal(microbatch.advantage, expected[:, None])


def test_batches_carry_the_engine_and_the_learners_own_log_probs_of_the_version_named():
    config = _config(lag=1, microbatches=2)
    client = _client(config)
    learner, engine = _learner(config, client), initial_policy(TASKS["reverse"], 0)
    for number in range(3):
        learner.step(generate(config, engine, number))
    present, one_back, unlike = (client.calls[i].batch for i in (0, 2, 4))
    assert all(call.batch.behavior_engines is not None for call in client.calls)
    # Versions 0 and 0 again: the engine has these very weights, so that nothing is left of log pi(l) - log mu.
    for batch in (present, one_back):
        torch.testing.assert_close(batch.reference_logprob, batch.behavior_logprob, atol=1e-5, rtol=0)
    assert (unlike.reference_logprob - unlike.behavior_logprob).abs().mean() > 1e-3
    assert one_back.log_ratio.abs().mean() > 1e-3


def test_a_reference_that_is_not_kept_is_not_sent():
    config = _config(lag=3)
    client = _client(config)
    _learner(config, client).step(generate(config, initial_policy(TASKS["reverse"], 0), number=5))
    assert client.calls[0].batch.reference_logprob is None


def test_a_step_is_reported_and_ended():
    config = _config()
    client = _client(config)
    batch = generate(config, initial_policy(TASKS["reverse"], 0), number=0)
    _learner(config, client).step(batch)
    (report,) = client.reports
    assert (report.step, client.ended) == (0, [0])
    assert report.measures["reward"].count == 32
    assert report.measures["reward"].mean == pytest.approx(float(batch.reward.mean()))
    assert report.measures["response_length"].mean == 6
    # At ratio 1 the objective of a token is its advantage, and those are 0 on average.
    assert report.measures["loss"].mean == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("objective", ["sat", "sat-gspo"])
def test_log_probs_that_are_no_numbers_leave_the_policy_sound(objective):
    config = _config(objective=objective, fault="nan", fault_step=0)
    client = _client(config)
    learner = _learner(config, client, seed=1)
    before = _vector(learner.policy)
    record = learner.step(generate(config, initial_policy(TASKS["reverse"], 0), number=0))
    assert _log_ratios(client).isnan().sum() == 3
    assert math.isfinite(record.log_ratio_abs_mean)
    assert math.isfinite(record.quantile_reference)
    after = _vector(learner.policy)
    assert after.isfinite().all()
    assert not torch.equal(before, after)


def test_the_log_ratio_is_the_policys_log_prob_less_the_engines():
    config = _config()
    batch = generate(config, initial_policy(TASKS["reverse"], 0), number=0)
    same, other = _client(config), _client(config)
    _learner(config, same, seed=0).step(batch)
    _learner(config, other, seed=1).step(batch)
    assert _log_ratios(same).abs().max() < 1e-5
    assert _log_ratios(other).abs().mean() > 0.05


@pytest.mark.parametrize(("objective", "gated"), [("ppo", False), ("sat", True), ("gspo", False), ("sat-gspo", True)])
def test_only_the_adaptive_objectives_gate_tokens(objective, gated):
    config = _config(objective=objective)
    learner = _learner(config, _client(config), seed=1)
    record = learner.step(generate(config, initial_policy(TASKS["reverse"], 0), number=0))
    assert record.tokens == 4 * 8 * 6
    assert record.quantile_reference > 0
    assert (record.gated_tokens > 0) == gated
    assert record.gated_tokens <= 0.1 * record.tokens


@pytest.mark.parametrize("objective", ["sat", "sat-gspo"])
def test_gated_tokens_that_are_not_beyond_ppos_own_bound_are_told_apart(objective):
    config = _config(objective=objective)
    client = _client(config)
    learner, engine = _learner(config, client), initial_policy(TASKS["reverse"], 0)
    records = [learner.step(generate(config, engine, number)) for number in range(6)]
    within = 0
    for call in client.calls:
        log_ratio = call.batch.log_ratio.double()
        score = log_ratio.mean(dim=1, keepdim=True).expand(-1, 6) if config.level == "sequence" else log_ratio
        gate = local_bounds(call.batch, client.rule).gate
        within += sum(bool(g) and 0.8 <= math.exp(s) <= 1.2 for g, s in zip(gate.ravel(), score.ravel(), strict=True))
    assert sum(r.gated_within_ppo for r in records) == within
    assert 0 < within < sum(r.gated_tokens for r in records)


def test_the_round_trip_is_unknown_in_a_step_that_the_sidecar_did_not_answer():
    config = _config(microbatches=2)
    client = FakeClient([None, "local", "local", "local"])
    learner = _learner(config, client)
    batches = [generate(config, initial_policy(TASKS["reverse"], 0), number=n) for n in (0, 1)]
    assert [learner.step(batch).round_trip_seconds for batch in batches] == [0.0, None]


@pytest.mark.parametrize("objective", ["ppo", "gspo"])
def test_microbatches_add_up_to_the_gradient_of_the_whole_batch(objective):
    # PPO's interval does not depend on the batch, so splitting it must not change the update.
    updated = []
    for microbatches in (1, 4):
        config = _config(objective=objective, microbatches=microbatches)
        learner = _learner(config, _client(config), seed=1)
        before = _vector(learner.policy)
        learner.step(generate(config, initial_policy(TASKS["reverse"], 0), number=0))
        updated.append(_vector(learner.policy) - before)
    assert updated[0].abs().max() > 1e-4
    # Adam's first step is the gradient's sign times the learning rate: signs of gradients near 0 may differ.
    agree = (updated[0] - updated[1]).abs() < 1e-5
    assert agree.double().mean() > 0.999


def test_steps_on_the_same_prompts_raise_the_log_prob_of_rewarded_responses():
    config = _config(objective="ppo", prompts=2, microbatches=1)
    client = _client(config)
    engine = initial_policy(TASKS["reverse"], 0)
    batch = generate(config, engine, number=0)
    learner = _learner(config, client)
    for _ in range(3):
        learner.step(batch)
    advantage, moved = client.calls[0].batch.advantage, client.calls[-1].batch.log_ratio
    assert (advantage * moved).mean() > 0.01
