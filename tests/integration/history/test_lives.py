"""Lives of runs: which one is continued, what is added up, and which is told of first."""

from __future__ import annotations

from dataclasses import replace

from satwatch.history import LifeEnded, VersionSeen
from satwatch.types import Rule
from tests.unit.history.making import RULE, merged, opened, seen, shows, totals_of


def test_a_life_is_told_as_it_was_opened(write, url):
    writing = write(url)
    writing.put(opened(at=10.5, world_size=3))
    (run,) = writing.store.runs()
    assert (run.life, run.run, run.incarnation, run.rule, run.world_size) == (1, "r", "i", RULE, 3)
    assert (run.opened_at, run.last_at, run.is_open) == (10.5, 10.5, False)
    assert writing.recorder.life("k") == 1
    assert writing.recorder.life("other") is None


def test_opened_again_it_has_the_new_rule_and_the_old_beginning(write, url):
    writing = write(url)
    writing.put(opened(at=10.0, world_size=1), seen(1, at=30.0))
    writing.put(replace(opened(at=20.0, world_size=4), rule=Rule(quantile=0.95)))
    (run,) = writing.store.runs()
    assert (run.rule.quantile, run.world_size, run.opened_at, run.last_at) == (0.95, 4, 10.0, 30.0)


def test_another_key_is_another_life(write, url):
    writing = write(url)
    writing.put(opened(("r", "a", 0), incarnation="a"), opened(("r", "b", 0), incarnation="b", at=2000.0))
    writing.put(seen(1, key=("r", "a", 0)), seen(1, merged([1, 2]), key=("r", "b", 0), at=2001.0))
    assert [(run.life, run.incarnation) for run in writing.store.runs()] == [(2, "b"), (1, "a")]
    assert writing.store.steps("r")[0].batches == 2  # of the newest
    assert writing.store.steps("r", life=1)[0].batches == 1


def test_a_named_life_goes_on_after_a_restart(write, url):
    first = write(url)
    first.put(opened(), *(seen(step) for step in range(10)))
    first.close()
    second = write(url)
    second.put(opened("another key"), seen(10, key="another key"))
    (run,) = second.store.runs()
    assert (run.steps, run.first_step, run.last_step, run.stored_step, run.batches) == (11, 0, 10, 10, 11)
    assert second.recorder.stored_step("another key") == 10


def test_a_step_begun_before_a_restart_is_the_sum_of_both_parts_however_often_it_is_told(write, url):
    first = write(url)
    first.put(opened(), seen(0), seen(1, is_closed=False, ranks=2, at=1500.0, policy_version=9))
    first.close()
    second = write(url)
    second.put(opened(), seen(1, totals_of(2), is_closed=False, ranks=1, policy_version=8))
    second.put(seen(1, merged([2, 3]), is_closed=False, ranks=1, policy_version=8))
    second.put(seen(1, merged([2, 3, 4]), ranks=1, policy_version=8))
    point = second.store.steps("r")[-1]
    whole = merged([1, 2, 3, 4])
    assert (point.batches, point.heat, point.ranks, point.at) == (4, whole.heat(), 2, 1500.0)
    assert (point.policy_version, point.is_closed) == (9, True)
    second.close()
    third = write(url)
    third.put(opened(), seen(1, totals_of(5)), *(seen(step) for step in range(2, 9)))
    assert third.store.steps("r")[1].batches == 5
    (run,) = third.store.runs()
    assert (run.steps, run.batches, run.tokens) == (9, 13, 13 * 50)
    block = third.store.steps("r", max_points=3)[0]
    assert (block.steps, block.batches) == (4, 8)


def test_a_life_without_a_name_is_another_after_a_restart(write, url):
    for _ in range(2):
        writing = write(url)
        writing.put(opened(incarnation=""), seen(1))
        writing.close()
    last = write(url)
    assert [(run.life, run.steps) for run in last.store.runs()] == [(2, 1), (1, 1)]


def test_a_life_that_was_closed_has_ended_until_it_is_opened_again(write, url):
    writing = write(url)
    writing.put(opened(), seen(1), LifeEnded("k", 1002.0))
    (ended,) = writing.store.runs()
    assert (ended.ended_at, ended.last_at) == (1002.0, 1001.0)
    writing.put(opened(at=1003.0))
    assert writing.store.runs()[0].ended_at is None
    # All of it in one transaction, in the order in which it was told last.
    writing.put(opened(at=1004.0), LifeEnded("k", 1005.0), opened(at=1006.0), LifeEnded("k", 1007.0))
    assert writing.store.runs()[0].ended_at == 1007.0
    writing.put(LifeEnded("k", 1008.0), opened(at=1009.0))
    assert writing.store.runs()[0].ended_at is None


def test_what_was_on_its_way_leaves_the_end_and_what_comes_after_does_not(write, url):
    writing = write(url)
    writing.put(opened(), seen(1), LifeEnded("k", 1002.0))
    writing.put(seen(2, at=1001.5), VersionSeen("k", 3, 1005.0))
    assert writing.store.runs()[0].ended_at == 1002.0
    writing.put(seen(3))  # other ranks of it send to another sidecar, which tells of them here
    assert writing.store.runs()[0].ended_at is None


def test_a_resumed_life_of_the_same_name_in_another_run_is_its_own(write, url):
    writing = write(url)
    writing.put(opened("a", run="a"), opened("b", run="b"), seen(1, key="a"), seen(5, key="b"))
    shows(writing.store.steps("a")[0], [1])
    shows(writing.store.steps("b")[0], [5])


def test_versions_are_kept_once_with_their_first_time(write, url):
    writing = write(url)
    writing.put(opened(), VersionSeen("k", 1, 10.0, None), VersionSeen("k", 2, 20.0, 5))
    writing.put(VersionSeen("k", 2, 25.0, 6), VersionSeen("k", 3, 30.0, 8))
    found = [(v.life, v.version, v.at, v.step) for v in writing.store.versions("r")]
    assert found == [(1, 1, 10.0, None), (1, 2, 20.0, 5), (1, 3, 30.0, 8)]
    assert [v.version for v in writing.store.versions("r", limit=2)] == [2, 3]
    assert writing.store.runs()[0].version_published == 3


def test_stored_step_is_the_last_closed_one(write, url):
    writing = write(url)
    writing.put(opened(), seen(1), seen(2, is_closed=False))
    assert writing.recorder.stored_step("k") == 1
    assert writing.store.runs()[0].stored_step == 1
    writing.put(seen(3), seen(2))
    assert writing.store.runs()[0].stored_step == 3
