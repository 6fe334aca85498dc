"""The stage: a run that grows while it is looked at, or another one instead."""

from __future__ import annotations

import time

from satwatch.bench.stage import Stage
from satwatch.bench.stored_run import RUN as STORED_RUN
from satwatch.bench.stored_run import stored_run
from satwatch.types import EnginesQuery, RunsQuery, StepsQuery, VersionsQuery
from tests.unit.dashboard.synthetic import RUN, SyntheticHistory

WHOLE = SyntheticHistory("healthy", 30)
STORED = [point.last_step for point in WHOLE.steps(RUN)]


def steps_of(stage: Stage) -> list[int]:
    return [point.last_step for point in stage.steps(RUN)]


def test_a_run_is_shown_whole():
    stage = Stage(WHOLE)
    assert stage.runs() == WHOLE.runs()
    assert steps_of(stage) == STORED
    assert not stage.seems_open(stage.runs()[0])


def test_a_run_grows_step_by_step():
    stage = Stage(SyntheticHistory("empty"))
    assert stage.runs() == []
    stage.show(WHOLE, 10, is_open=True)
    assert {life.last_step for life in stage.runs()} == {10}
    assert stage.seems_open(stage.runs()[0])
    assert steps_of(stage) == [step for step in STORED if step <= 10]
    assert stage.grow() == 11
    assert steps_of(stage) == [step for step in STORED if step <= 11]
    assert [point.last_step for point in stage.steps(RUN, last_step=5)][-1] == 5


def test_it_is_told_when_steps_were_first_asked_for():
    stage = Stage(WHOLE)
    stage.show(WHOLE, 10)
    assert stage.asked_at is None
    before = time.time()
    steps_of(stage)
    asked = stage.asked_at
    assert asked is not None
    assert before <= asked <= time.time()
    steps_of(stage)
    assert stage.asked_at == asked
    stage.grow()
    assert stage.asked_at is None


def test_what_is_unread_is_what_is_shown():
    with stored_run(12, tokens=256) as (store, _):
        stage = Stage(store)
        stage.show(store, 6)
        queries = (RunsQuery(), StepsQuery(STORED_RUN), VersionsQuery(STORED_RUN), EnginesQuery())
        before = {query: stage.stamped(query) for query in queries}
        for query, found in before.items():
            assert [each.read() for each in found] == list(query.ask(stage))
        grown = stage.grow()
        (life,) = stage.stamped(RunsQuery())
        assert life.stamp != before[RunsQuery()][0].stamp
        assert life.read().last_step == grown == 7
        steps = [each.stamp for each in stage.stamped(StepsQuery(STORED_RUN))]
        assert steps[:-1] == [each.stamp for each in before[StepsQuery(STORED_RUN)]]


def test_all_else_is_the_run_s():
    stage = Stage(WHOLE)
    assert stage.versions(RUN) == WHOLE.versions(RUN)
    assert stage.events(RUN) == WHOLE.events(RUN)
    assert stage.engines(RUN) == WHOLE.engines(RUN)
    assert stage.batches(RUN, 3) == WHOLE.batches(RUN, 3)
