"""What the history is told of engines: each change once, and the alerts by run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from satwatch.history import EngineSeen, EventSeen
from satwatch.server.engine_recording import EngineRecording
from satwatch.server.engines import EngineBoard
from satwatch.types import EngineRecord, EngineStatus, Event
from tests.clock import Clock

GOOD = EngineStatus("e1", "serving", "", version_served=3, looks=1)
BAD = replace(GOOD, state="wrong_weights", reason="its canary is of version 1")


@pytest.fixture
def told():
    return []


@pytest.fixture
def recording(told):
    return EngineRecording(told.append)


def alerts(told):
    events = [record.event for record in told if isinstance(record, EventSeen)]
    return [(event.alert, event.state, event.run, event.engine) for event in events]


def test_an_engine_is_told_when_it_changes(recording, told):
    for at, status, run in ((1.0, GOOD, "r"), (2.0, GOOD, "r"), (3.0, replace(GOOD, looks=2), "r"), (4.0, GOOD, "")):
        recording.observe([(run, status)], at)
    assert told == [
        EngineSeen(EngineRecord(1.0, GOOD, "r")),
        EngineSeen(EngineRecord(3.0, replace(GOOD, looks=2), "r")),
        EngineSeen(EngineRecord(4.0, GOOD, "")),
    ]


def test_an_engine_that_comes_back_is_told_again(recording, told):
    for at, engines in ((1.0, [("r", GOOD)]), (2.0, []), (3.0, [("r", GOOD)])):
        recording.observe(engines, at)
    assert [record.record.at for record in told] == [1.0, 3.0]


def test_alerts_have_their_run_and_engine(recording, told):
    other = replace(GOOD, engine="e2")
    recording.observe([("r", BAD), ("", other)], 1.0)
    assert alerts(told) == [("EngineWrongWeights", "raised", "r", "e1")]
    assert next(record.key for record in told if isinstance(record, EventSeen)) is None
    recording.observe([("r", GOOD), ("", other)], 500.0)
    recording.observe([("r", GOOD), ("", other)], 1000.0)
    assert alerts(told)[1:] == [("EngineWrongWeights", "resolved", "r", "e1")]


def test_alerts_name_the_newest_step_of_the_run_that_the_engine_serves(told):
    recording = EngineRecording(told.append, {"r": 41}.get)
    recording.observe([("r", BAD), ("", replace(BAD, engine="e2"))], 1.0)
    events = [record.event for record in told if isinstance(record, EventSeen)]
    assert [(event.engine, event.step, event.version) for event in events] == [("e1", 41, 3), ("e2", None, 3)]


def test_a_clock_that_is_set_back_keeps_nothing_from_being_judged(recording, told):
    gone = EngineStatus("e1", "unknown", "no answer", looks=5)
    recording.observe([("r", gone)], 10_000.0)
    for second in range(100):
        recording.observe([("r", gone)], 1000.0 + second)
    assert alerts(told) == [("EngineUnknown", "raised", "r", "e1")]


LEFT = [
    Event("EngineWrongWeights", "critical", "raised", 0.5, "e1 lies", run="r", engine="e1", version=3, id=8),
    Event("EngineUnknown", "warning", "raised", 0.6, "e2 is gone", run="r", engine="e2", id=9),
]


def test_what_a_sidecar_of_before_has_raised_is_not_raised_twice_and_is_resolved(told):
    recording = EngineRecording(told.append, told=LEFT)
    recording.observe([], 1.0)
    recording.observe([("r", BAD)], 2.0)
    assert alerts(told) == []
    recording.observe([("r", GOOD)], 10.0)
    assert alerts(told) == [("EngineWrongWeights", "resolved", "r", "e1")]


@pytest.mark.parametrize("is_shared", [True, False])
def test_engines_that_nobody_looks_at_again_are_given_up_where_no_other_sidecar_may_have_them(told, is_shared):
    recording = EngineRecording(told.append, told=LEFT, is_shared=is_shared)
    for at in (1.0, 2.0, 3600.0):
        recording.observe([("r", BAD)], at)
    assert alerts(told) == []
    for at in (3601.0, 9000.0):
        recording.observe([("r", BAD)], at)
    assert alerts(told) == ([] if is_shared else [("EngineUnknown", "resolved", "r", "e2")])


def test_time_alone_resolves_what_needs_time(recording, told):
    gone = EngineStatus("e1", "unknown", "no answer", looks=5)
    for second in range(200):
        recording.observe([("r", gone if second < 100 else GOOD)], float(second))
    assert alerts(told) == [("EngineUnknown", "raised", "r", "e1"), ("EngineUnknown", "resolved", "r", "e1")]
    raised, resolved = (record.event.at for record in told if isinstance(record, EventSeen))
    assert raised < 100 < resolved


def test_the_alerts_of_a_run_end_with_its_engines(recording, told):
    recording.observe([("r", BAD)], 1.0)
    recording.observe([], 2.0)
    recording.observe([], 3.0)
    assert alerts(told) == [
        ("EngineWrongWeights", "raised", "r", "e1"),
        ("EngineWrongWeights", "resolved", "r", "e1"),
    ]


def test_the_board_tells_the_run_of_each_engine():
    board = EngineBoard(10, Clock())
    board.report("p", [replace(GOOD, engine="b")], 5.0, "r")
    board.report("q", [replace(GOOD, engine="a")], 5.0)
    assert [(run, status.engine) for run, status in board.serving()] == [("", "a"), ("r", "b")]
    assert [(run, status.engine) for run, status in board.serving("s")] == [("", "a")]
    assert board.statuses() == tuple(status for _, status in board.serving())
