"""The pace of a run: the longest time between two batches of its recent past."""

from __future__ import annotations

import pytest

from satwatch.server.arrivals import SLOTS, Arrivals


def heard(batches, arrivals=None):
    arrivals = arrivals or Arrivals()
    for at, step in batches:
        arrivals = arrivals.hear(at, step)
    return arrivals


def run_of(steps, every, microbatches, apart):
    """Return the batches of steps that begin ``every`` so many seconds and have microbatches a little apart."""
    return [(step * every + apart * micro, step) for step in range(steps) for micro in range(microbatches)]


def test_nothing_is_known_before_a_batch_and_no_pace_in_the_first_step():
    assert (Arrivals().last_at, Arrivals().longest_gap) == (None, None)
    first = heard([(5.0, 3), (7.0, 3), (90.0, 3)])
    assert (first.last_at, first.longest_gap) == (90.0, None)
    assert first.hear(91.0, 4).longest_gap == 83.0


@pytest.mark.parametrize("microbatches", [1, 16, 700])
def test_the_pause_between_two_steps_counts_however_many_microbatches_they_have(microbatches):
    arrivals = heard(run_of(6, every=1800.0, microbatches=microbatches, apart=1.0))
    assert arrivals.longest_gap == 1800.0 - (microbatches - 1)
    assert len(arrivals.slots) <= SLOTS


def test_a_pace_that_quickens_is_known_after_an_hour_of_batches():
    slow = run_of(3, every=1800.0, microbatches=1, apart=0.0)
    quick = [(3600.0 + 10.0 * i, 2 + i) for i in range(1, 400)]
    assert heard(slow + quick[:200]).longest_gap == 1800.0
    assert heard(slow + quick).longest_gap == 10.0


def test_the_memory_is_bounded():
    arrivals = heard([(0.7 * i, i) for i in range(20_000)])
    assert len(arrivals.slots) == SLOTS
    assert arrivals.longest_gap == pytest.approx(0.7)


def test_pauses_above_an_hour_are_no_pace():
    assert heard([(0.0, 0), (60.0, 1), (60.0 + 3601.0, 2)]).longest_gap == 60.0
    assert heard([(0.0, 0), (4000.0, 1), (8000.0, 2)]).longest_gap is None


def test_a_clock_that_is_set_back_takes_nothing_away():
    arrivals = heard([(1000.0, 0), (1030.0, 1), (500.0, 2), (510.0, 3)])
    assert (arrivals.last_at, arrivals.longest_gap) == (510.0, 30.0)


def test_a_past_gives_its_pace_and_not_its_last_batch():
    past = heard(run_of(4, every=900.0, microbatches=1, apart=0.0))
    back = Arrivals().after(past)
    assert (back.last_at, back.longest_gap) == (None, 900.0)
    assert heard([(5000.0, 4), (5010.0, 4)]).after(past).longest_gap == 900.0
    # The time that nobody listened is no pace.
    assert back.hear(6000.0, 4).longest_gap == 900.0
