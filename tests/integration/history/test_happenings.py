"""Batches, alerts and engines, in SQLite and in PostgreSQL."""

from __future__ import annotations

import math

from satwatch.history import EngineSeen, EventSeen
from satwatch.types import EngineRecord, EngineStatus, Event, Finding
from tests.unit.history.making import batch_seen, opened, same, seen


def event(alert="EssLow", state="raised", at=1.0, run="r", **given):
    return Event(alert, "warning", state, at, f"{alert} {state}", run=run, **given)


def test_batches_come_by_rank_and_microbatch_exactly(write, url):
    writing = write(url)
    told = [batch_seen(3, rank, microbatch) for rank, microbatch in [(1, 0), (0, 11), (0, 2), (0, 2)]]
    writing.put(opened(), *told, batch_seen(4))
    found = writing.store.batches("r", 3)
    assert [(b.life, b.step, b.rank, b.microbatch) for b in found] == [(1, 3, 0, 2), (1, 3, 0, 11), (1, 3, 1, 0)]
    assert found[0].values == {"tokens": 50, "ratio_max": math.inf}
    assert same(found[0].worst, told[0].batch.worst)
    assert writing.store.batches("r", 99) == []


def test_a_batch_told_again_is_the_newest(write, url):
    writing = write(url)
    writing.put(opened(), batch_seen(1))
    writing.put(batch_seen(1, values={"tokens": 9, "kl_k1": math.nan}))
    (batch,) = writing.store.batches("r", 1)
    assert same(dict(batch.values), {"tokens": 9, "kl_k1": math.nan})


def test_alerts_come_oldest_first_with_all_they_said(write, url):
    writing = write(url)
    whole = event(step=-3, version=8, value=math.nan, threshold=0.1, at=12.5)
    writing.put(opened(), EventSeen("k", whole), EventSeen("k", event("HeavyTail", value=math.inf)))
    first, second = writing.store.events("r")
    assert same(first, Event(**{**whole_fields(whole), "life": 1, "id": first.id}))
    assert (second.alert, second.value, second.threshold) == ("HeavyTail", math.inf, None)
    assert 0 < first.id < second.id
    assert [e.id for e in writing.store.events("r", after=first.id)] == [second.id]
    assert [e.id for e in writing.store.events("r", limit=1)] == [second.id]


def whole_fields(one):
    return {name: getattr(one, name) for name in Event.__dataclass_fields__}


def test_an_alert_is_active_until_it_is_resolved(write, url):
    writing = write(url)
    writing.put(opened(), EventSeen("k", event("A")), EventSeen("k", event("B")), EventSeen(None, event("A", run="")))
    assert [(e.alert, e.run) for e in writing.store.events(only_active=True)] == [("A", "r"), ("B", "r"), ("A", "")]
    writing.put(EventSeen("k", event("A", "resolved")))
    assert [(e.alert, e.run) for e in writing.store.events("r", only_active=True)] == [("B", "r"), ("A", "")]
    writing.put(EventSeen("k", event("B", at=2.0)))  # raised again, told once
    assert [(e.alert, e.at) for e in writing.store.events("r", only_active=True, life=1)] == [("A", 1.0), ("B", 2.0)]
    assert len(writing.store.events()) == 5


def test_alerts_of_one_run_one_life_or_all(write, url):
    writing = write(url)
    writing.put(opened("a", run="a"), opened("b", run="b"), opened("c", run="b", incarnation="2"), seen(1, key="c"))
    writing.put(*(EventSeen(key, event(key, run="a" if key == "a" else "b")) for key in "abc"))
    writing.put(EventSeen(None, event("engine", run="", engine="e")))
    assert [e.alert for e in writing.store.events()] == ["a", "b", "c", "engine"]
    assert [e.alert for e in writing.store.events("b")] == ["b", "c", "engine"]
    assert [e.alert for e in writing.store.events("b", life=3)] == ["c", "engine"]


def test_engines_come_oldest_first_as_they_were_known(write, url):
    writing = write(url)
    status = EngineStatus(
        "http://e:1",
        state="wrong_weights",
        reason="the canary differs",
        kind="sglang",
        version_label="7",
        version_served=7,
        queue_seconds=0.25,
        canary_log_ratio_abs_max=math.inf,
        findings=(Finding("canary_differs", "by 2 nats"), Finding("left_behind", "by 3")),
        looks=9,
    )
    writing.put(
        opened(), EngineSeen(EngineRecord(20.0, status, "r")), EngineSeen(EngineRecord(10.0, EngineStatus("f")))
    )
    assert writing.store.engines() == [EngineRecord(10.0, EngineStatus("f")), EngineRecord(20.0, status, "r")]
    assert writing.store.engines(since=15.0) == [EngineRecord(20.0, status, "r")]
    assert writing.store.engines(until=15.0) == [EngineRecord(10.0, EngineStatus("f"))]
    assert writing.store.engines("r", limit=1) == [EngineRecord(20.0, status, "r")]
    writing.put(opened("s", run="s"))
    assert writing.store.engines("s") == [EngineRecord(10.0, EngineStatus("f"))]


def test_engines_that_do_not_change_are_thinned_out(write, url):
    writing = write(url)
    writing.put(*(EngineSeen(EngineRecord(float(at), EngineStatus("e", looks=at))) for at in range(61)))
    assert [record.at for record in writing.store.engines()] == [0.0, 30.0, 60.0]
    stats = writing.recorder.stats()
    assert (stats.stored["engine"], stats.dropped["engine"]) == (3, 0)


def test_counts_of_what_was_stored(write, url):
    writing = write(url)
    writing.put(opened(), seen(1), batch_seen(1), EventSeen("k", event()))
    writing.put(seen(2))
    stats = writing.recorder.stats()
    assert stats.stored == {"life": 1, "step": 2, "batch": 1, "event": 1, "engine": 0, "version": 0}
    assert set(stats.dropped.values()) == {0}
    assert (stats.up, stats.pending, stats.failures, stats.last_error) == (True, 0, 0, "")
    assert stats.write_seconds > 0


def test_records_of_a_life_that_was_never_opened_are_dropped_and_counted(write, url, caplog):
    writing = write(url)
    writing.put(seen(1, key="who"), opened(), seen(2), batch_seen(1, key="who"))
    stats = writing.recorder.stats()
    assert (stats.dropped["step"], stats.dropped["batch"], stats.stored["step"]) == (1, 1, 1)
    writing.close()
    assert caplog.text.count("Records are dropped") == 1
