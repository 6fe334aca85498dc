"""A run that has ended: what was amiss then is what its verdict is about, whatever was resolved or raised since."""

from __future__ import annotations

import base64
import re
from dataclasses import replace

import pytest

from satwatch._dashboard.ending import PARTING_SECONDS, active_at_end
from satwatch._dashboard.selection import find
from satwatch._dashboard.sparkline import sparkline
from satwatch.types import Event
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
        over = replace(find(history.runs(), RUN), is_open=False, last_at=ENDED)
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


def test_the_verdict_names_the_engine_that_lied_to_the_end(monkeypatch, ended):
    app = show(monkeypatch, ended(DRIFT, LIES, GONE, active=[DRIFT]))

    said = app.error[0].value.replace("\\", "")
    assert "other weights than it says" in said
    assert "labelled 40" in said
    assert "First seen at step 44, version 40." in said
    assert app.button(key="alerts").label == "2 active alerts at the end"
    assert app.button(key="first tokens").label == "Worst tokens of step 44"


def test_a_warning_that_was_left_is_said_before_the_end_is(monkeypatch, ended):
    app = show(monkeypatch, ended(DRIFT, active=[DRIFT]), "alerts")

    said = app.warning[0].value.replace("\\", "")
    assert said.startswith("**Engine and trainer come apart slowly. Ended at ")
    assert "First seen at step 20, version 20." in said
    assert app.subheader[0].value == "Active at the end: 1"
    assert "active at the end" in text(app)


def test_a_run_that_ended_well_says_so(monkeypatch, ended):
    app = show(monkeypatch, ended(DRIFT, resolved(DRIFT, ENDED - 200.0, 30)))

    assert app.info[0].value.startswith("**Ended at ")
    assert "No alert was active at the end" in app.info[0].value
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
