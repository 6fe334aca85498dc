"""Laws of the forecast, whatever the run."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satwatch.sat.forecast import Lengths, Pipeline, best_change, forecast_changes, forecast_lag

pipelines = st.builds(
    Pipeline,
    concurrency=st.integers(1, 5000),
    tokens_per_second=st.floats(0.1, 1000),
    lengths=st.builds(Lengths.lognormal, st.floats(1, 1e5), st.floats(0, 3)),
    queue_capacity=st.integers(0, 20000),
    batch_responses=st.integers(1, 5000),
    train_seconds=st.floats(0.01, 1e5),
    sync_seconds=st.floats(0, 100),
)
anything = st.builds(
    Pipeline,
    concurrency=st.integers(1, 10**9),
    tokens_per_second=st.floats(1e-6, 1e9),
    lengths=st.builds(Lengths.lognormal, st.floats(1, 1e9), st.floats(0, 10)),
    queue_capacity=st.integers(0, 10**9),
    batch_responses=st.integers(1, 10**9),
    train_seconds=st.floats(1e-6, 1e9),
    sync_seconds=st.floats(0, 1e9),
)


@given(anything)
def test_every_run_has_a_finite_forecast(pipeline):
    forecast = asdict(forecast_lag(pipeline))
    forecast.pop("regime")

    assert {name: value for name, value in forecast.items() if not 0 <= value < math.inf} == {}


@given(pipelines)
def test_the_parts_add_up_and_no_side_works_more_than_always(pipeline):
    forecast = forecast_lag(pipeline)

    assert forecast.version_lag == forecast.version_lag_generation + forecast.version_lag_queue
    assert forecast.trainer_busy_ratio <= 1
    assert forecast.slots_busy_ratio <= 1
    assert forecast.step_seconds >= pipeline.train_seconds
    # What is trained on was generated: a step lasts as long as all slots need for it, or longer.
    assert forecast.step_seconds >= pipeline.batch_responses / pipeline.responses_per_second * (1 - 1e-3)


@given(pipelines)
def test_a_unit_of_time_means_nothing(pipeline):
    """The same run on a clock of half-seconds."""
    other = replace(
        pipeline,
        tokens_per_second=pipeline.tokens_per_second / 2,
        train_seconds=pipeline.train_seconds * 2,
        sync_seconds=pipeline.sync_seconds * 2,
    )
    here, there = forecast_lag(pipeline), forecast_lag(other)

    assert there.version_lag == pytest.approx(here.version_lag, rel=1e-6)
    assert there.step_seconds == pytest.approx(2 * here.step_seconds, rel=1e-6)
    assert there.regime == here.regime


@given(pipelines, st.integers(1, 20000))
def test_a_longer_queue_never_lowers_the_lag_in_it(pipeline, more):
    longer = replace(pipeline, queue_capacity=pipeline.queue_capacity + more)

    here, there = forecast_lag(pipeline), forecast_lag(longer)

    assert there.version_lag_queue >= here.version_lag_queue * (1 - 1e-3)
    assert there.step_seconds <= here.step_seconds * (1 + 1e-3)


@given(pipelines)
def test_a_rollout_of_no_duration_fills_queue_and_slots_at_each_step(pipeline):
    """Q + C wait at each publish, and a batch of them leaves."""
    whole = pipeline.queue_capacity + pipeline.concurrency
    batch = min(pipeline.batch_responses, whole)
    fast = replace(pipeline, tokens_per_second=1e9, batch_responses=batch, sync_seconds=0.0)

    assert forecast_lag(fast).version_lag_queue == pytest.approx(whole / batch, rel=1e-3)


@given(pipelines)
def test_behind_a_slow_rollout_the_lag_in_the_queue_is_the_trainers_busy_share(pipeline):
    """A rollout far slower than the trainer: a share S / T of the responses finish while it trains."""
    slow = replace(
        pipeline,
        train_seconds=0.1 * pipeline.batch_responses / pipeline.responses_per_second,
        queue_capacity=pipeline.batch_responses,
        sync_seconds=0.0,
    )
    forecast = forecast_lag(slow)

    # One slot of all is at a response's start: that counts where a batch is a few responses.
    slack = 1 + (1 + slow.lengths.cv**2) / 2
    assert forecast.version_lag_queue == pytest.approx(0.1, abs=0.02 + slack / slow.batch_responses)


@given(st.floats(1, 1e5), st.floats(0, 1), st.floats(0.02, 100))
def test_events_at_any_phase_are_the_remainder_over_their_distance(mean, cv, distance):
    lengths, tokens = Lengths.lognormal(mean, cv), mean * distance
    shares = [lengths.passes(count, tokens) for count in range(1, 3001)]

    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(shares))
    assert sum(shares) == pytest.approx(lengths.token_remainder / tokens, rel=1e-3)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=12), st.integers(1, 50))
def test_events_from_the_start_are_counted_token_by_token(lengths, tokens):
    """A fine clock: 64 instants a token stand for its moment."""
    fine = 64
    total = sum(
        ((length * fine - 1) // (tokens * fine)) - (instant // (tokens * fine))
        for length in lengths
        for instant in range(length * fine)
    )
    expected = total / (fine * sum(lengths))

    # An event at the very end of a response falls into none of it.
    assert Lengths.of(lengths).passes_from_start(tokens) == pytest.approx(expected, abs=1e-9)


@given(pipelines)
def test_the_best_change_is_better_and_the_free_one_no_better_than_it(pipeline):
    changes = forecast_changes(pipeline)
    best, free = best_change(changes), best_change(changes, free=True)

    if best is not None:
        assert best.forecast.version_lag < changes[0].forecast.version_lag
        assert all(best.forecast.version_lag <= change.forecast.version_lag for change in changes)
    if free is not None:
        assert best is not None
        assert best.forecast.version_lag <= free.forecast.version_lag < changes[0].forecast.version_lag
        assert free.responses_per_second >= 0.99 * changes[0].responses_per_second
