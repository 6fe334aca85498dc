"""The judge of one life: from its beginning, and from where another sidecar has left it."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import replace

import pytest
import torch

from satwatch.alerts import JudgeState, replay
from satwatch.errors import UnavailableError
from satwatch.history import step_point
from satwatch.sat import StepTotals, pack
from satwatch.server.arrivals import Arrivals
from satwatch.server.compute import score
from satwatch.server.judging import NOT_HELD, RESTARTED, LifeJudge, Stored
from satwatch.server.stats import Account
from satwatch.server.steps import StepState
from satwatch.types import BoundsRequest, Event, Rule, TokenBatch

NAN = Event("NanTokens", "critical", "raised", 30.0, "1 of 2 tokens", run="r", life=3, step=4, id=17)


def closed(step, *log_ratio):
    """Return a step of one batch."""
    batch = TokenBatch(pack(torch.tensor(log_ratio or (0.001, -0.002), dtype=torch.float64)))
    scores = score(batch, Rule())
    totals = Account(BoundsRequest("r", batch), batch, scores, scores.reference(), 0).totals
    return StepState(step, totals, 10.0 * step, None, 1, is_closed=True, has_just_closed=True)


def bad(step):
    return closed(step, float("nan"), 0.001)


def point(state, **changed):
    return replace(step_point(state.step, state.totals, at=state.at), **changed)


def stored(*steps, **given):
    return Stored(replay(JudgeState("r"), [point(step) for step in steps]), **given)


def told(events):
    return [(event.alert, event.state, event.step) for event in events]


@pytest.fixture
def past():
    return Future()


def test_a_life_is_judged_from_its_beginning():
    judge = LifeJudge("r")
    assert told(judge.close(bad(0))) == [("NanTokens", "raised", 0)]
    assert judge.close(bad(1)) == ()
    assert [event for step in range(2, 5) for event in told(judge.close(closed(step)))] == [
        ("NanTokens", "resolved", 2)
    ]


def test_what_still_holds_is_not_raised_twice_and_ends_with_its_condition(past):
    judge = LifeJudge("r", [NAN], past)
    past.set_result(stored(closed(3), bad(4)))
    assert judge.tick(60.0) == ()
    assert judge.close(bad(5)) == ()
    events = [event for step in range(6, 9) for event in judge.close(closed(step))]
    assert told(events) == [("NanTokens", "resolved", 6)]


def test_what_holds_no_more_is_resolved(past):
    judge = LifeJudge("r", [NAN], past)
    past.set_result(stored(bad(4), *(closed(step) for step in range(5, 9))))
    (event,) = judge.tick(100.0)
    assert (event.alert, event.state, event.at, event.evidence) == ("NanTokens", "resolved", 100.0, NOT_HELD)
    assert judge.tick(101.0) == ()


def test_steps_wait_for_the_past_and_are_judged_in_their_order(past):
    judge = LifeJudge("r", [NAN], past)
    assert [judge.close(closed(step)) for step in (5, 6)] == [(), ()]
    past.set_result(stored(bad(4)))
    assert told(judge.close(closed(7))) == [("NanTokens", "resolved", 5)]


def test_what_waits_has_a_bound(past):
    judge = LifeJudge("r", (), past)
    for step in range(200):
        judge.close(bad(step))
    past.set_result(stored())
    assert told(judge.tick(9000.0)) == [("NanTokens", "raised", 136)]


def test_a_step_whose_batches_came_before_is_judged_as_it_was_stored(past):
    judge = LifeJudge("r", (), past)
    past.set_result(stored(closed(3), unclosed={4: point(bad(4), is_closed=False)}))
    nothing_here = replace(bad(4), totals=StepTotals.empty())
    assert told(judge.close(nothing_here)) == [("NanTokens", "raised", 4)]
    assert judge.close(replace(nothing_here, step=5)) == ()


def test_a_past_that_can_not_be_read_is_a_beginning(past, caplog):
    judge = LifeJudge("r", [NAN], past)
    past.set_exception(UnavailableError("the history is gone"))
    with caplog.at_level(logging.WARNING):
        (event,) = judge.tick(100.0)
    assert (event.state, event.evidence) == ("resolved", RESTARTED)
    assert "the history is gone" in caplog.text
    assert told(judge.close(bad(5))) == [("NanTokens", "raised", 5)]


def test_alerts_that_nobody_can_look_up_are_resolved():
    (event,) = LifeJudge("r", [NAN]).tick(100.0)
    assert (event.state, event.evidence) == ("resolved", RESTARTED)


def test_a_life_that_ends_before_its_past_is_read_leaves_nothing_raised(past):
    judge = LifeJudge("r", [NAN], past)
    (event,) = judge.end(50.0, "the run has started again")
    assert (event.state, event.evidence) == ("resolved", "the run has started again")
    past.set_result(stored(bad(4)))
    assert (judge.tick(60.0), judge.end(70.0, "again")) == ((), ())


def test_a_life_that_ends_resolves_what_it_took_over_once(past):
    judge = LifeJudge("r", [NAN], past)
    past.set_result(stored(bad(4)))
    judge.tick(60.0)
    assert told(judge.end(70.0, "over")) == [("NanTokens", "resolved", None)]


def test_the_pace_goes_on_and_silence_waits_for_a_batch(past):
    arrivals = Arrivals()
    for step in range(5):
        arrivals = arrivals.hear(1800.0 * step, step)
    judge = LifeJudge("r", (), past)
    past.set_result(stored(arrivals=arrivals))
    assert judge.tick(50_000.0) == ()
    judge.hear(50_000.0, 5)
    assert judge.arrivals.longest_gap == 1800.0
    assert judge.tick(55_400.0) == ()
    assert told(judge.tick(55_401.0)) == [("NoBatches", "raised", None)]
