"""What only a server can do: be shared, go away, come back, and refuse a password."""

from __future__ import annotations

import logging
import re
import threading
import time

import pytest

from satwatch.errors import ConfigError
from satwatch.history import EventSeen, open_store
from satwatch.types import Event
from tests.integration.history.server import POSTGRES, PostgresServer, free_port
from tests.unit.history.making import batch_seen, opened, seen, totals_of

pytestmark = pytest.mark.real(POSTGRES, "Debian's package postgresql")

TOTALS = totals_of(0)


@pytest.fixture
def server():
    """A server that a test may stop."""
    started = PostgresServer()
    started.start()
    yield started
    started.remove()


class Load:
    """Puts a step and its batches every few milliseconds, and notes how long the slowest took."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.steps = 0
        self.most_pending = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self):
        while not self._ending.wait(0.002):
            self.recorder.put(seen(self.steps, TOTALS))
            self.recorder.put(batch_seen(self.steps))
            self.most_pending = max(self.most_pending, self.recorder.stats().pending)
            self.steps += 1

    def end(self):
        self._ending.set()
        self._thread.join()


def wait_for(condition):
    while not condition():  # the test's own time limit ends this
        time.sleep(0.01)


def test_a_restart_under_load(server, write, caplog):
    caplog.set_level(logging.INFO, "satwatch.history")
    writing = write(server.new_database(), max_pending=60)
    writing.put(opened())
    load = Load(writing.recorder)
    wait_for(lambda: (writing.recorder.stored_step("k") or 0) > 10)
    server.stop()
    wait_for(lambda: not writing.recorder.stats().up and writing.recorder.stats().dropped["step"] > 5)
    before = load.steps
    wait_for(lambda: load.steps > before + 50)  # taken as ever
    stored = writing.recorder.stored_step("k")
    server.start()
    wait_for(lambda: writing.recorder.stats().up)
    load.end()
    assert writing.recorder.flush(60)
    assert load.most_pending <= 60
    check_after_restart(writing, stored, load.steps)
    writing.close()
    said = [record.getMessage() for record in caplog.records if "history" in record.getMessage()]
    assert [text.startswith("The history is written again") for text in said] == [False, True]
    assert re.search(r"Dropped meanwhile: batch \d+, step \d+\.$", said[1])
    assert "s3cret" not in caplog.text


def check_after_restart(writing, stored, put):
    """All that was acknowledged is there, all that was put is there or counted, and nothing is there twice."""
    stats = writing.recorder.stats()
    points = writing.store.steps("r", max_points=5000)
    kept = [point.first_step for point in points]
    assert kept[: stored + 1] == list(range(stored + 1))
    assert len(kept) == len(set(kept)) == put - stats.dropped["step"]
    assert all(point.batches == 1 for point in points)
    (run,) = writing.store.runs()
    assert (run.steps, run.batches) == (len(kept), len(kept))
    assert (stats.pending, stats.up) == (0, True)


def test_several_sidecars_share_a_database(write, postgresql):
    url = postgresql.new_database()
    a, b = write(url), write(url)
    event = Event("A", "info", "raised", 1.0, "e", run="r")
    for step in range(5):
        a.put(opened("k", run="a"), seen(step), EventSeen("k", event))
        b.put(opened("k", run="b"), seen(step, totals_of(3)), EventSeen("k", event))
    assert [(run.run, run.steps) for run in a.store.runs()] == [("b", 5), ("a", 5)]
    assert a.store.steps("b") == b.store.steps("b")
    ids = [event.id for event in a.store.events()]
    assert ids == sorted(set(ids))


def test_sidecars_that_open_one_life_together_add_up_to_it(write, postgresql):
    url = postgresql.new_database()
    writings = [write(url) for _ in range(4)]
    together = threading.Barrier(len(writings))

    def begin(writing):
        together.wait()
        writing.put(opened())

    threads = [threading.Thread(target=begin, args=(writing,)) for writing in writings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(2):  # each tells its own part of the step, and tells it again
        for writing in writings:
            writing.put(seen(0, TOTALS))
    (run,) = writings[0].store.runs()
    (point,) = writings[0].store.steps("r")
    assert (run.steps, run.batches, point.batches) == (1, 4, 4)


def test_tables_are_made_once_by_sidecars_that_start_together(postgresql):
    url = postgresql.new_database()
    failures = []

    def start():
        try:
            open_store(url).close()
        except ConfigError as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("read_only", [False, True])
def test_a_server_that_is_not_there_is_refused_without_the_password(read_only):
    with pytest.raises(ConfigError, match=r"postgresql://me:\*\*\*@127") as refused:
        open_store(f"postgresql://me:s3cret@127.0.0.1:{free_port()}/x", read_only=read_only)
    assert "s3cret" not in str(refused.value)
    assert "refused" in str(refused.value)


def test_a_database_that_is_not_there_is_named(postgresql):
    with pytest.raises(ConfigError, match='database "missing" does not exist'):
        open_store(postgresql.url("missing"))


def test_a_database_without_a_history_is_refused_to_who_only_looks(postgresql):
    with pytest.raises(ConfigError, match="holds no history"):
        open_store(postgresql.new_database(), read_only=True)


def test_a_store_tells_where_it_is_without_the_password(write, postgresql):
    writing = write(postgresql.new_database())
    assert "s3cret" not in writing.store.url
    assert "satwatch:***@127.0.0.1" in writing.store.url
