"""What is kept, and what goes first."""

from __future__ import annotations

from itertools import count as count_up

import pytest

from satwatch.errors import UnknownRunError
from satwatch.history import EngineSeen, EventSeen, Limits, Recorder, VersionSeen, open_store
from satwatch.history.retention import Retention
from satwatch.types import EngineRecord, EngineStatus, Event
from tests.unit.history.making import batch_seen, opened, record, seen, shows


@pytest.fixture
def store(tmp_path):
    made = open_store(str(tmp_path / "h.sqlite"))
    yield made
    made.close()


def shorten(store, **limits):
    """Remove until there is nothing more to remove; return how many slices that took."""
    retention = Retention(Limits(**limits))
    slices = 1
    while retention.remove_some(store):
        slices += 1
    return slices


def count(store, table, where="1 = 1"):
    with store.snapshot() as connection:
        return connection.exec_driver_sql(f"SELECT count(*) FROM satwatch_{table} WHERE {where}").scalar_one()


def test_the_oldest_steps_go_and_the_blocks_above_hold_what_is_left(store):
    record(store, opened(), *map(seen, range(100)))
    shorten(store, max_steps=30)
    (run,) = store.runs()
    assert (run.steps, run.first_step, run.last_step, run.batches) == (30, 70, 99, 100)
    assert [p.first_step for p in store.steps("r")] == list(range(70, 100))
    points = store.steps("r", max_points=3)
    assert [(p.first_step, p.last_step) for p in points] == [(70, 79), (80, 95), (96, 99)]
    for point in points:
        shows(point, range(point.first_step, point.last_step + 1))
    assert count(store, "steps", "level = 1 AND block < 17") == 0


def test_steps_go_a_slice_at_a_time(store):
    record(store, opened(), *(seen(step, seen(0).totals) for step in range(700)))
    assert shorten(store, max_steps=10) == 3
    assert store.runs()[0].steps == 10


def test_a_long_history_may_grow_a_little_beyond_its_limit_before_it_is_cut(store):
    record(store, opened(), *(seen(step, seen(0).totals) for step in range(202)))
    shorten(store, max_steps=200)
    assert store.runs()[0].steps == 202
    record(store, opened(), seen(202))
    shorten(store, max_steps=200)
    assert (store.runs()[0].steps, store.runs()[0].first_step) == (200, 3)


def test_a_late_step_older_than_all_is_the_first_to_go(store):
    record(store, opened(), *map(seen, range(50, 60)))
    record(store, opened(), seen(3))
    shorten(store, max_steps=10)
    assert [p.first_step for p in store.steps("r")] == list(range(50, 60))


def test_batches_of_the_newest_steps_are_kept(store):
    steps = range(0, 200, 10)
    record(store, opened(), *map(seen, steps), *(batch_seen(s, rank) for s in steps for rank in range(3)))
    shorten(store, max_batch_steps=4)
    assert [len(store.batches("r", step)) for step in (150, 160, 190)] == [0, 3, 3]
    assert count(store, "batches") == 12
    assert len(store.steps("r")) == 20


def test_the_life_heard_of_longest_ago_goes_with_all_it_has(store):
    for life in range(4):
        key = f"k{life}"
        at = 1000.0 * (life if life != 1 else 9)  # the second one is heard of last
        record(
            store,
            opened(key, incarnation=key, at=at),
            *(seen(step, key=key, at=at) for step in range(20)),
            batch_seen(1, key=key, at=at),
            VersionSeen(key, 1, at),
            EventSeen(key, Event("A", "info", "raised", at, "e", run="r")),
        )
    shorten(store, max_lives=2)
    assert [run.life for run in store.runs()] == [2, 4]
    for table in ("steps", "batches", "versions", "events"):
        assert count(store, table, "life IN (1, 3)") == 0
        assert count(store, table, "life IN (2, 4)") > 0
    with pytest.raises(UnknownRunError):
        store.steps("r", life=1)


def test_the_number_of_a_life_is_not_given_again(store):
    record(store, opened("a", incarnation="a"), opened("b", incarnation="b", at=2000.0))
    shorten(store, max_lives=1)
    with store.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM satwatch_lives")
    record(store, opened("c", incarnation="c"))
    assert [run.life for run in store.runs()] == [3]


def test_a_life_removed_while_it_is_open_here_begins_again(store):
    recorder = Recorder(store, Limits(max_lives=1), commit_seconds=0.01)
    recorder.put(opened("a", incarnation="", at=1.0))
    assert recorder.flush(60)
    recorder.put(opened("b", incarnation="", at=2.0))
    assert recorder.flush(60)
    while len(store.runs()) > 1:
        shorten(store, max_lives=1)
    recorder.put(seen(5, key="a"))
    assert recorder.close(60)
    assert recorder.life("a") == 3
    assert store.steps("r", life=3)[0].first_step == 5


def test_old_alerts_go_but_for_those_still_active(store):
    raised = [EventSeen(None, Event(f"A{n}", "info", "raised", float(n), "e")) for n in range(10)]
    resolved = [EventSeen(None, Event(f"A{n}", "info", "resolved", 20.0 + n, "e")) for n in range(1, 10)]
    record(store, *raised, *resolved)
    shorten(store, max_events=5)
    left = store.events()
    assert [e.alert for e in left] == ["A0", "A6", "A7", "A8", "A9"]
    assert [e.state for e in left] == ["raised"] + ["resolved"] * 4


def test_old_records_of_engines_go(store):
    record(store, *(EngineSeen(EngineRecord(100.0 * n, EngineStatus("e"))) for n in range(9)))
    shorten(store, max_engine_records=2)
    assert [r.at for r in store.engines()] == [700.0, 800.0]


def test_freed_space_is_used_again(store):
    sizes = []
    for start in range(0, 600, 100):
        record(store, opened(), *(seen(step, seen(0).totals) for step in range(start, start + 100)))
        shorten(store, max_steps=50)
        with store.snapshot() as connection:
            sizes.append(connection.exec_driver_sql("PRAGMA page_count").scalar_one())
    assert max(sizes[2:]) <= 1.1 * max(sizes[:2])


def test_a_recorder_keeps_inside_its_limits(store):
    recorder = Recorder(store, Limits(max_steps=20), commit_seconds=0.01, clock=count_up().__next__)
    recorder.put(opened())
    last = -1
    while last < 100 or store.runs()[0].steps > 60:  # the test's own time limit ends this
        for step in range(last + 1, last + 21):
            recorder.put(seen(step, seen(0).totals))
        assert recorder.flush(60)
        last += 20
    assert recorder.close(60)
    assert store.runs()[0].last_step == last
