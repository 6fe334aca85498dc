"""A judge that starts again on what was stored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from satwatch.alerts import JudgeState, observe_step, replay, settle
from tests.unit.alerts.making import judged, step, told

WHY = "it started again"


@pytest.fixture
def points():
    """Forty steps that raise and resolve an alert; the last four raise it again."""
    draw = np.random.default_rng(3)
    ess = [*draw.uniform(0.05, 0.25, 6), *draw.uniform(0.4, 1.0, 30), 0.2, 0.2, 0.2, 0.2]
    return [step(i, ess_ratio=value, log_ratio_abs_mean=0.01) for i, value in enumerate(ess)]


def test_stored_steps_lead_to_where_the_judge_stood(points):
    state, events = judged(points)
    assert {event.state for event in events} == {"raised", "resolved"}
    assert replay(JudgeState("run", 1), points) == state


def test_steps_that_are_open_are_left_out(points):
    is_open = replace(step(40, nan_tokens=5.0), is_closed=False)
    assert replay(JudgeState("run", 1), [*points, is_open]) == judged(points)[0]


def test_what_still_holds_stays_as_it_was_told(points):
    state, events = judged(points)
    active = {event.alert: replace(event, id=n) for n, event in enumerate(events, 1) if event.state == "raised"}
    low = active["EssLow"]
    assert [event.alert for event in state.active] == ["EssLow"]
    state, events = settle(replay(JudgeState("run"), points), [low], 1e4, WHY)
    assert events == ()
    assert state.active == (low,)
    _, events = judged([step(40 + i, ess_ratio=0.9) for i in range(3)], state)
    assert told(events) == [("EssLow", "resolved", 40)]


def test_what_holds_no_more_is_resolved():
    _, (raised,) = judged([step(0, nan_tokens=1.0)])
    state, events = settle(replay(JudgeState("run", 1), [step(i) for i in range(9)]), [raised], 600.0, WHY)
    assert [(e.alert, e.state, e.at, e.evidence, e.life) for e in events] == [("NanTokens", "resolved", 600.0, WHY, 1)]
    assert state.active == ()


def test_what_was_never_told_is_told(points):
    """A sidecar that is killed may not have stored what it had just raised."""
    state, events = settle(replay(JudgeState("run", 1), points), [], 1e4, WHY)
    assert told(events)[0][:2] == ("EssLow", "raised")
    assert events == state.active


def test_each_step_after_the_replay_is_judged_once(points):
    state, _ = settle(replay(JudgeState("run", 1), points[:39]), [], 1e4, WHY)
    assert observe_step(state, points[38]) == (state, ())
    assert state == replace(judged(points[:39])[0])
