"""The simulation that the forecast is checked against is itself right."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from satwatch.sat import version_lag
from tests.unit.sat.rollout_simulation import Simulation, cycling, lognormal_lengths, token_lags


def small(**changed):
    given = {
        "concurrency": 7,
        "seconds_per_token": 0.5,
        "lengths": lognormal_lengths(20.0, 1.5, seed=3),
        "queue_capacity": 5,
        "batch_responses": 6,
        "train_seconds": 8.0,
    }
    return Simulation(**{**given, **changed})


def test_one_slot_without_a_queue_by_hand():
    """Version 1 comes at 7, while the second response is generated; the third waits in its slot until 12."""
    outcome = small(
        concurrency=1,
        seconds_per_token=1.0,
        lengths=cycling([3, 5, 3]),
        queue_capacity=0,
        batch_responses=1,
        train_seconds=4.0,
    ).run(steps=3)

    assert outcome.step_starts == [3.0, 8.0, 12.0]
    assert outcome.published.tolist() == [7.0, 12.0]
    assert [(r.started, r.finished, r.slot_freed, r.taken) for r in outcome.responses] == [
        (0.0, 3.0, 3.0, 3.0),
        (3.0, 8.0, 8.0, 8.0),
        (8.0, 11.0, 12.0, 12.0),
    ]
    lags = token_lags(outcome, first_step=0)
    assert lags.generation.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0]
    assert lags.queue.tolist() == [0] * 8 + [1] * 3


def test_a_queue_frees_the_slot_by_hand():
    """Two slots in step: both finish at 2, 4, 6, ...; a step of two lasts 5, so the queue of three fills."""
    outcome = small(
        concurrency=2,
        seconds_per_token=1.0,
        lengths=cycling([2]),
        queue_capacity=3,
        batch_responses=2,
        train_seconds=5.0,
    ).run(steps=3)

    assert outcome.step_starts == [2.0, 7.0, 12.0]
    third_batch = outcome.responses[4:]
    # One of those that ended at 6 and found its queue full at first: three were in it from 4 and 6.
    assert [(r.finished, r.slot_freed) for r in outcome.responses[2:]] == [
        (4.0, 4.0),
        (4.0, 4.0),
        (6.0, 6.0),
        (6.0, 7.0),
    ]
    assert [r.taken for r in third_batch] == [12.0, 12.0]
    assert outcome.longest_queue == 3


def test_a_versions_first_token_waits_for_the_sync():
    settings = {"concurrency": 1, "seconds_per_token": 1.0, "queue_capacity": 0, "batch_responses": 1}
    outcome = small(**settings, lengths=cycling([3, 5, 3]), train_seconds=4.0, sync_seconds=0.5).run(steps=2)

    assert outcome.token_versions(outcome.responses[1]).tolist() == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("queue_capacity", [0, 5, 40])
@pytest.mark.parametrize("train_seconds", [2.0, 8.0, 40.0])
def test_nothing_is_lost_and_nothing_overtakes(queue_capacity: int, train_seconds: float):
    simulation = small(queue_capacity=queue_capacity, train_seconds=train_seconds)
    outcome = simulation.run(steps=200)
    responses = outcome.responses

    assert set(Counter(response.step for response in responses).values()) == {6}
    ends = [response.finished for response in responses]
    assert ends == sorted(ends)
    assert all(r.started < r.finished <= r.slot_freed <= r.taken for r in responses)
    assert [outcome.step_starts[r.step] for r in responses] == [r.taken for r in responses]
    waiting = len(simulation.queue) + len(simulation.held)
    assert simulation.begun == len(responses) + waiting + len(simulation.active) + len(simulation.collected)
    assert len(simulation.active) + len(simulation.held) == 7
    assert outcome.longest_queue <= queue_capacity


@pytest.mark.parametrize("queue_capacity", [0, 5])
def test_no_moment_has_more_responses_than_slots_or_places(queue_capacity: int):
    outcome = small(queue_capacity=queue_capacity, train_seconds=20.0).run(steps=100)

    for at in np.linspace(0, outcome.ended, 997):
        in_slots = sum(r.started <= at < r.slot_freed for r in outcome.responses)
        # What is freed at a step's start goes to the trainer at once, or to the place of one that did.
        assert in_slots <= 7
    for publish in outcome.published:
        just_before = publish - 1e-9
        queued = sum(r.slot_freed <= just_before < r.taken for r in outcome.responses)
        assert queued <= queue_capacity


def test_a_slot_is_used_again_the_moment_it_is_free():
    outcome = small().run(steps=100)

    freed = Counter(r.slot_freed for r in outcome.responses)
    started = Counter(r.started for r in outcome.responses)
    ready = {at for at in started if at > 0}
    assert ready <= set(freed)
    assert all(started[at] <= freed[at] for at in ready)


def test_versions_and_lags_token_by_token():
    outcome = small(train_seconds=4.0).run(steps=60)
    generation, queue = Counter(), Counter()
    for response in outcome.responses:
        moments = [response.started + 0.5 * (i + 1) for i in range(response.length)]
        versions = [sum(publish <= at for publish in outcome.published) for at in moments]
        assert versions == outcome.token_versions(response).tolist()
        generation.update(versions[-1] - version for version in versions)
        queue[response.step - versions[-1]] += response.length
    lags = token_lags(outcome, first_step=0)

    assert Counter(lags.generation.tolist()) == generation
    assert Counter(lags.queue.tolist()) == queue
    assert len(generation) > 3


def test_the_sidecar_counts_the_same_lags():
    """What a trainer sends of a simulated batch, counted as the sidecar counts it."""
    outcome = small(train_seconds=4.0).run(steps=40)
    lags = token_lags(outcome, first_step=39)
    batch = [response for response in outcome.responses if response.step == 39]

    counted = version_lag(39, [run for r in batch for run in outcome.runs(r)], [r.length for r in batch])

    assert counted.generation_lags == Counter(lags.generation.tolist())
    assert counted.queue_lags == Counter(lags.queue.tolist())
    assert counted.lags == Counter(lags.total.tolist())


def test_a_seed_is_a_run():
    first, second = (small(lengths=lognormal_lengths(20.0, 1.5, seed=3)).run(steps=50) for _ in range(2))

    assert first.responses == second.responses


def test_lengths_have_the_mean_and_the_spread_asked_for():
    lengths = lognormal_lengths(500.0, 0.8, seed=1)
    drawn = np.array([next(lengths) for _ in range(40_000)])

    assert drawn.mean() == pytest.approx(500, rel=0.02)
    assert drawn.std() / drawn.mean() == pytest.approx(0.8, rel=0.05)
