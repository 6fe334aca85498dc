"""A whole life, read in slices while it is written."""

from __future__ import annotations

import sqlite3

import pytest

from satwatch.errors import UnknownRunError
from satwatch.history import Recorder, exporting, open_store
from satwatch.sat.codec import decode_totals
from tests.unit.history.making import batch_seen, opened, same, seen, shows, totals_of

STEPS = (-7, -3, 0, 1, 2, 5, 100, 1000)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "SLICE", 3)
    store = open_store(str(tmp_path / "h.sqlite"))
    recorder = Recorder(store, commit_seconds=0.01)
    for record in (opened(), *map(seen, STEPS), opened("other", "other"), seen(4, key="other")):
        recorder.put(record)
    for step in (1, 2, 5):
        for rank in (0, 1):
            for microbatch in (0, 1):
                recorder.put(batch_seen(step, rank, microbatch))
    assert recorder.close(60)
    yield store
    store.close()


def test_each_step_comes_once_with_its_sums(store):
    found = list(store.exported_steps("r"))
    assert [point.last_step for point, _ in found] == list(STEPS)
    for point, blob in found:
        shows(point, [point.last_step])
        assert same(decode_totals(blob), totals_of(point.last_step))


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(None, 0, (-7, -3, 0)), (2, None, (2, 5, 100, 1000)), (-3, 99, (-3, 0, 1, 2, 5)), (6, 99, ()), (9, 1, ())],
)
def test_a_range_has_its_ends(store, first, last, expected):
    found = store.exported_steps("r", first_step=first, last_step=last)
    assert tuple(point.last_step for point, _ in found) == expected


def test_each_batch_comes_once(store):
    found = [(b.step, b.rank, b.microbatch) for b in store.exported_batches("r", first_step=2)]
    assert found == [(step, rank, micro) for step in (2, 5) for rank in (0, 1) for micro in (0, 1)]
    assert list(store.exported_batches("other")) == []


def test_no_state_of_the_database_is_held_between_slices(store, tmp_path):
    found = store.exported_steps("r")
    assert next(found)[0].last_step == STEPS[0]
    with sqlite3.connect(tmp_path / "h.sqlite") as connection:
        connection.execute("DELETE FROM satwatch_steps WHERE level = 0 AND block = 100")
        connection.commit()
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    connection.close()
    assert busy == 0
    assert [point.last_step for point, _ in found] == [step for step in STEPS[1:] if step != 100]


def test_a_life_that_is_removed_meanwhile_does_not_end_as_if_it_were_whole(store, tmp_path):
    found = store.exported_steps("r")
    next(found)
    with sqlite3.connect(tmp_path / "h.sqlite") as connection:
        connection.execute("DELETE FROM satwatch_lives WHERE run = 'r'")
    connection.close()
    with pytest.raises(UnknownRunError, match="'r', life 1"):
        list(found)


def test_an_unknown_run_is_refused(store):
    with pytest.raises(UnknownRunError, match="'nobody'"):
        next(store.exported_steps("nobody"))
