"""The recorder: takes records without waiting, and outlives its database."""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
import sqlalchemy as sa

from satwatch.errors import ConfigError
from satwatch.history import EventSeen, LifeOpened, Recorder, RecorderStats, open_store, outage
from satwatch.sat import StepTotals
from satwatch.types import Event
from tests.unit.history.making import batch_seen, merged, opened, seen


class Faulty:
    """A store whose transactions fail when told to: before they begin, or after they were committed."""

    def __init__(self, store):
        self.store = store
        self.url, self.read_only = store.url, False
        self.fault = None
        self.failed = threading.Semaphore(0)  # counts failures
        self.entered, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    @contextmanager
    def transaction(self):
        self.entered.set()
        assert self.gate.wait(60)
        if self.fault == "before":
            self._fail()
        with self.store.transaction() as connection:
            yield connection
        if self.fault == "after":
            self._fail()

    def _fail(self):
        self.failed.release()
        raise sa.exc.OperationalError("COMMIT", {}, sqlite3.OperationalError("disk I/O error"))

    def wait_for_failures(self, count):
        for _ in range(count):
            assert self.failed.acquire(timeout=60)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(outage, "FIRST_RETRY", 0.01)
    monkeypatch.setattr(outage, "LAST_RETRY", 0.02)


@pytest.fixture
def store(tmp_path):
    made = open_store(str(tmp_path / "h.sqlite"))
    yield Faulty(made)
    made.close()


@pytest.fixture
def start(store):
    started = []

    def make(**given):
        recorder = Recorder(store, **{"commit_seconds": 0.01, **given})
        started.append(recorder)
        return recorder

    yield make
    store.fault = None
    store.gate.set()
    for recorder in started:
        assert recorder.close(60)


def ready(recorder, store):
    """Wait until the recorder has nothing to do."""
    assert recorder.flush(60)
    recorder.put(opened())
    assert recorder.flush(60)


def test_at_first_nothing_is_stored_and_nothing_is_wrong(start):
    assert start().stats() == RecorderStats()


def test_what_waits_is_written_at_the_close(start, store):
    recorder = start(commit_seconds=3600.0)
    for record in (opened(), seen(1), batch_seen(1)):
        recorder.put(record)
    assert recorder.close(60)
    assert len(store.store.batches("r", 1)) == 1


def test_records_are_committed_together_and_a_full_group_at_once(start, store):
    recorder = start(commit_seconds=3600.0)
    recorder.put(opened())
    for n in range(999):
        recorder.put(batch_seen(1, microbatch=n))
    deadline = threading.Event()
    while len(store.store.runs()) == 0 or len(store.store.batches("r", 1)) < 999:
        assert not deadline.wait(0.01)  # the test's own time limit ends this
    assert recorder.stats().pending == 0


def test_after_the_close_records_are_dropped_and_counted(start):
    recorder = start()
    assert recorder.close(60)
    recorder.put(seen(1))
    assert recorder.stats().dropped["step"] == 1


def test_a_closed_step_is_told_of_once_it_is_on_disk(start, store):
    recorder = start()
    ready(recorder, store)
    store.gate.clear()
    store.entered.clear()
    recorder.put(seen(1))
    assert store.entered.wait(60)
    assert recorder.stored_step("k") is None
    store.gate.set()
    assert recorder.flush(60)
    assert recorder.stored_step("k") == 1


def test_put_does_not_wait_for_the_database(start, store):
    recorder = start(max_pending=5)
    ready(recorder, store)
    store.gate.clear()
    store.entered.clear()
    recorder.put(seen(0))
    assert store.entered.wait(60)  # the writer hangs in a transaction
    for step in range(1, 100):
        recorder.put(seen(step))
    stats = recorder.stats()
    assert (stats.pending, stats.dropped["step"]) == (5, 95)
    store.gate.set()
    assert recorder.flush(60)
    assert [p.first_step for p in store.store.steps("r")] == [0, 96, 97, 98, 99]


def test_an_outage_is_sat_out_and_said_once(start, store, caplog):
    caplog.set_level(logging.INFO)
    recorder = start(max_pending=3)
    ready(recorder, store)
    store.fault = "before"
    for step in range(5):
        recorder.put(seen(step))
    store.wait_for_failures(4)
    recorder.put(batch_seen(1))
    stats = recorder.stats()
    assert (stats.up, stats.pending, stats.dropped["step"], stats.dropped["batch"]) == (False, 3, 2, 1)
    assert stats.failures >= 3
    assert stats.last_error == "disk I/O error"
    store.fault = None
    assert recorder.flush(60)
    stats = recorder.stats()
    assert (stats.up, stats.pending) == (True, 0)
    assert len(store.store.steps("r")) == 3
    assert recorder.close(60)
    said = [record.getMessage() for record in caplog.records if record.name.startswith("satwatch.history")]
    assert len(said) == 2
    assert "can't be written: disk I/O error" in said[0]
    assert said[1].endswith("Dropped meanwhile: batch 1, step 2.")


def test_a_commit_whose_answer_got_lost_doubles_nothing(start, store):
    recorder = start()
    store.fault = "after"
    recorder.put(opened(incarnation=""))
    recorder.put(seen(1))
    recorder.put(EventSeen("k", Event("A", "info", "raised", 1.0, "e", run="r")))
    store.wait_for_failures(3)
    store.fault = None
    assert recorder.flush(60)
    recorder.put(seen(2))
    assert recorder.flush(60)
    (run,) = store.store.runs()
    assert (run.steps, run.batches, run.tokens) == (2, 2, 100)
    assert len(store.store.events()) == 1
    assert len(store.store.events(only_active=True)) == 1


def test_a_commit_that_got_lost_after_a_restart_doubles_no_earlier_part(tmp_path, start, store):
    first = start()
    for record in (opened(), seen(1)):
        first.put(record)
    assert first.close(60)
    second = start()
    store.fault = "after"
    second.put(opened())
    second.put(seen(1))
    store.wait_for_failures(3)
    store.fault = None
    assert second.flush(60)
    assert store.store.steps("r")[0].batches == 2


def test_two_processes_that_tell_of_one_step_in_turns_double_nothing(start, store):
    first, second = start(), start()
    first.put(opened())
    assert first.flush(60)
    second.put(opened())
    for told in range(1, 4):  # each tells all that came to it so far, again and again
        for recorder, own in ((first, [1, 2, 3]), (second, [11, 12, 13])):
            recorder.put(seen(7, merged(own[:told])))
            assert recorder.flush(60)
    (point,) = store.store.steps("r")
    whole = merged([1, 2, 3, 11, 12, 13])
    assert (point.batches, point.heat) == (6, whole.heat())
    assert point.values == pytest.approx(whole.values(), nan_ok=True)
    (run,) = store.store.runs()
    assert (run.steps, run.batches, run.tokens) == (1, 6, 300)
    # A third process goes on with what is stored, and has nothing of its own when the step's time is up.
    third = start()
    for record in (opened(), seen(7, merged([21]), is_closed=False), seen(8, StepTotals.empty())):
        third.put(record)
    assert third.flush(60)
    assert store.store.steps("r")[0].batches == 7
    fourth = start()
    for record in (opened(), seen(7, StepTotals.empty())):
        fourth.put(record)
    assert fourth.flush(60)
    first.put(seen(7, merged([1, 2, 3, 4])))
    assert first.flush(60)
    assert store.store.steps("r")[0].batches == 8


def test_a_close_in_an_outage_tries_once_more_and_counts_what_is_lost(start, store):
    recorder = start(commit_seconds=3600.0)
    assert recorder.flush(60)
    store.fault = "before"
    for record in (opened(), seen(1), batch_seen(1)):
        recorder.put(record)
    assert recorder.close(60)
    stats = recorder.stats()
    assert (stats.dropped["life"], stats.dropped["step"], stats.dropped["batch"], stats.pending) == (1, 1, 1, 0)


@pytest.mark.parametrize(
    "broken",
    [
        replace(seen(2), totals=None),
        replace(seen(2), step=2**70),
        EventSeen("k", Event("A", "info", "raised", 1.0, "\ud800", run="r")),
        batch_seen(2, values={"x": object()}),
    ],
)
def test_a_record_that_cannot_be_stored_keeps_no_other_from_it(start, store, broken, caplog):
    recorder = start(commit_seconds=3600.0)
    for record in (opened(), seen(1), broken, seen(3), batch_seen(1)):
        recorder.put(record)
    assert recorder.flush(60)
    assert [p.first_step for p in store.store.steps("r")] == [1, 3]
    assert len(store.store.batches("r", 1)) == 1
    stats = recorder.stats()
    assert (sum(stats.dropped.values()), stats.failures, stats.up) == (1, 1, True)
    assert caplog.text.count("can't be stored") == 1


def test_many_threads_put_at_once(start, store):
    recorder = start()
    recorder.put(opened())

    def put(rank):
        for step in range(50):
            recorder.put(batch_seen(step, rank))

    threads = [threading.Thread(target=put, args=(rank,)) for rank in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.flush(60)
    assert recorder.stats().stored["batch"] == 400
    assert [batch.rank for batch in store.store.batches("r", 49)] == list(range(8))


@pytest.mark.parametrize("given", [{"max_pending": 0}, {"commit_seconds": 0.0}, {"commit_seconds": float("nan")}])
def test_numbers_that_cannot_be_meant_are_refused(store, given):
    with pytest.raises(ConfigError, match="max_pending"):
        Recorder(store, **given)


def test_a_life_opened_by_several_ranks_is_one(start, store):
    recorder = start()
    for world_size in (1, 2, 3):
        recorder.put(LifeOpened("k", "r", "", opened().rule, world_size, 1.0))
        assert recorder.flush(60)
    assert [(run.life, run.world_size) for run in store.store.runs()] == [(1, 3)]
