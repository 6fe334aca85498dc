"""Whose scores an engine's are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from satwatch.probe.judge.canary import compare, distance, floats, is_decisive, nearest, stretch
from satwatch.types import Canary, CanaryScores, PackedFloats
from tests.unit.probe.judge.scene import logprobs, moved, packed

TOKENS = 124


def scores(version, values):
    return CanaryScores(Canary.of([range(len(values) + 1)]), version, packed(values))


@pytest.mark.parametrize(
    ("dtype", "data"),
    [
        ("float64", np.array([0.5, -2.0], "<f8").tobytes()),
        ("float32", np.array([0.5, -2.0], "<f4").tobytes()),
        ("float16", np.array([0.5, -2.0], "<f2").tobytes()),
        ("bfloat16", bytes.fromhex("003f00c0")),
    ],
)
def test_every_dtype_is_unpacked(dtype, data):
    assert floats(PackedFloats(dtype, data)).tolist() == [0.5, -2.0]


def test_a_comparison_is_that_of_the_formulas():
    found = compare(scores(5, [-1.0, -2.0, -3.0, -4.0]), [-1.5, -2.0, math.nan, -3.0])
    assert (found.tokens, found.not_finite) == (3, 1)
    assert found.mean == pytest.approx((0.5 + 0 - 1) / 3)
    assert found.abs_mean == pytest.approx(0.5)
    assert found.abs_max == 1
    assert found.rms == pytest.approx(math.sqrt(1.25 / 3))


@pytest.mark.parametrize("values", [[math.nan, math.nan], [-math.inf, math.nan], [1.0], []])
def test_nothing_finite_or_another_length_is_no_comparison(values):
    assert compare(scores(5, [-1.0, -2.0]), values) is None


def test_absurd_log_probs_neither_overflow_nor_warn():
    assert compare(scores(5, [-1e308, -1e308]), [1e308, 1e308]) is None
    assert compare(scores(5, [-1e308, 0.0]), [0.0, 1e308]) is None  # their sum is beyond a float
    assert compare(scores(5, [-1.0, -1e200]), [-1.0, 1e200]).rms == pytest.approx(2e200 / math.sqrt(2))
    assert distance([1e308], [-1e308]) is None


def test_the_nearest_version_is_found_and_those_that_can_t_be_told_from_it_are_named():
    base = logprobs(1)
    versions = [scores(4, logprobs(2)), scores(5, base), scores(6, moved(base, 0.001)), scores(7, logprobs(3))]
    match = nearest(versions, moved(base, 0.01, seed=5))
    assert match.scores.version in (5, 6)
    assert set(match.also) == {5, 6} - {match.scores.version}


def test_of_equal_scores_the_claimed_version_is_preferred():
    base = logprobs(1)
    versions = [scores(4, base), scores(5, base), scores(6, base)]
    assert nearest(versions, base, prefer=5).scores.version == 5
    assert nearest(versions, base).scores.version == 6
    assert nearest(versions, base).also == (4, 5)
    assert nearest([], base) is None


def test_wrong_weights_are_decided_and_right_ones_are_not_accused():
    right, wrong = logprobs(1), logprobs(2)
    engine = moved(right, 0.02)
    assert is_decisive(scores(6, wrong), scores(5, right), engine)
    assert not is_decisive(scores(5, right), scores(6, wrong), engine)


def test_equal_scores_never_accuse():
    base = logprobs(1)
    for engine in (base, moved(base, 0.1), logprobs(2)):
        assert not is_decisive(scores(6, base), scores(5, base), engine)


def test_scores_equal_to_the_last_digit_decide_with_few_tokens():
    claimed, other = scores(6, [-1.0, -2.001]), scores(5, [-1.0, -2.0])
    assert is_decisive(claimed, other, [-1.0, -2.0])
    assert not is_decisive(claimed, other, [-1.0001, -2.0001])


def test_few_tokens_with_noise_do_not_decide():
    right, wrong = logprobs(1, 16), logprobs(2, 16)
    assert not is_decisive(scores(6, wrong), scores(5, right), moved(right, 0.001))
    assert is_decisive(scores(6, np.tile(wrong, 4)), scores(5, np.tile(right, 4)), moved(np.tile(right, 4), 0.001))


def test_one_absurd_token_neither_accuses_nor_hides():
    right = np.asarray(logprobs(1))
    spoiled = right.copy()
    spoiled[7] = -5e5
    far = right.copy()
    far[7] -= 1e6
    # By squares the claimed version would look a million times worse, by one token alone.
    assert not is_decisive(scores(5, right), scores(6, far), moved(spoiled, 0.01))
    assert is_decisive(scores(6, moved(right, 0.3, seed=4)), scores(5, right), moved(spoiled, 0.01))


def test_a_bias_of_the_whole_canary_does_not_accuse():
    right = np.asarray(logprobs(1))
    drifted = right + 0.02  # every log-prob of the older version lay a little higher
    engine = np.asarray(moved(right, 0.01)) + 0.02  # and so does everything that this engine says
    assert not is_decisive(scores(6, right), scores(5, drifted), engine)


def test_a_version_that_is_far_off_by_one_amount_everywhere_does_not_match():
    right = np.asarray(logprobs(1))
    engine = np.asarray(moved(right, 0.05))
    assert not is_decisive(scores(6, right), scores(5, engine - 3.0), engine)


def drift_told(drift, noise, trials=200, tokens=256):
    """Return how often an engine at the older of two versions is told so, and how often a right one is accused."""
    told = accused = 0
    for seed in range(trials):
        chance = np.random.default_rng(seed)
        old = -np.abs(chance.normal(2.0, 2.0, tokens))
        new = old + chance.laplace(0.0, drift, tokens)  # mean abs = drift
        errors = chance.laplace(0.0, noise, tokens)
        older, newer = scores(5, old), scores(6, new)
        told += is_decisive(newer, older, old + errors)
        accused += is_decisive(newer, older, new + errors)
    return told / trials, accused / trials


@pytest.mark.parametrize("noise", [0.006, 0.011])
@pytest.mark.parametrize("drift", [0.0, 1e-5, 0.001, 0.003, 0.01, 0.03])
def test_an_engine_with_the_right_weights_is_not_accused_at_any_drift(drift, noise):
    assert drift_told(drift, noise)[1] <= 0.005


@pytest.mark.parametrize(
    ("tokens", "drift", "noise", "low", "high"),
    [  # the figures of docs/probe/judgement.md
        (256, 0.001, 0.006, 0.0, 0.03),  # a step too small to be told
        (256, 0.003, 0.006, 0.45, 0.7),
        (256, 0.005, 0.006, 0.95, 1.0),
        (256, 0.003, 0.011, 0.0, 0.15),
        (256, 0.005, 0.011, 0.3, 0.6),
        (256, 0.010, 0.011, 0.98, 1.0),
        (124, 0.005, 0.006, 0.45, 0.7),
        (124, 0.010, 0.006, 0.98, 1.0),
        (124, 0.010, 0.011, 0.6, 0.85),
        (124, 0.020, 0.011, 0.98, 1.0),
        (1024, 0.003, 0.006, 0.98, 1.0),
    ],
)
def test_the_drift_that_can_be_told_is_about_the_engines_noise(tokens, drift, noise, low, high):
    assert low <= drift_told(drift, noise, tokens=tokens)[0] <= high


def softmax_scores(temperature, seed, vocabulary=2000):
    """Score random tokens under random logits, at temperature 1 and at another."""
    chance = np.random.default_rng(seed)
    logits = chance.normal(0.0, 2.0, (TOKENS, vocabulary))
    tokens = chance.integers(vocabulary, size=TOKENS)

    def score(z):
        top = z.max(1)
        return z[np.arange(TOKENS), tokens] - top - np.log(np.exp(z - top[:, None]).sum(1))

    return score(logits), score(logits / temperature)


@pytest.mark.parametrize("temperature", [0.5, 0.7, 0.9, 1.1, 1.3, 2.0])
def test_another_temperature_is_recognised(temperature):
    for seed in range(5):
        mu, pi = softmax_scores(temperature, seed)
        found = stretch(scores(5, pi), moved(mu, 0.01))
        assert found is not None
        assert found[0] == pytest.approx(temperature, rel=0.1)


def test_the_same_temperature_with_noise_is_none():
    for noise in (0.0, 0.01, 0.1, 0.5, 2.0):
        for seed in range(5):
            mu, pi = softmax_scores(1.0, seed)
            assert stretch(scores(5, pi), moved(mu, noise)) is None


def test_a_slope_near_one_and_a_loose_fit_are_no_temperature():
    mu = np.asarray(logprobs(1))
    assert stretch(scores(5, mu * 1.03 - 0.5), mu) is None
    assert stretch(scores(5, mu * 1.2 - 0.5), mu) is not None
    assert stretch(scores(5, np.asarray(moved(mu / 2, 1.0)) - 20), mu) is None


def test_wrong_weights_are_not_excused_as_a_temperature():
    for seed in range(20):
        assert stretch(scores(5, logprobs(seed)), logprobs(seed + 100)) is None
        base = logprobs(seed)
        related = scores(5, moved(base, 0.4, seed=seed + 1))
        assert stretch(related, moved(base, 0.4, seed=seed + 2)) is None


@pytest.mark.parametrize("values", [[-1.0] * TOKENS, [math.nan] * TOKENS, [-1.0]])
def test_scores_without_any_spread_have_no_temperature(values):
    assert stretch(scores(5, logprobs(1)), values) is None
