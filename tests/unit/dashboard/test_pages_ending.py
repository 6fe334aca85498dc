"""A run that has ended: what was amiss then is what its verdict is about, whatever was resolved or raised since."""

from __future__ import annotations

import base64
import re
from dataclasses import replace

import pytest

from satwatch._dashboard.ending import PARTING_SECONDS, active_at_end, episodes_until
from satwatch._dashboard.selection import find
from satwatch._dashboard.sparkline import sparkline
from satwatch._dashboard.views.alerts import engine_since, since_raised
from satwatch.types import EngineRecord, EngineStatus, Event, StepPoint
from tests.unit.dashboard.app import show, text
from tests.unit.dashboard.synthetic import NOW, RUN, SyntheticHistory

ENDED = NOW - 60.0
DRIFT = Event("StalenessDrift", "warning", "raised", ENDED - 300, "mean |d| 0.1 nats", RUN, 3, "", 20, 20, id=1)
LIES = Event("EngineWrongWeights", "critical", "raised", ENDED - 200, "e: labelled 40", RUN, None, "e", 44, 40, id=2)
GONE = replace(LIES, state="resolved", at=ENDED + 0.5, evidence="e is watched no more", step=None, id=3)


def resolved(event, at, step=None):
    return replace(event, state="resolved", at=at, step=step)


@pytest.fixture
def ended(monkeypatch):
    """A history whose newest run has ended, with these alerts."""

    def of(*events, active=()):
        history = SyntheticHistory("healthy", 40)
        over = replace(find(history.runs(), RUN), is_open=False, last_at=ENDED, ended_at=ENDED)
        monkeypatch.setattr(history, "runs", lambda: [over])
        monkeypatch.setattr(history, "engines", lambda run="", **which: [])
        monkeypatch.setattr(
            history, "events", lambda run="", only_active=False, **which: [*(active if only_active else events)]
        )
        return history

    return of


def test_what_was_never_resolved_was_active_at_the_end():
    assert active_at_end([DRIFT], [DRIFT], ENDED) == [DRIFT]


def test_an_engine_that_left_with_its_trainer_has_not_got_well():
    assert active_at_end([DRIFT], [DRIFT, LIES, GONE], ENDED) == [DRIFT, LIES]
    before = replace(GONE, at=ENDED - PARTING_SECONDS / 2)  # it may be the first to leave
    assert active_at_end([], [LIES, before], ENDED) == [LIES]


@pytest.mark.parametrize(
    "end",
    [
        resolved(LIES, ENDED - 1.0, step=90),  # a step showed that it is well
        resolved(LIES, ENDED - 100.0),  # it was taken out long before
    ],
)
def test_what_was_resolved_while_the_run_went_on_was_not_active_at_the_end(end):
    assert active_at_end([], [LIES, end], ENDED) == []


def test_what_an_engine_does_after_the_end_is_not_the_run_s():
    later = replace(LIES, at=ENDED + 5.0)
    assert active_at_end([later], [later], ENDED) == []
    assert active_at_end([], [later, resolved(later, ENDED + 9.0)], ENDED) == []


def test_an_alert_raised_twice_counts_as_it_was_the_last_time():
    again = replace(LIES, at=ENDED - 20.0)
    assert active_at_end([], [LIES, resolved(LIES, ENDED - 150.0, 50), again, GONE], ENDED) == [again]


def test_of_an_ended_run_the_same_alerts_are_unresolved_as_were_active():
    well = resolved(DRIFT, ENDED - 100.0, 30)
    later = replace(LIES, at=ENDED + 5.0)
    found = episodes_until([DRIFT, LIES, well, GONE, later], ENDED)

    assert [(e.raised, e.resolved) for e in found] == [(DRIFT, well), (LIES, None)]
    assert active_at_end([], [DRIFT, LIES, well, GONE, later], ENDED) == [e.raised for e in found if not e.resolved]


def test_the_table_of_alerts_says_what_the_verdict_says(monkeypatch, ended):
    history = ended(DRIFT, LIES, resolved(DRIFT, ENDED - 200.0, 30), GONE)
    app = show(monkeypatch, history, "alerts")

    table = app.dataframe[0].value.set_index("alert")["lasted"]
    assert dict(table) == {"EngineWrongWeights": "active at the end", "StalenessDrift": "100 s"}
    assert app.subheader[0].value == "Active at the end: 1"


def test_evidence_of_the_first_step_is_not_taken_for_the_last_one_s(monkeypatch, ended):
    nan = Event("NanTokens", "critical", "raised", ENDED - 300.0, "6 of 900 tokens NaN at step 20", RUN, 3, step=20)
    last = StepPoint(3, 39, 39, 1, ENDED, True, 1, 2, 39, {"nan_tokens": 31.0})

    assert since_raised(nan, last) == "At step 39: 31 tokens with a NaN log-ratio."
    assert since_raised(nan, replace(last, at=nan.at)) == ""  # the evidence is of this step
    assert since_raised(nan, replace(last, values={})) == since_raised(nan, None) == ""
    history = ended(nan, active=[nan])
    nans = history.steps(RUN)[-2].values["nan_tokens"]
    assert f"At step 38: {nans:.0f} tokens with a NaN log-ratio." in text(show(monkeypatch, history, "alerts")).replace(
        "\\", ""
    )


def test_an_engine_s_alert_says_how_the_engine_was_seen_last():
    def seen(at, reason, engine="e"):
        return EngineRecord(at, EngineStatus(engine, "wrong_weights", reason))

    later = [seen(LIES.at + 9.0, "labelled 88"), seen(LIES.at + 12.0, "other", "f")]
    assert engine_since(LIES, [seen(LIES.at, "labelled 40"), *later]) == "Seen last: labelled 88."
    assert engine_since(LIES, [seen(LIES.at, "labelled 40")]) == ""
    well = EngineRecord(LIES.at + 9.0, EngineStatus("e", "serving"))
    assert engine_since(LIES, [well]) == "Seen last: serving."


def test_the_verdict_names_the_engine_that_lied_to_the_end(monkeypatch, ended):
    app = show(monkeypatch, ended(DRIFT, LIES, GONE, active=[DRIFT]))

    said = app.error[0].value.replace("\\", "")
    assert "other weights than it says" in said
    assert "labelled 40" in said
    assert "First seen at step 44, version 40." in said
    assert app.button(key="alerts").label == "2 active alerts at the end"
    assert app.button(key="first tokens").label == "Worst tokens of step 44"


def test_the_verdict_names_what_showed_before_the_worst_did(monkeypatch, ended):
    earlier = show(monkeypatch, ended(DRIFT, LIES, active=[DRIFT, LIES])).error[0].value.replace("\\", "")
    assert "First seen at step 44, version 40. Before it: StalenessDrift, at step 20." in earlier
    later = show(monkeypatch, ended(LIES, active=[LIES, replace(DRIFT, step=50)])).error[0].value
    assert "Before it" not in later


def test_a_warning_that_was_left_is_said_before_the_end_is(monkeypatch, ended):
    app = show(monkeypatch, ended(DRIFT, active=[DRIFT]), "alerts")

    said = app.warning[0].value.replace("\\", "")
    assert said.startswith("**Engine and trainer stay further apart than they were. Ended at ")
    assert "First seen at step 20, version 20." in said
    assert app.subheader[0].value == "Active at the end: 1"
    assert "active at the end" in text(app)


def test_a_run_that_ended_well_says_so(monkeypatch, ended):
    app = show(monkeypatch, ended(DRIFT, resolved(DRIFT, ENDED - 200.0, 30)))

    assert app.info[0].value.startswith("**Ended at ")
    assert "No alert was active then" in app.info[0].value
    assert not app.warning
    assert not app.error


def line_of(values):
    """The corners of a sparkline."""
    picture = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', sparkline(values))[1]
    points = re.search(r'points="([^"]*)"', base64.b64decode(picture).decode())[1]
    return [tuple(float(part) for part in point.split(",")) for point in points.split()]


def test_a_sparkline_goes_from_the_least_at_the_bottom_to_the_greatest_at_the_top():
    assert line_of([1.0, 3.0, 2.0]) == [(0.0, 28.0), (50.0, 2.0), (100.0, 15.0)]
    assert line_of([5.0, 5.0]) == [(0.0, 15.0), (100.0, 15.0)]
    assert line_of([7.0]) == [(0.0, 15.0)]
    assert line_of([1.0, float("nan"), 2.0]) == [(0.0, 28.0), (100.0, 2.0)]
