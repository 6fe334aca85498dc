"""A life read in slices, from SQLite and from PostgreSQL."""

from __future__ import annotations

from satwatch.history import exporting
from satwatch.sat.codec import decode_totals
from tests.unit.history.making import batch_seen, opened, same, seen, totals_of


def test_slices_have_all_steps_and_batches_once(write, read, url, monkeypatch):
    monkeypatch.setattr(exporting, "SLICE", 2)
    steps = (-(2**40), -1, 0, 3, 2**40)
    batches = [(step, rank, micro) for step in (0, 3) for rank in (0, 1) for micro in (0, 1)]
    write(url).put(opened(), *map(seen, steps), *(batch_seen(*place) for place in batches))
    store = read(url)

    found = list(store.exported_steps("r"))

    assert [point.last_step for point, _ in found] == list(steps)
    assert all(same(decode_totals(blob), totals_of(point.last_step)) for point, blob in found)
    assert [point.last_step for point, _ in store.exported_steps("r", first_step=-1, last_step=3)] == [-1, 0, 3]
    assert [(b.step, b.rank, b.microbatch) for b in store.exported_batches("r")] == batches
