import multiprocessing
import os
import signal

import numpy as np
import pytest
import torch

from satwatch.client import FakeClient
from satwatch.demo import DemoConfig
from satwatch.demo.engine import generate, serve
from satwatch.demo.faults import version_held
from satwatch.demo.learner import Learner
from satwatch.demo.policy import initial_policy
from satwatch.demo.rollout import RolloutError, RolloutProcess
from satwatch.demo.run import train
from satwatch.demo.task import TASKS
from satwatch.demo.weights import WeightStore

SMALL = {"prompts": 4, "samples": 4, "steps": 6}


def _simulate(config, client):
    """The same run in one process, with every version's weights kept."""
    task = TASKS[config.task]
    learner = Learner(config, initial_policy(task, config.seed), client)
    engine = initial_policy(task, config.seed)
    kept, records = [], []
    for number in range(config.steps):
        kept.append([p.detach().bfloat16().float() for p in learner.policy.parameters()])
        with torch.no_grad():
            for mine, published in zip(engine.parameters(), kept[version_held(config, number)], strict=True):
                mine.copy_(published)
        records.append(learner.step(generate(config, engine, number)))
    return records


def _asynchronous(config, client):
    policy = initial_policy(TASKS[config.task], config.seed)
    with RolloutProcess(config, policy) as engine:
        return list(train(config, Learner(config, policy, client), engine, client))


def _outcome(records):
    return [(r.reward, r.log_ratio_abs_mean, r.quantile_reference, r.entropy) for r in records]


@pytest.mark.parametrize("lag", [0, 2])
def test_an_asynchronous_run_is_the_simulated_one_whatever_the_timing(lag):
    config = DemoConfig(lag=lag, **SMALL)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        client = FakeClient()
        records = _asynchronous(config, client)
        assert _outcome(records) == _outcome(_simulate(config, FakeClient()))
    finally:
        torch.set_num_threads(threads)
    versions = [sorted(set(call.batch.behavior_versions.values.tolist())) for call in client.calls]
    assert versions == [[max(0, t - lag)] for t in range(6) for _ in range(config.microbatches)]
    assert [r.version_lag for r in records] == [min(t, lag) for t in range(6)]
    assert client.published == list(range(7))
    assert client.ended == list(range(6))
    assert [scores.version for scores in client.canaries] == [0]


@pytest.mark.parametrize("fault", ["lag", "nan", "stale-engine", "temperature"])
def test_a_faulty_run_is_the_simulated_one_too(fault):
    config = DemoConfig(lag=1, fault=fault, fault_step=2, **SMALL)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        faulty = _outcome(_asynchronous(config, FakeClient()))
        assert faulty == _outcome(_simulate(config, FakeClient()))
        sound = _outcome(_simulate(DemoConfig(lag=1, **SMALL), FakeClient()))
    finally:
        torch.set_num_threads(threads)
    assert faulty[:2] == sound[:2]
    assert faulty[2:] != sound[2:]


def test_batches_follow_seed_number_and_task_alone():
    config = DemoConfig(**SMALL)
    policy = initial_policy(TASKS["reverse"], 0)
    first, again = generate(config, policy, 3), generate(config, policy, 3)
    np.testing.assert_array_equal(first.tokens, again.tokens)
    np.testing.assert_array_equal(first.behavior_logprob, again.behavior_logprob)
    others = [generate(config, policy, 4), generate(DemoConfig(seed=1, **SMALL), policy, 3)]
    assert all((first.tokens != other.tokens).any() for other in others)


def test_the_engine_ends_when_the_learner_is_gone():
    config = DemoConfig(lag=0, **SMALL)
    context = multiprocessing.get_context("spawn")
    policy = initial_policy(TASKS["reverse"], 0)
    store = WeightStore(context, policy.parameter_count, 0)
    store.publish(0, policy)
    versions, learner_versions = context.Pipe(duplex=False)
    learner_batches, batches = context.Pipe(duplex=False)
    learner_versions.send(0)
    learner_versions.close()  # what the kernel does for a learner that was killed
    threads = torch.get_num_threads()
    serve(config, store, versions, batches)
    torch.set_num_threads(threads)
    assert not learner_batches.poll()
    for end in (versions, learner_batches, batches):
        end.close()


def test_a_rollout_process_that_dies_is_an_error_and_not_a_hang():
    config = DemoConfig(lag=0, **SMALL)
    policy = initial_policy(TASKS["reverse"], 0)
    with RolloutProcess(config, policy) as engine:
        assert engine.next_batch().number == 0
        os.kill(engine.pid, signal.SIGKILL)
        with pytest.raises(RolloutError, match=rf"pid {engine.pid}\) ended early with exit code -9"):
            engine.next_batch()
        with pytest.raises(RolloutError):
            engine.publish(1, policy)


def test_leaving_ends_a_rollout_process_that_has_batches_left():
    with RolloutProcess(DemoConfig(lag=4, **SMALL), initial_policy(TASKS["reverse"], 0)) as engine:
        pid = engine.pid
        engine.next_batch()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_ctrl_c_does_not_reach_the_rollout_process():
    config = DemoConfig(lag=0, **SMALL)
    with RolloutProcess(config, initial_policy(TASKS["reverse"], 0)) as engine:
        os.kill(engine.pid, signal.SIGINT)
        assert engine.next_batch().number == 0
