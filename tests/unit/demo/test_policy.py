import pytest
import torch

from satwatch.demo.policy import initial_policy, response_distribution, sample, score
from satwatch.demo.task import TASKS


def _sampled(policy, task, seed=0, prompts=8, samples=4):
    generator = torch.Generator().manual_seed(seed)
    return sample(policy, task.draw_prompts(prompts, generator), samples, task.response_length, generator)


def _teacher_forced(policy, task, tokens):
    distribution = response_distribution(policy, tokens, task.prompt_length)
    return distribution.gather(2, tokens[:, task.prompt_length :, None]).squeeze(2)


@pytest.mark.parametrize("name", ["reverse", "sort"])
def test_sampling_with_the_cache_reports_the_log_probs_of_teacher_forcing(name):
    task = TASKS[name]
    policy = initial_policy(task, seed=1)
    tokens, logprob = _sampled(policy, task)
    assert tokens.shape == (32, task.prompt_length + task.response_length)
    torch.testing.assert_close(logprob, _teacher_forced(policy, task, tokens), atol=1e-5, rtol=0)


def test_samples_of_a_prompt_lie_together_and_differ():
    task = TASKS["reverse"]
    tokens, _ = _sampled(initial_policy(task, seed=1), task, prompts=3, samples=5)
    prompts, responses = tokens[:, : task.prompt_length].view(3, 5, -1), tokens[:, task.prompt_length :].view(3, 5, -1)
    assert (prompts == prompts[:, :1]).all()
    assert len(prompts[:, 0].unique(dim=0)) == 3
    assert all(len(group.unique(dim=0)) > 1 for group in responses)


def test_sampled_tokens_follow_the_distribution():
    task = TASKS["sort"]
    policy = initial_policy(task, seed=2)
    tokens, _ = _sampled(policy, task, prompts=1, samples=20_000)
    share = torch.bincount(tokens[:, task.prompt_length], minlength=task.vocabulary) / len(tokens)
    expected = response_distribution(policy, tokens[:1], task.prompt_length)[0, 0].exp()
    # Five standard deviations of a share of 20,000 draws are at most 0.018.
    torch.testing.assert_close(share, expected.detach(), atol=0.018, rtol=0)


def test_a_later_token_does_not_change_an_earlier_log_prob():
    task = TASKS["reverse"]
    policy = initial_policy(task, seed=1)
    tokens, _ = _sampled(policy, task)
    changed = tokens.clone()
    changed[:, -2] = (changed[:, -2] + 1) % task.base
    before, after = (response_distribution(policy, t, task.prompt_length) for t in (tokens, changed))
    assert torch.equal(before[:, :-1], after[:, :-1])
    assert not torch.equal(before[:, -1], after[:, -1])


def test_the_policy_has_about_1e5_parameters_that_the_seed_fixes():
    task = TASKS["reverse"]
    state = torch.get_rng_state()
    policy, same, other = (initial_policy(task, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert policy.parameter_count == 102_795
    assert all(torch.equal(a, b) for a, b in zip(policy.parameters(), same.parameters(), strict=True))
    assert not torch.equal(policy.token.weight, other.token.weight)


def test_scores_with_a_shared_prefill_are_those_of_the_whole_sequence():
    task = TASKS["reverse"]
    policy = initial_policy(task, seed=1)
    tokens, _ = _sampled(policy, task)
    samples = len(tokens) // len(tokens[:, : task.prompt_length].unique(dim=0))
    distribution = response_distribution(policy, tokens, task.prompt_length)
    expected = distribution.gather(2, tokens[:, task.prompt_length :, None]).squeeze(2)
    assert samples > 1
    torch.testing.assert_close(score(policy, tokens, task.prompt_length, samples), expected, atol=1e-5, rtol=0)


def test_a_higher_temperature_samples_and_scores_a_flatter_distribution():
    task = TASKS["sort"]
    policy = initial_policy(task, seed=2)
    prompts = task.draw_prompts(1, torch.Generator().manual_seed(0))
    tokens, logprob = sample(policy, prompts, 8, task.response_length, torch.Generator().manual_seed(0), 1.5)
    logits = policy(tokens[:, :-1], first=task.prompt_length - 1)
    expected = (logits / 1.5).log_softmax(dim=-1).gather(2, tokens[:, task.prompt_length :, None]).squeeze(2)
    torch.testing.assert_close(logprob, expected.detach(), atol=1e-5, rtol=0)
