import multiprocessing

import pytest
import torch

from satwatch.demo.policy import initial_policy, response_distribution, sample
from satwatch.demo.task import TASKS
from satwatch.demo.weights import WeightStore

TASK = TASKS["reverse"]


def _store(lag):
    return WeightStore(multiprocessing.get_context("spawn"), initial_policy(TASK, 0).parameter_count, lag)


def _vector(policy):
    return torch.nn.utils.parameters_to_vector(policy.parameters()).detach()


def test_the_engine_gets_the_weights_rounded_to_bfloat16():
    learner, engine, store = initial_policy(TASK, 1), initial_policy(TASK, 0), _store(lag=0)
    store.publish(0, learner)
    store.load(0, engine)
    assert torch.equal(_vector(engine), _vector(learner).bfloat16().float())
    assert _vector(engine).dtype == torch.float32


def test_loaded_weights_are_the_engines_own():
    learner, engine, store = initial_policy(TASK, 1), initial_policy(TASK, 0), _store(lag=0)
    store.publish(0, learner)
    store.load(0, engine)
    before = _vector(engine).clone()
    store.publish(1, initial_policy(TASK, 2))
    assert torch.equal(_vector(engine), before)


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_the_last_lag_plus_one_versions_are_kept(lag):
    store, engine = _store(lag), initial_policy(TASK, 0)
    versions = [initial_policy(TASK, seed) for seed in range(7)]
    for version, policy in enumerate(versions):
        store.publish(version, policy)
    for version in range(6 - lag, 7):
        store.load(version, engine)
        assert torch.equal(_vector(engine), _vector(versions[version]).bfloat16().float())


def test_rounding_makes_a_real_mismatch_between_engine_and_learner():
    learner, engine, store = initial_policy(TASK, 1), initial_policy(TASK, 0), _store(lag=0)
    store.publish(0, learner)
    store.load(0, engine)
    generator = torch.Generator().manual_seed(0)
    tokens, behavior = sample(engine, TASK.draw_prompts(8, generator), 4, TASK.response_length, generator)
    distribution = response_distribution(learner, tokens, TASK.prompt_length)
    log_ratio = distribution.gather(2, tokens[:, TASK.prompt_length :, None]).squeeze(2) - behavior
    # Far above float32 noise (1e-6), far below a policy update.
    assert 1e-4 < log_ratio.abs().mean().item() < 1e-2
