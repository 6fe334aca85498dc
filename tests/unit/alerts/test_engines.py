from __future__ import annotations

from dataclasses import replace

import pytest

from satwatch.alerts import JudgeState, observe_engines
from satwatch.types import EngineStatus, Finding
from tests.unit.alerts.making import told

FINE = EngineStatus("a:1", state="serving", version_served=7, version_published=7, version_lag=0)
LIAR = EngineStatus(
    "a:1",
    state="wrong_weights",
    version_served=7,
    reason="its canary is another version's",
    findings=(Finding("canary_older_version", "labelled 7, its scores equal the trainer's version 5"),),
)
GONE = EngineStatus("a:1", state="unknown", reason="connection refused")


def watched(*looks, every=10.0, state=None):
    """Return the state after looks at the engines, one tuple (or one status) a look, and all that happened."""
    state, events = state or JudgeState(), []
    for i, look in enumerate(looks):
        state, more = observe_engines(state, look if isinstance(look, tuple) else (look,), every * i)
        events.extend(more)
    return state, events


def test_wrong_weights_are_told_at_once_with_the_finding():
    _, events = watched(FINE, LIAR, LIAR, FINE)
    assert told(events) == [("EngineWrongWeights", "raised", None), ("EngineWrongWeights", "resolved", None)]
    raised = events[0]
    assert (raised.severity, raised.engine, raised.version, raised.run, raised.life) == ("critical", "a:1", 7, "", None)
    assert raised.evidence == ("a:1, serving version 7: labelled 7, its scores equal the trainer's version 5")
    assert events[1].evidence == "a:1, serving version 7: its state is serving"


def test_wrong_weights_without_a_finding_are_told_with_the_reason():
    bare = EngineStatus("a:1", state="wrong_weights", reason="its canary is another version's")
    assert watched(bare)[1][0].evidence == "a:1: its canary is another version's"


def test_an_engine_that_is_gone_is_told_after_a_minute_and_its_weights_are_not_forgiven():
    _, events = watched(LIAR, *[GONE] * 8, FINE, *[FINE] * 3)
    assert told(events) == [
        ("EngineWrongWeights", "raised", None),
        ("EngineUnknown", "raised", None),
        ("EngineWrongWeights", "resolved", None),
        ("EngineUnknown", "resolved", None),
    ]
    assert [event.at for event in events] == [0.0, 70.0, 90.0, 120.0]
    assert events[1].evidence == "a:1: connection refused"
    assert watched(FINE, *[GONE] * 6, FINE)[1] == []


def lagging(versions, *, left=False):
    findings = (Finding("left_behind", "b:1 serves a newer version"),) if left else ()
    return replace(FINE, state="lagging", version_published=7 + versions, version_lag=versions, findings=findings)


def test_an_engine_far_behind_or_left_behind_is_told_after_two_minutes():
    for status in (lagging(9), lagging(1, left=True)):
        _, events = watched(*[status] * 13)
        assert told(events) == [("EngineBehind", "raised", None)]
        assert (events[0].at, events[0].version) == (120.0, 7)
        assert watched(*[status] * 12)[1] == []
    assert watched(*[lagging(8)] * 60)[1] == []


def test_an_engine_whose_lag_is_unknown_is_not_behind():
    blind = EngineStatus("a:1", state="serving", version_served=4)
    assert watched(*[blind] * 60)[1] == []


@pytest.mark.parametrize(
    ("kind", "is_told"),
    [("label_only", True), ("checksum_differs", True), ("restarted", False)],
)
def test_findings_that_contradict_are_told(kind, is_told):
    odd = EngineStatus("a:1", state="serving", findings=(Finding(kind, "what was seen"),))
    _, events = watched(*[odd] * 13)
    assert told(events) == ([("EngineSuspect", "raised", None)] if is_told else [])
    assert not is_told or events[0].evidence == "a:1: what was seen"


def test_a_canary_that_compares_nothing_is_worth_knowing_and_accuses_nobody():
    blind = EngineStatus("a:1", state="serving", findings=(Finding("canary_not_comparable", "temperature 0.7"),))
    _, events = watched(FINE, blind, *[FINE] * 8)
    assert [(e.alert, e.state, e.at) for e in events] == [
        ("CanaryNotComparable", "raised", 10.0),
        ("CanaryNotComparable", "resolved", 80.0),
    ]
    assert (events[0].severity, events[0].evidence) == ("info", "a:1: temperature 0.7")


def synced(version, seconds):
    return EngineStatus(
        "a:1", state="serving", version_served=version, version_published=version, version_lag=0, sync_seconds=seconds
    )


@pytest.mark.parametrize(("seconds", "is_told"), [(31.0, True), (29.0, False), (None, False)])
def test_a_sync_is_slow_against_the_pace_of_versions(seconds, is_told):
    """A version a minute, looked at every ten seconds."""
    _, events = watched(*[synced(i // 6, seconds) for i in range(90)])
    assert told(events) == ([("SyncSlow", "raised", None)] if is_told else [])
    assert not is_told or events[0].evidence.endswith("weights took 31 s to arrive, and a new version comes every 60 s")


def test_a_sync_within_the_probes_own_error_is_never_slow():
    _, events = watched(*[synced(i, 9.0) for i in range(90)])
    assert events == []


def test_an_engine_that_is_watched_no_more_is_resolved():
    other = EngineStatus("b:1", state="serving")
    state, events = watched((LIAR, other), (other,))
    assert told(events) == [("EngineWrongWeights", "raised", None), ("EngineWrongWeights", "resolved", None)]
    assert events[1].evidence == "a:1 is watched no more"
    assert {engine for _, engine in state.standings} == {"b:1"}
    assert set(state.paces) == {"b:1"}


def test_engines_of_a_run_carry_its_name():
    _, events = watched(LIAR, state=JudgeState("run", 3))
    assert (events[0].run, events[0].life) == ("run", 3)


def test_an_engines_alert_names_the_step_that_was_the_newest():
    state, events = observe_engines(JudgeState("run"), (LIAR,), 0.0, step=41)
    assert events[0].step == 41
    _, events = observe_engines(state, (FINE,), 9.0, step=44)
    assert (events[0].state, events[0].step) == ("resolved", 44)


def test_a_clock_that_is_set_back_delays_no_alert_for_longer_than_it_takes():
    state, _ = watched(FINE, GONE, GONE)
    events = []
    for at in range(-3600, -3500, 10):
        state, more = observe_engines(state, (GONE,), float(at))
        events.extend(more)
    assert [(event.alert, event.at) for event in events] == [("EngineUnknown", -3540.0)]


def test_a_clock_that_is_set_back_makes_no_sync_slow():
    """A version a minute; the clock goes back an hour, and the time between two versions is not negative."""
    state, events = JudgeState(), []
    for i in range(180):
        at = 10.0 * i - (3600.0 if i >= 90 else 0.0)
        state, more = observe_engines(state, (synced(i // 6, 15.0),), at)
        events.extend(more)
    assert events == []


def test_of_a_thousand_engines_the_one_that_lies_is_told():
    fleet = tuple(replace(FINE, engine=f"{i}:1") for i in range(1000))
    state, events = watched(fleet, (*fleet[:-1], replace(LIAR, engine="999:1")), fleet)
    assert [(event.engine, event.state) for event in events] == [("999:1", "raised"), ("999:1", "resolved")]
    assert {engine for _, engine in state.standings} == {status.engine for status in fleet}


def test_engines_are_told_apart():
    other = EngineStatus("b:1", state="wrong_weights", reason="no version's scores")
    _, events = watched((FINE, other), (LIAR, other))
    assert [(event.engine, event.at) for event in events] == [("b:1", 0.0), ("a:1", 10.0)]
