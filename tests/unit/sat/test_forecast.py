"""The forecast against its closed forms, against a simulation, and against values that can't be meant.

The tolerances are what was found, rounded up: docs/forecast.md states them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from statistics import NormalDist

import numpy as np
import pytest

from satwatch.errors import ConfigError
from satwatch.sat.forecast import (
    LagForecast,
    Lengths,
    Pipeline,
    best_change,
    forecast_by_ratio,
    forecast_changes,
    forecast_lag,
)
from tests.unit.sat.rollout_simulation import Simulation, lognormal_lengths, token_lags

MEAN = 300.0
RUN = Pipeline(512, 40.0, Lengths.lognormal(4000.0, 1.2), 1024, 512, 60.0)


@dataclass(frozen=True)
class Seen:
    """What a simulated run came to, and the forecast for the lengths that it drew."""

    forecast: LagForecast
    step_seconds: float
    trainer_busy: float
    wait_seconds: float
    generation: float
    queue: float
    total_q99: float

    @property
    def total(self) -> float:
        return self.generation + self.queue

    @property
    def error(self) -> float:
        return self.forecast.version_lag - self.total


@cache
def simulate(
    concurrency: int, queue: int, batch: int, cv: float, ratio: float, sync: float = 0.0, seed: int = 1
) -> Seen:
    """Simulate long enough to settle, then for about 8,000 responses; a token takes a second.

    A heavy tail's second moment is not that of 8,000 draws: the forecast takes the lengths that were drawn.
    """
    pipeline = Pipeline(
        concurrency, 1.0, Lengths.lognormal(MEAN, cv), queue, batch, ratio * batch * MEAN / concurrency, sync
    )
    expected = forecast_lag(pipeline)
    first = int(10 + 3 * expected.steps_to_settle + 10 * MEAN * (1 + cv**2) / expected.step_seconds)
    steps = first + max(100, 8000 // batch)
    simulation = Simulation(
        concurrency, 1.0, lognormal_lengths(MEAN, cv, seed), queue, batch, pipeline.train_seconds, sync
    )
    outcome = simulation.run(steps)
    lags = token_lags(outcome, first)
    measured = [response for response in outcome.responses if response.step >= first]
    step_seconds = (outcome.step_starts[-1] - outcome.step_starts[first]) / (steps - 1 - first)
    return Seen(
        forecast=forecast_lag(replace(pipeline, lengths=Lengths.of([response.length for response in measured]))),
        step_seconds=step_seconds,
        trainer_busy=pipeline.train_seconds / step_seconds,
        wait_seconds=float(np.mean([response.taken - response.finished for response in measured])),
        generation=float(lags.generation.mean()),
        queue=float(lags.queue.mean()),
        total_q99=float(np.quantile(lags.total, 0.99)),
    )


# concurrency, queue, batch: no queue, one batch, four batches, small steps, a small batch with a deep queue.
SETUPS = [(64, 0, 64), (64, 64, 64), (64, 256, 64), (256, 64, 32), (16, 100, 16)]
CVS = [0.5, 1.0, 2.0]
APART = [0.3, 0.8, 1.25, 3.0]


@pytest.mark.parametrize("setup", SETUPS, ids=str)
@pytest.mark.parametrize("cv", CVS)
@pytest.mark.parametrize("ratio", APART)
def test_it_agrees_with_a_simulation(setup: tuple[int, int, int], cv: float, ratio: float):
    seen = simulate(*setup, cv, ratio)

    assert seen.forecast.version_lag == pytest.approx(seen.total, rel=0.1)
    assert seen.forecast.version_lag_generation == pytest.approx(seen.generation, rel=0.03, abs=0.1)
    assert seen.forecast.version_lag_queue == pytest.approx(seen.queue, rel=0.05, abs=0.2)
    assert seen.forecast.step_seconds == pytest.approx(seen.step_seconds, rel=0.07)
    assert seen.forecast.version_lag_q99 == pytest.approx(seen.total_q99, rel=0.07, abs=1)


@pytest.mark.parametrize("setup", SETUPS, ids=str)
@pytest.mark.parametrize("cv", CVS)
@pytest.mark.parametrize("ratio", [0.95, 1.05])
def test_it_is_rougher_where_rollout_and_trainer_are_equally_fast(setup: tuple[int, int, int], cv: float, ratio: float):
    seen = simulate(*setup, cv, ratio)

    assert seen.forecast.regime == "balanced"
    assert seen.forecast.version_lag == pytest.approx(seen.total, rel=0.15, abs=0.1)


@pytest.mark.parametrize("setup", [(64, 0, 64), (64, 64, 64), (16, 32, 16)], ids=str)
@pytest.mark.parametrize("cv", CVS)
def test_at_equal_speed_a_short_queue_is_still_told(setup: tuple[int, int, int], cv: float):
    seen = simulate(*setup, cv, 1.0)

    assert seen.forecast.version_lag == pytest.approx(seen.total, rel=0.1, abs=0.1)


@pytest.mark.parametrize("cv", CVS)
def test_at_equal_speed_a_deep_queue_is_anywhere(cv: float):
    """Four batches deep: runs of one kind differ, and the forecast is right within half the queue."""
    queues = [simulate(64, 256, 64, cv, 1.0, seed=seed).queue for seed in range(1, 5)]
    forecast = simulate(64, 256, 64, cv, 1.0).forecast

    assert max(queues) - min(queues) > 0.3
    assert forecast.version_lag_queue == pytest.approx(np.mean(queues), abs=2.0)


@pytest.mark.parametrize("cv", CVS)
@pytest.mark.parametrize("ratio", [0.3, 1.0, 3.0])
def test_a_batch_that_neither_slots_nor_queue_hold_is_rough_in_shares_of_a_version(cv: float, ratio: float):
    """256 responses from 32 slots and a queue of 32: long ones wait, the model lets any wait."""
    seen = simulate(32, 32, 256, cv, ratio)

    assert seen.total < 0.7
    assert seen.forecast.version_lag == pytest.approx(seen.total, abs=0.25)
    assert seen.forecast.step_seconds == pytest.approx(seen.step_seconds, rel=0.07)


@pytest.mark.parametrize("ratio", [0.5, 2.0])
def test_sync_time_ages_every_token_by_its_share_of_a_step(ratio: float):
    """More where slots are held: they start together, at a publish, so more of their tokens come before the sync."""
    without, late = (simulate(64, 64, 64, 1.0, ratio, sync) for sync in (0.0, 450.0))
    expected = 450 / late.step_seconds

    assert late.queue - without.queue == pytest.approx(expected, abs=0.1)
    assert late.total - without.total == pytest.approx(expected, abs=0.02 if ratio < 1 else 0.2)
    added = late.forecast.version_lag - without.forecast.version_lag
    assert added == pytest.approx(450 / late.forecast.step_seconds, rel=0.01)


@pytest.mark.parametrize(("setup", "ratio"), list(product([(64, 64, 64), (64, 256, 64)], [0.5, 1.25, 3.0])), ids=str)
def test_the_wait_and_the_trainers_share(setup: tuple[int, int, int], ratio: float):
    seen = simulate(*setup, 1.0, ratio)

    assert seen.forecast.wait_seconds == pytest.approx(seen.wait_seconds, rel=0.05)
    assert seen.forecast.trainer_busy_ratio == pytest.approx(seen.trainer_busy, rel=0.02)


def test_a_queue_fills_in_the_steps_that_it_is_said_to():
    """At a ratio of 1.25 a queue of 16 batches fills by a quarter of a batch a step."""
    settings = {"concurrency": 64, "queue_capacity": 1024, "batch_responses": 64, "train_seconds": 375.0}
    forecast = forecast_lag(Pipeline(tokens_per_second=1.0, lengths=Lengths.lognormal(MEAN, 1.0), **settings))
    outcome = Simulation(seconds_per_token=1.0, lengths=lognormal_lengths(MEAN, 1.0, seed=1), **settings).run(200)
    lags = np.zeros(200)
    for response in outcome.responses:
        lags[response.step] += (response.step - outcome.versions_at(response.finished)) / 64

    there = int(np.argmax(lags > 0.9 * forecast.version_lag_queue))
    assert forecast.steps_to_settle == pytest.approx(there, rel=0.25)


def test_behind_a_slow_rollout_it_is_the_closed_form():
    """T = B / lambda; N_PQS = tau E[L^2] / (2 E[L] T); N_IQS = S / T, the share that finishes during training.

    One slot of 512 is another matter than the rest: it just ended a response.
    """
    forecast = forecast_lag(RUN)

    assert forecast.step_seconds == pytest.approx(512 / (512 * 40 / 4000))
    assert forecast.version_lag_generation == pytest.approx(4000 * (1 + 1.2**2) / 2 / 40 / 100, rel=1 / 512)
    assert forecast.version_lag_queue == pytest.approx(60 / 100, abs=1 / 512)
    assert forecast.responses_waiting == pytest.approx(512 / 2, rel=2 / 512)


def test_one_slot_by_hand():
    """Responses of 100 s, batches of 10, training for 130 s.

    A step starts at a response's end: while it trains one response ends, of ten.
    """
    forecast = forecast_lag(Pipeline(1, 1.0, Lengths.lognormal(100.0, 0.0), 10, 10, 130.0))

    assert forecast.step_seconds == pytest.approx(1000, rel=0.01)
    assert forecast.version_lag_queue == pytest.approx(1 / 10, rel=0.01)


def test_before_a_slow_trainer_it_is_littles_law():
    """Always a full queue: Q + C - (B / S) m responses wait, of which B leave every S seconds."""
    forecast = forecast_lag(replace(RUN, train_seconds=400.0))
    waiting = 1024 + 512 - 512 / 400 * 100

    assert forecast.regime == "trainer-limited"
    assert forecast.step_seconds == 400
    assert forecast.responses_waiting == pytest.approx(waiting, rel=0.03)
    assert forecast.wait_seconds == pytest.approx(waiting * 400 / 512, rel=0.03)
    assert forecast.slots_busy_ratio == pytest.approx(0.25)


def test_one_length_for_all_has_a_tail_of_one_step():
    """Responses of 2.5 steps: 3 versions pass for a share of the first tokens, and never 4."""
    lengths = Lengths.lognormal(1000.0, 0.0)

    assert [lengths.passes(count, 400.0) for count in (0, 1, 2, 3, 4)] == pytest.approx([1.0, 0.8, 0.4, 0.05, 0.0])
    assert lengths.passes_from_start(400.0) == pytest.approx((400 * 1 + 400 * 2) / 1000)


def test_a_lognormal_is_its_own_sample():
    lengths = Lengths.lognormal(4000.0, 1.2)
    normal = NormalDist()
    sigma = np.sqrt(np.log1p(1.2**2))
    places = np.array([normal.inv_cdf((i + 0.5) / 40_000) for i in range(40_000)])
    sample = Lengths.of(np.exp(np.log(4000) - sigma**2 / 2 + sigma * places))

    assert sample.mean == pytest.approx(4000, rel=1e-3)
    assert sample.cv == pytest.approx(1.2, rel=0.01)
    for count, tokens in product((1, 2, 5), (500.0, 4000.0, 10_000.0)):
        assert sample.passes(count, tokens) == pytest.approx(lengths.passes(count, tokens), rel=0.03, abs=1e-4)
        assert sample.passes_from_start(tokens) == pytest.approx(lengths.passes_from_start(tokens), rel=0.03)


def test_events_far_apart_or_close_together_are_still_counted():
    """The sum goes on as an integral: close together, where a response began tells nothing."""
    lengths = Lengths.lognormal(4000.0, 3.0)

    assert lengths.passes_from_start(0.5) == pytest.approx(lengths.token_remainder / 0.5, rel=1e-3)
    assert lengths.passes_from_start(1e7) == pytest.approx(0.0, abs=0.2)


def test_what_lowers_the_lag_most_and_what_does_for_nothing():
    changes = forecast_changes(RUN)

    assert [change.name for change in changes][:2] == ["now", "half the concurrency"]
    assert best_change(changes).name == "half the concurrency"
    assert best_change(changes, free=True).name == "batches twice as large, and as long"


def test_no_change_is_best_where_none_lowers_the_lag():
    changes = forecast_changes(RUN)

    assert best_change([changes[0], *(replace(change, forecast=changes[0].forecast) for change in changes[1:])]) is None


def test_the_lag_by_throughput_ratio():
    forecasts = forecast_by_ratio(RUN, (0.5, 1.0, 2.0))

    assert [forecast.throughput_ratio for forecast in forecasts] == pytest.approx([0.5, 1.0, 2.0])
    assert [forecast.regime for forecast in forecasts] == ["rollout-limited", "balanced", "trainer-limited"]
    queues = [forecast.version_lag_queue for forecast in forecasts]
    assert queues == sorted(queues)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("concurrency", 0),
        ("concurrency", 1.5),
        ("queue_capacity", -1),
        ("batch_responses", True),
        ("tokens_per_second", 0.0),
        ("train_seconds", float("nan")),
        ("train_seconds", float("inf")),
        ("sync_seconds", -1.0),
    ],
)
def test_a_run_that_cannot_be_meant_is_refused_by_name(field: str, value: object):
    with pytest.raises(ConfigError, match=f"^{field}: got {value!r}, required "):
        replace(RUN, **{field: value})


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Lengths.lognormal(0.5, 1.0), "length_mean"),
        (lambda: Lengths.lognormal(float("nan"), 1.0), "length_mean"),
        (lambda: Lengths.lognormal(100.0, -0.1), "length_cv"),
        (lambda: Lengths.of([]), "lengths"),
        (lambda: Lengths.of([100, float("nan")]), "lengths"),
        (lambda: Lengths.of([100, 0]), "lengths"),
    ],
)
def test_lengths_that_cannot_be_meant_are_refused_by_name(make, field: str):
    with pytest.raises(ConfigError, match=f"^{field}: got "):
        make()
