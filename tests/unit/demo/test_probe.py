"""The demo's own probe: the real judge on a real policy, the sidecar's part played by a function."""

from collections import deque

import pytest
import torch

from satwatch.demo.canary import canary_logprobs, task_canary
from satwatch.demo.policy import initial_policy
from satwatch.demo.probe import ENGINE, Generated, RolloutProbe
from satwatch.demo.task import TASKS
from satwatch.sat.packed import pack
from satwatch.types import CanaryScores, PublishedVersion, TrainerFacts

TASK = TASKS["reverse"]
CANARY = task_canary(TASK)


class Scene:
    """A trainer whose version v has its own weights, an engine that holds some of them, and a clock."""

    def __init__(self):
        self.now = 0.0
        self.held = 0
        self.temperature = 1.0
        self.facts = TrainerFacts("demo")
        self.told = deque(maxlen=8)
        self.probe = RolloutProbe(self._exchange, self._score, clock=lambda: self.now, wall=lambda: self.now)

    def _policy(self, version):
        return initial_policy(TASK, 100 + version)

    def _exchange(self, statuses):
        self.told.append(statuses)
        return self.facts

    def _score(self, canary):
        self.now += 0.01
        policy = self._policy(self.held).bfloat16().float()
        return tuple(canary_logprobs(policy, canary, self.temperature).flatten().tolist())

    def publish(self, version):
        scores = pack(canary_logprobs(self._policy(version), CANARY).flatten(), "logprobs")
        self.facts = TrainerFacts(
            "demo",
            (*self.facts.published, PublishedVersion(version, self.now)),
            (*self.facts.canaries, CanaryScores(CANARY, version, scores)),
        )

    def round(self, label):
        self.now += 2.0
        return self.probe.round(label, Generated(256, 1536, 0.5))


@pytest.fixture
def scene():
    scene = Scene()
    scene.publish(0)
    scene.round(0)  # learns which canary there is
    return scene


def test_a_sound_engine_is_serving_with_a_floor(scene):
    scene.publish(8)
    scene.held = 8
    status = scene.round(8)
    assert (status.engine, status.state, status.findings) == (ENGINE, "serving", ())
    assert (status.version_served, status.version_canary, status.version_lag) == (8, 8, 0)
    assert 0 < status.canary_log_ratio_abs_mean < 0.01
    assert status.generation_tokens_per_second == 3072


def test_old_weights_behind_a_new_label_are_named_by_their_version(scene):
    scene.publish(8)
    status = scene.round(8)
    assert status.state == "wrong_weights"
    assert [finding.kind for finding in status.findings] == ["canary_older_version"]
    assert (status.version_served, status.version_canary) == (8, 0)
    assert "labelled 8, equals the trainer's version 0" in status.reason


def test_another_temperature_is_told_from_other_weights(scene):
    scene.publish(8)
    scene.held, scene.temperature = 8, 1.5
    status = scene.round(8)
    assert [finding.kind for finding in status.findings] == ["canary_not_comparable"]


def test_an_engine_that_does_not_follow_is_lagging(scene):
    scene.publish(8)
    scene.publish(16)
    scene.held = 8
    assert (scene.round(8).state, scene.round(8).version_lag) == ("lagging", 8)


def test_nothing_is_told_before_it_is_judged_by_the_trainers_latest_scores(scene):
    scene.publish(8)
    scene.round(8)
    states = [[status.state for status in statuses] for statuses in list(scene.told)[-2:]]
    assert states == [["serving"], ["wrong_weights"]]  # of version 0, and of version 8


def test_a_round_is_due_when_a_canary_may_be_scored_again(scene):
    assert not scene.probe.is_due
    scene.now += 1.0
    assert scene.probe.is_due


def test_leaving_takes_the_engine_back(scene):
    scene.probe.leave()
    assert scene.told[-1] == ()


def test_the_canary_is_the_same_in_every_process_and_scored_by_the_policy():
    assert task_canary(TASK) == CANARY
    policy = initial_policy(TASK, 0)
    tokens = torch.tensor(CANARY.sequences)
    expected = policy(tokens[:, :-1]).log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0]
    torch.testing.assert_close(canary_logprobs(policy, CANARY), expected.detach())
    assert torch.equal(tokens[:, 7:], tokens[:, :6].flip(1))
