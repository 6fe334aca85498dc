"""Steps, written by a recorder and asked for at any level, in SQLite and in PostgreSQL."""

from __future__ import annotations

import random

import pytest

from satwatch.errors import ConfigError, UnknownRunError
from satwatch.types import History
from tests.unit.history.making import merged, opened, same, seen, shows, totals_of


def blocks(steps, level):
    """Steps by the block of a level that holds them."""
    found = {}
    for step in sorted(steps):
        found.setdefault(step >> 2 * level, []).append(step)
    return list(found.values())


def check(store, steps, first=None, last=None, max_points=500):
    """Compare an answer with the merged steps of the finest level that fits."""
    inside = [s for s in steps if (first is None or s >= first) and (last is None or s <= last)]
    points = store.steps("r", first_step=first, last_step=last, max_points=max_points)
    level = next(level for level in range(40) if len(blocks(inside, level)) <= max_points)
    edges = {step >> 2 * level for step in inside}
    wanted = blocks([step for step in steps if step >> 2 * level in edges], level)
    assert len(points) <= max_points
    assert [(p.first_step, p.last_step) for p in points] == [(min(b), max(b)) for b in wanted]
    for point, block in zip(points, wanted, strict=True):
        shows(point, block)


def test_a_store_is_a_history(write, url):
    assert isinstance(write(url).store, History)


def test_a_step_is_shown_as_it_was_told(write, url):
    writing = write(url)
    writing.put(opened(), seen(7, at=1234.5, policy_version=3, ranks=2, is_closed=False))
    (point,) = writing.store.steps("r")
    totals = totals_of(7)
    assert (point.life, point.first_step, point.last_step, point.steps) == (1, 7, 7, 1)
    assert (point.at, point.is_closed, point.ranks, point.batches, point.policy_version) == (1234.5, False, 2, 1, 3)
    assert same(dict(point.values), totals.values())
    assert point.heat == totals.heat()
    assert point.versions == {7: 30, 5: 10}
    assert point.layer_flip_rates == totals.layer_flip_rates()


def test_the_newest_state_of_a_step_stands(write, url):
    writing = write(url)
    writing.put(opened(), seen(1, is_closed=False, ranks=1))
    writing.put(seen(1, merged([1, 2])))
    (point,) = writing.store.steps("r")
    assert (point.batches, point.is_closed, point.ranks) == (2, True, 2)
    (run,) = writing.store.runs()
    assert (run.steps, run.batches, run.tokens, run.stored_step) == (1, 2, 100, 1)


def test_merged_neighbours_are_the_merge_of_their_steps(write, url):
    writing = write(url)
    writing.put(opened(), *(seen(step) for step in range(133)))
    for max_points in (1, 2, 3, 7, 10, 33, 64, 500):
        check(writing.store, range(133), max_points=max_points)


def test_each_step_on_its_own_and_all_at_once_is_the_same_history(write, url):
    writing = write(url)
    writing.put(opened())
    for step in range(70):
        writing.put(seen(step, is_closed=False))
        if step % 9 == 0:
            check(writing.store, range(step + 1), max_points=6)
    check(writing.store, range(70), max_points=6)


def test_ranges(write, url):
    writing = write(url)
    writing.put(opened(), *(seen(step) for step in range(100)))
    for first, last, points in [(20, 39, 500), (20, 39, 5), (13, 14, 1), (90, 99, 3), (95, 400, 2), (-7, 3, 2)]:
        check(writing.store, range(100), first, last, points)
    for first, last in [(100, 200), (-9, -1), (50, 40)]:
        assert writing.store.steps("r", first_step=first, last_step=last) == []


@pytest.mark.parametrize("seed", range(3))
def test_sparse_steps_in_any_order_told_several_times(write, url, seed):
    rng = random.Random(seed)
    steps = sorted(
        {rng.choice([1, 10, 1000, 2**53]) * rng.randint(-1, 30) // 30 + rng.randint(0, 9) for _ in range(60)}
    )
    order = steps[:]
    rng.shuffle(order)
    writing = write(url)
    writing.put(opened())
    for start in range(0, len(order), 9):
        writing.put(*(seen(step, totals_of(0)) for step in order[start : start + 9]))  # replaced below
    for start in range(0, len(order), 13):
        writing.put(*(seen(step) for step in order[start : start + 13]))
    for max_points in (500, 20, 9, 4, 2):
        check(writing.store, steps, max_points=max_points)
    middle = steps[len(steps) // 2]
    check(writing.store, steps, first=middle, max_points=5)
    check(writing.store, steps, last=middle, max_points=5)


def test_steps_far_apart_cost_no_sum_above_them(write, url):
    writing = write(url)
    steps = [k * 10**6 for k in range(20)]
    writing.put(opened(), *(seen(step) for step in steps))
    check(writing.store, steps, max_points=7)
    with writing.store.snapshot() as connection:
        rows = connection.exec_driver_sql("SELECT count(*), count(totals) FROM satwatch_steps").one()
    assert rows[1] < 20 + 20 / 3 + 2 < rows[0]


def test_steps_on_both_sides_of_0_in_one_point(write, url):
    writing = write(url)
    writing.put(opened(), *(seen(step) for step in (-3, -1, 0, 5)))
    (point,) = writing.store.steps("r", max_points=1)
    shows(point, [-3, -1, 0, 5])


def test_a_late_step_changes_the_blocks_above_it(write, url):
    writing = write(url)
    writing.put(opened(), *(seen(step) for step in range(100) if step not in (17, 18)))
    before = writing.store.steps("r", max_points=10)
    writing.put(seen(17), seen(18))
    check(writing.store, range(100), max_points=10)
    assert before[1].steps == writing.store.steps("r", max_points=10)[1].steps - 2


def test_a_run_without_steps_has_none(write, url):
    writing = write(url)
    writing.put(opened())
    assert writing.store.steps("r") == []
    (run,) = writing.store.runs()
    assert (run.steps, run.first_step, run.last_step, run.stored_step) == (0, None, None, None)


def test_what_is_not_kept_is_refused(write, url):
    writing = write(url)
    writing.put(opened(), seen(1))
    with pytest.raises(UnknownRunError, match="'other'"):
        writing.store.steps("other")
    writing.put(opened("other", run="q"), opened("again", incarnation="ii"))
    with pytest.raises(UnknownRunError, match=r"^run: got 'r', life 9, required one of its lives: 3, 1$"):
        writing.store.batches("r", 1, life=9)
    with pytest.raises(UnknownRunError, match="got 'other', life 1, required a run of this history"):
        writing.store.batches("other", 1, life=1)
    for ask in (writing.store.versions, writing.store.events, writing.store.engines):
        with pytest.raises(UnknownRunError):
            ask("other")
    with pytest.raises(ConfigError, match="max_points"):
        writing.store.steps("r", max_points=0)


def test_who_only_looks_sees_what_is_committed(write, read, url):
    writing = write(url)
    writing.put(opened(), *(seen(step) for step in range(30)))
    reader = read(url)
    check(reader, range(30), max_points=8)
    writing.put(seen(30))
    check(reader, range(31), max_points=8)
