"""Weights that do not follow their label, over more versions than the trainer's scores are kept of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from satwatch.server.facts import CANARY_VERSIONS, with_canary, with_published
from satwatch.types import Canary, CanaryScores
from tests.unit.probe.judge.scene import CANARY, Scene, logprobs, moved, packed

HELD, EVERY, STEP = 192, 8, 20.0
BASE = np.asarray(logprobs(5))
LOST = HELD + EVERY * CANARY_VERSIONS  # the first version at which the trainer's scores of HELD are gone
LAST = LOST + 10 * EVERY


def trainer(version):
    """Make the trainer's scores: they sharpen with each version, as a policy's do, so that an old one's lie on a line.

    The line explains more than any version that the sidecar keeps, and less than the version itself.
    """
    steps = (version - HELD) / EVERY
    sharper = BASE * (1 + 0.012 * steps) + 0.07 * steps
    return moved(sharper, 0.004 * np.sqrt(abs(steps)), seed=version)


class Run(Scene):
    """One engine, and a trainer whose scores come after the engine's answer, as many as a sidecar keeps of them."""

    def score(self, version, values, **settings):
        self.facts = with_canary(self.facts, CanaryScores(CANARY, version, packed(values), **settings))

    def serve(self, version, engine, trainer=None, late=True):
        """Label the engine, have it score the canary, and tell the trainer's scores after that or before."""
        at = self.now + STEP
        if trainer is not None and not late:
            self.score(version, trainer)
        self.look(at, str(version))
        self.answer(at + 1, str(version), tuple(engine), took=0.5)
        if trainer is not None and late:
            self.score(version, trainer)
        return self.status()


def versions(first=HELD + EVERY, last=LAST):
    return range(first, last + 1, EVERY)


def stuck(last=LAST, noise=0.0, late=True):
    """Let an engine hold the weights of HELD under each label up to ``last``."""
    run = Run()
    run.serve(HELD, trainer(HELD), trainer(HELD), late)
    for version in versions(last=last):
        run.serve(version, moved(trainer(HELD), noise, seed=9 * version), trainer(version), late)
    return run


def accused_of(status):
    return status.state, status.version_canary, {f.kind for f in status.findings} - {"label_only"}


AT_HELD = ("wrong_weights", HELD, {"canary_older_version"})


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("noise", [0.0, 0.005])
def test_an_engine_that_stands_still_stays_accused_of_its_version_when_the_trainers_scores_of_it_are_gone(noise, late):
    run = stuck(HELD + 8 * EVERY, noise, late)
    for version in versions(HELD + 9 * EVERY):
        status = run.serve(version, moved(trainer(HELD), noise, seed=9 * version), trainer(version), late)
        assert accused_of(status) == AT_HELD, version
    assert run.facts.scores_of(HELD) is None


def test_it_stays_accused_under_a_label_that_the_trainer_did_not_score_or_scored_at_another_temperature():
    run = stuck()
    status = run.serve(LAST + 1, trainer(HELD))
    assert accused_of(status) == AT_HELD
    assert "still those that equalled the trainer's version 192" in status.reason
    run.score(LAST + 1, trainer(LAST + 1), temperature=0.7)
    assert accused_of(run.status()) == AT_HELD
    run.facts = type(run.facts)()
    run.look(run.now + STEP, str(LAST + 1))
    assert accused_of(run.status()) == AT_HELD


def test_an_engine_that_took_its_weights_is_cleared_and_what_was_proven_forgotten():
    run = stuck()
    assert accused_of(run.serve(LAST + 1, trainer(LAST + 1))) == ("serving", None, set())
    assert run.serve(LAST + 8, trainer(LAST + 8), trainer(LAST + 8)).state == "serving"
    assert run.memories["a"].canary.proof is None
    assert accused_of(run.serve(LAST + 9, trainer(HELD))) == ("serving", None, set())


def test_a_repair_under_the_same_label_clears_it():
    run = stuck()
    run.answer(run.now + 60, str(LAST), trainer(LAST))
    assert (run.status().state, run.status().version_canary) == ("serving", LAST)


def test_noise_that_could_hide_a_step_accuses_nobody_under_a_label_without_scores():
    run = Run()
    run.serve(5, moved(BASE, 0.01, seed=1), BASE)
    near = moved(BASE, 0.03, seed=2)
    run.serve(6, moved(BASE, 0.01, seed=3), near)
    run.answer(run.now + 60, "6", moved(BASE, 0.01, seed=4))
    assert accused_of(run.status()) == ("wrong_weights", 5, {"canary_older_version"})
    assert run.serve(7, moved(near, 0.01, seed=5)).state == "serving"


def test_a_restart_forgets_what_was_proven():
    run = stuck()
    run.look(run.now + STEP, "default")
    assert run.memories["a"].canary.proof is None
    assert run.serve(LAST + 1, trainer(HELD)).state == "serving"


def test_another_canary_forgets_what_was_proven():
    run, other = stuck(), Canary.of([range(len(BASE) + 1)])
    run.answer(run.now + 60, str(LAST), trainer(HELD), canary=other)
    assert run.memories["a"].canary.proof is None
    assert run.status().state == "serving"


def test_a_trainer_that_begins_again_from_a_checkpoint_is_not_judged_by_what_was_proven_before():
    run = stuck()
    run.facts = with_published(with_published(run.facts, LAST, run.now), HELD - EVERY, run.now)
    assert run.facts.canaries == ()
    # The same weights under a fallen label, which nobody has scored yet: perhaps the very checkpoint.
    assert run.serve(HELD - EVERY, trainer(HELD)).state == "serving"
    assert run.memories["a"].canary.proof is None
    run.score(HELD - EVERY, trainer(HELD))
    assert (run.status().state, run.status().version_canary) == ("serving", HELD - EVERY)


def test_a_label_that_was_late_is_no_proof_of_an_older_version():
    run = Run()
    run.score(5, BASE)
    run.score(10, moved(BASE, 0.2))
    run.serve(5, moved(moved(BASE, 0.2), 0.01))  # the weights of 11 already, nearest to those of 10
    assert accused_of(run.status()) == ("wrong_weights", 10, {"canary_differs"})
    assert run.serve(11, moved(moved(BASE, 0.2), 0.01)).state == "serving"


def unproven(engines, trainers):
    """Serve version after version, whose trainer never scored what the engine has."""
    run = Run()
    for version, (engine, scored) in enumerate(zip(engines, trainers, strict=True), 300):
        run.serve(version, engine, scored)
    return run


def test_a_temperature_does_not_explain_scores_that_stood_still_while_the_trainers_moved():
    scored = [trainer(version) for version in versions(LOST, LOST + 11 * EVERY)]
    run = unproven([trainer(HELD)] * 2, scored[:2])
    assert (run.status().state, run.kinds()) == ("serving", {"canary_not_comparable", "label_only"})
    run = unproven([trainer(HELD)] * 12, scored)
    assert (run.status().state, run.kinds()) == ("wrong_weights", {"canary_differs", "label_only"})
    noisy = [moved(trainer(HELD), 0.003, seed=seed) for seed in range(12)]
    run = unproven(noisy, scored)
    assert run.status().state == "serving"  # nobody knows its noise
    run = Run()
    for version, (engine, told) in enumerate(zip(noisy, scored, strict=True), 300):
        run.serve(version, engine, told)
        run.answer(run.now + 60, str(version), moved(engine, 0.003, seed=version))
    assert run.status().state == "wrong_weights"


@pytest.mark.parametrize("temperature", [0.7, 1.5])
@pytest.mark.parametrize("noise", [0.0, 0.005])
def test_a_trainer_at_another_temperature_whose_engine_follows_accuses_nobody(temperature, noise):
    run, rng, mu = Run(), np.random.default_rng(1), BASE
    for version in range(3 * CANARY_VERSIONS):
        mu = mu + rng.normal(0, 0.01, len(mu))
        run.serve(version, moved(mu, noise, seed=version), mu / temperature + 0.8)
        run.answer(run.now + 60, str(version), moved(mu, noise, seed=1000 + version))
        assert (run.status().state, run.kinds()) == ("serving", {"canary_not_comparable"}), version


@pytest.mark.parametrize("noise", [0.0, 0.005, 0.02])
def test_a_learning_rate_of_zero_at_another_temperature_accuses_nobody_whatever_the_trainers_own_noise(noise):
    run = Run()
    for version in range(2 * CANARY_VERSIONS):
        run.serve(version, BASE, moved(BASE / 0.7 + 0.8, noise, seed=version))
        assert run.status().state == "serving", version
    run.serve(200, BASE)
    assert run.status().state == "serving"


def test_an_accusation_by_chance_at_a_learning_rate_of_zero_ends_with_the_next_version():
    run = Run()
    accused = [run.serve(v, BASE, moved(BASE, 0.005, seed=v)).state != "serving" for v in range(2 * CANARY_VERSIONS)]
    assert sum(accused) == 1  # one of these seeds leans so
    assert not accused[-1]
    assert run.memories["a"].canary.proof is None


def test_a_learning_rate_that_falls_to_zero_does_not_clear_an_engine_left_behind():
    run = stuck()
    for version in range(LAST + 1, LAST + 2 * CANARY_VERSIONS):
        assert accused_of(run.serve(version, trainer(HELD), trainer(LAST))) == AT_HELD


def test_what_is_remembered_does_not_grow_with_the_versions():
    canary = stuck().memories["a"].canary
    assert canary.proof is not None
    assert canary.proof.scores.version == HELD
    assert canary.standstill is not None
    assert canary.standstill.versions == 1 + len(versions())
    longer = stuck(LAST + 50 * EVERY).memories["a"].canary
    assert longer.proof is not None
    assert longer.proof.logprobs == canary.proof.logprobs
    assert replace(longer.standstill, versions=0) == replace(canary.standstill, versions=0)
