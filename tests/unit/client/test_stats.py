from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from satwatch.client import ClientStats
from satwatch.client.stats import STEPS_KEPT, Numbering, Tally


def test_every_batch_that_got_bounds_is_sent_and_no_other():
    tally = Tally()
    tally.answered(0.25)
    tally.fell_back("open")
    tally.fell_back("open")
    tally.fell_back("deadline")
    tally.raised("unavailable")
    stats = tally.read()
    assert (stats.bounds_from_sidecar, stats.bounds_from_fallback, stats.raised) == (1, 3, 1)
    assert stats.batches_sent == 4
    assert stats.fallback_kinds == {"open": 2, "deadline": 1, "unavailable": 1}
    assert stats.round_trip_seconds == 0.25
    assert (tally.fallbacks, tally.missed) == (3, 4)


def test_what_was_read_does_not_change():
    tally = Tally()
    before = tally.read()
    tally.fell_back("open")
    assert before == ClientStats()


def test_steps_are_numbered_apart():
    numbering = Numbering()
    assert [numbering.take(step) for step in (1, 1, 2, 1, 2)] == [0, 1, 0, 2, 1]


def test_threads_never_get_the_same_number():
    numbering = Numbering()
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: numbering.take(5), range(2000)))
    assert sorted(numbers) == list(range(2000))


def test_only_the_steps_touched_last_are_remembered():
    numbering = Numbering()
    for step in range(STEPS_KEPT):
        numbering.take(step)
    assert numbering.take(0) == 1
    numbering.take(STEPS_KEPT)
    assert numbering.take(0) == 2, "touched again, so kept"
    assert numbering.take(1) == 0, "the one touched longest ago"
