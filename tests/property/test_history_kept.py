"""Whatever happens to a history, a client that keeps records is answered as one that keeps none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from satwatch.client import HistoryClient
from satwatch.history import EngineSeen, EventSeen, Limits, Recorder, VersionSeen, open_store
from satwatch.history.retention import Retention
from satwatch.server.history_server import serving_history
from satwatch.types import (
    BatchesQuery,
    EngineRecord,
    EnginesQuery,
    EngineStatus,
    Event,
    EventsQuery,
    RunsQuery,
    StepsQuery,
    VersionsQuery,
)
from tests.unit.history.making import batch_seen, merged, opened, same, seen

STEPS = st.integers(-3, 40)
ALERT = Event("NanTokens", "critical", "raised", 1005.0, "2 NaN tokens", value=2.0)

happenings = st.one_of(
    st.tuples(st.just("step"), STEPS, st.integers(1, 3), st.booleans()),
    st.tuples(st.just("batch"), STEPS, st.integers(0, 1), st.integers(0, 2)),
    st.tuples(st.just("version"), st.integers(0, 9)),
    st.tuples(st.just("alert"), st.sampled_from(["raised", "resolved"]), st.integers(0, 9)),
    st.tuples(st.just("engine"), st.integers(1000, 1009), st.integers(0, 3)),
    st.tuples(st.just("retention"), st.integers(1, 20)),
    st.tuples(st.just("again")),
    st.tuples(st.just("closed"), st.booleans()),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    store = open_store(str(tmp_path_factory.mktemp("kept") / "h.sqlite"))
    recorder = Recorder(store, commit_seconds=0.001)
    closed = set()
    with (
        serving_history(store, lambda life: life.life not in closed) as address,
        HistoryClient(address, 60.0, keep=60) as keeping,  # few, so that some go
        HistoryClient(address, 60.0) as fresh,
    ):
        yield store, recorder, closed, keeping, fresh
    assert recorder.close(60)
    store.close()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(happenings, min_size=1, max_size=4), min_size=2, max_size=6))
def test_what_is_kept_is_never_what_is_shown_unless_it_is_stored(served, told):
    store, recorder, _, keeping, fresh = served
    run = f"r{len(store.runs())}"
    recorder.put(opened(run, run))
    for group in told:
        for what, *how in group:
            happen(served, run, what, how)
        assert recorder.flush(60)
        for query in queries(run):
            assert same(tuple(query.ask(keeping)), tuple(query.ask(fresh)))


def happen(served, run, what, how):
    store, recorder, closed, _, _ = served
    if what == "step":
        step, batches, is_closed = how
        recorder.put(seen(step, merged([step] * batches), run, is_closed=is_closed))
    elif what == "batch":
        step, rank, microbatch = how
        recorder.put(batch_seen(step, rank, microbatch, run, at=1000.0 + len(store.runs())))
    elif what == "version":
        recorder.put(VersionSeen(run, how[0], 1000.0 - how[0]))
    elif what == "alert":
        recorder.put(EventSeen(run, replace(ALERT, state=how[0], run=run, step=how[1])))
    elif what == "engine":
        at, version = how
        status = EngineStatus("e", "serving", "", version_served=version)
        recorder.put(EngineSeen(EngineRecord(float(at), status, run)))
    elif what == "retention":
        assert recorder.flush(60)
        limits = Limits(max_steps=how[0], max_batch_steps=1, max_events=2, max_engine_records=2)
        while Retention(limits).remove_some(store):
            pass
    elif what == "again":
        recorder.put(opened(run, run, f"another {len(store.runs())}"))
    else:
        life = store.runs()[0].life
        (closed.add if how[0] else closed.discard)(life)


def queries(run):
    return (
        RunsQuery(),
        StepsQuery(run),
        StepsQuery(run, max_points=4),
        StepsQuery(run, first_step=3, last_step=20, max_points=7),
        BatchesQuery(run, 3),
        VersionsQuery(run, limit=5),
        EventsQuery(run),
        EventsQuery(run, only_active=True),
        EventsQuery(),
        EnginesQuery(run, limit=5),
        EnginesQuery(since=1003.0, until=1007.0),
    )
