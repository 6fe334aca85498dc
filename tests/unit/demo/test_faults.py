import numpy as np
import pytest
import torch

from satwatch.demo import DemoConfig
from satwatch.demo.canary import canary_logprobs, task_canary
from satwatch.demo.engine import generate
from satwatch.demo.faults import spoil, temperature, version_held, version_named
from satwatch.demo.policy import initial_policy
from satwatch.demo.task import TASKS


def _config(fault, **changes):
    return DemoConfig(
        **{"lag": 2, "steps": 100, "fault": fault, "fault_step": 10, "prompts": 4, "samples": 4, **changes}
    )


@pytest.mark.parametrize("fault", ["none", "nan", "temperature"])
def test_most_faults_leave_the_versions_alone(fault):
    config = _config(fault, fault_step=None if fault == "none" else 10)
    due = [config.behavior_version(batch) for batch in range(100)]
    assert [version_held(config, batch) for batch in range(100)] == due
    assert [version_named(config, batch) for batch in range(100)] == due


def test_an_engine_that_falls_behind_says_which_version_it_holds():
    config = _config("lag")
    held = [version_held(config, batch) for batch in range(100)]
    assert held == [version_named(config, batch) for batch in range(100)]
    assert held[:11] == [config.behavior_version(batch) for batch in range(11)]
    assert held[10:34] == [8] * 24
    assert held[34:66] == [32] * 32
    assert held[66] == 64


def test_a_stale_engine_names_versions_that_it_does_not_hold():
    config = _config("stale-engine")
    assert [version_held(config, batch) for batch in (9, 10, 11, 99)] == [7, 8, 8, 8]
    assert [version_named(config, batch) for batch in (9, 10, 11, 99)] == [7, 8, 9, 97]


def test_three_log_probs_of_a_batch_are_spoilt_and_the_batch_fixes_which():
    config, sound = _config("nan"), np.zeros((16, 6), np.float32)
    assert spoil(config, 9, sound) is sound
    first, again, next_one = (spoil(config, batch, sound) for batch in (10, 10, 11))
    assert np.isnan(first).sum() == np.isnan(next_one).sum() == 3
    np.testing.assert_array_equal(first, again)
    assert (np.isnan(first) != np.isnan(next_one)).any()
    assert not np.isnan(sound).any()
    assert np.isnan(spoil(config, 10, np.zeros((1, 2), np.float32))).all()


def test_another_temperature_biases_the_log_ratio():
    config, policy = _config("temperature", prompts=32, samples=32), initial_policy(TASKS["reverse"], 0)
    assert [temperature(config, batch) for batch in (9, 10)] == [1.0, 1.5]
    batch = generate(config, policy, 10)
    tokens = torch.from_numpy(batch.tokens).long()
    canary = canary_logprobs(policy, task_canary(TASKS["reverse"]).of(tokens[:64].tolist()))[:, -6:]
    # log pi - log mu under mu: its mean is -KL(mu, pi), below 0.
    assert (canary - torch.from_numpy(batch.behavior_logprob[:64])).mean() < -0.005
