"""Stamps: what has changed in the store has another one, and what has not is not read."""

from __future__ import annotations

import pytest

from satwatch.errors import UnknownRunError
from satwatch.history import EngineSeen, EventSeen, Limits, Recorder, VersionSeen, open_store
from satwatch.history.retention import Retention
from satwatch.types import (
    BatchesQuery,
    EngineRecord,
    EnginesQuery,
    EngineStatus,
    Event,
    EventsQuery,
    RunsQuery,
    StampedHistory,
    StepsQuery,
    VersionsQuery,
)
from tests.unit.history.making import batch_seen, merged, opened, record, same, seen

QUERIES = (
    RunsQuery(),
    StepsQuery("r"),
    StepsQuery("r", max_points=3),
    StepsQuery("r", 1, 4, 9),
    BatchesQuery("r", 3),
    VersionsQuery("r"),
    VersionsQuery("r", limit=2),
    EventsQuery(),
    EventsQuery("r", 1, only_active=True),
    EnginesQuery(),
    EnginesQuery("r", since=1002.0),
)
ALERT = Event("NanTokens", "critical", "raised", 1005.0, "2 NaN tokens", run="r", step=5, value=2.0, threshold=0.0)


@pytest.fixture
def store(tmp_path):
    made = open_store(str(tmp_path / "h.sqlite"))
    record(made, opened(), *map(seen, range(12)), batch_seen(3), batch_seen(3, 1), EventSeen("k", ALERT))
    record(made, opened(), *(VersionSeen("k", version, 1000.0 + version) for version in range(5)))
    record(made, *(EngineSeen(EngineRecord(at, EngineStatus("e", "serving", ""), "r")) for at in (1001.0, 1040.0)))
    yield made
    made.close()


def stamps(store, query):
    return [each.stamp for each in store.stamped(query)]


def changed(store, query, before):
    """Return the records of a query that have another stamp than any had before."""
    return [each.read() for each in store.stamped(query) if each.stamp not in before]


def test_a_store_is_a_stamped_history(store):
    assert isinstance(store, StampedHistory)


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_the_records_are_those_of_the_history_s_own_call(store, query):
    found = tuple(each.read() for each in store.stamped(query))
    assert found
    assert same(found, tuple(query.ask(store)))


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_what_has_not_changed_has_the_stamp_that_it_had(store, query):
    assert stamps(store, query) == stamps(store, query)
    assert len(set(stamps(store, query))) == len(stamps(store, query))


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_the_stamps_of_a_store_opened_again_are_others(store, tmp_path, query):
    again = open_store(str(tmp_path / "h.sqlite"), read_only=True)
    assert not set(stamps(again, query)) & set(stamps(store, query))
    again.close()


def test_a_new_step_is_the_only_new_one(store):
    before = stamps(store, StepsQuery("r"))
    record(store, opened(), seen(12))
    (point,) = changed(store, StepsQuery("r"), before)
    assert point.last_step == 12


@pytest.mark.parametrize(
    "late",
    [
        seen(4, merged([4, 4])),  # a batch
        seen(4, at=2000.0),  # a message without one
        seen(4, is_closed=False),
        seen(4, ranks=3),
        seen(4, policy_version=9),
    ],
    ids=("sums", "at", "is_closed", "ranks", "policy_version"),
)
def test_a_late_message_changes_its_step_and_the_blocks_above(store, late):
    alone, blocks = StepsQuery("r"), StepsQuery("r", max_points=3)
    recorder = Recorder(store, commit_seconds=0.01)
    recorder.put(opened())
    recorder.put(seen(4))
    assert recorder.flush(60)
    before, points = [*stamps(store, alone), *stamps(store, blocks)], store.steps("r", max_points=3)
    recorder.put(late)  # by the same process, so that nothing else of the step changes
    assert recorder.close(60)
    (point,) = changed(store, alone, before)
    assert point == store.steps("r", first_step=4, last_step=4)[0]
    # The fewest ranks of a block's steps stay what they were.
    assert changed(store, blocks, before) == [each for each in store.steps("r", max_points=3) if each not in points]


def test_the_block_of_the_newest_step_changes_with_it(store):
    blocks = StepsQuery("r", max_points=4)
    before = stamps(store, blocks)
    record(store, opened(), seen(11, merged([11, 11])))
    (block,) = changed(store, blocks, before)
    assert (block.last_step, block.batches) == (11, 4 + 2)  # told by another process


def test_steps_that_are_gone_have_no_stamp(store):
    before = stamps(store, StepsQuery("r"))
    while Retention(Limits(max_steps=5)).remove_some(store):
        pass
    assert stamps(store, StepsQuery("r")) == before[-5:]


def test_an_alert_that_is_resolved_is_active_no_more(store):
    assert stamps(store, EventsQuery(only_active=True))
    resolved = Event("NanTokens", "critical", "resolved", 1006.0, "none", run="r", step=6)
    record(store, opened(), EventSeen("k", resolved))
    assert stamps(store, EventsQuery(only_active=True)) == []
    assert [event.state for event in store.events()] == ["raised", "resolved"]


def test_a_life_that_goes_on_is_another_record(store):
    before = stamps(store, RunsQuery())
    record(store, opened(at=5000.0))
    (life,) = changed(store, RunsQuery(), before)
    assert life.last_at == 5000.0


def test_a_run_that_is_not_kept_is_refused(store):
    for query in (StepsQuery("x"), BatchesQuery("x", 1), VersionsQuery("x"), EventsQuery("x"), EnginesQuery("x")):
        with pytest.raises(UnknownRunError, match="got 'x'"):
            store.stamped(query)


def test_what_is_no_query_is_refused(store):
    with pytest.raises(TypeError):
        store.stamped("r")
