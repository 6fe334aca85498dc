"""What a question costs follows from what it shows, not from what is stored."""

from __future__ import annotations

import pytest

from satwatch.history import Recorder, open_store, reading
from tests.unit.history.making import opened, seen, totals_of

TOTALS = totals_of(0)
POINTS = 10


@pytest.fixture
def store(tmp_path):
    made = open_store(str(tmp_path / "h.sqlite"))
    yield made
    made.close()


def record(store, steps):
    recorder = Recorder(store, commit_seconds=0.01)
    recorder.put(opened())
    for step in steps:
        recorder.put(seen(step, TOTALS))
    assert recorder.close(60)


def work(store, **asked):
    """Return how many instructions SQLite's machine takes to answer, in tens."""
    ticks = []
    with store.snapshot() as connection:
        record = reading.find(connection, "r", 0)
        raw = connection.connection.driver_connection
        raw.set_progress_handler(lambda: ticks.append(1), 10)
        points = reading.points(connection, record, asked.get("first"), asked.get("last"), POINTS)
        raw.set_progress_handler(None, 0)
    assert 0 < len(points) <= POINTS
    return len(ticks)


def test_eight_times_the_steps_cost_about_as_much(store):
    record(store, range(100))
    few, few_inside = work(store), work(store, first=50, last=58)
    record(store, range(100, 800))
    assert work(store) < 1.6 * few  # another level is tried, and the newest block has more parts
    assert work(store, first=50, last=58) < 1.1 * few_inside


def test_steps_far_apart_cost_as_much_as_steps_in_a_row(store):
    record(store, range(100))
    in_a_row = work(store)
    record(store, (10**6 * step for step in range(1, 100)))
    assert work(store) < 6 * in_a_row  # ten levels more are tried
