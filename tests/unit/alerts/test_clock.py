from __future__ import annotations

from satwatch.alerts import JudgeState, observe_clock
from tests.unit.alerts.making import judged, step, told


def watched(times, last_batch_at=0.0, gap=None, state=None):
    """Return the state after looks at the clock, and all that happened."""
    state, events = state or JudgeState("run", 1), []
    for now in times:
        state, more = observe_clock(state, now, last_batch_at, gap)
        events.extend(more)
    return state, events


def at(events):
    return [(event.alert, event.state, event.at) for event in events]


def test_silence_is_told_after_ten_minutes_at_least_and_given_up_an_hour_later():
    state, _ = judged([step(3, ess_ratio=0.9)])
    _, events = watched((300.0, 600.0, 601.0, 1800.0, 4200.0, 4201.0, 9000.0), gap=20.0, state=state)
    assert at(events) == [("NoBatches", "raised", 601.0), ("NoBatches", "resolved", 4201.0)]
    assert events[0].evidence == "the last batch came 10 minutes ago (limit 10); the last step closed is 3"
    assert (events[0].value, events[0].threshold, events[0].step) == (601.0, 600.0, 3)
    assert events[1].evidence.endswith("; the run is taken to have ended")


def test_a_run_of_long_steps_has_three_of_them():
    _, events = watched((601.0, 1800.0, 5400.0, 5401.0, 9000.0, 9001.0), gap=1800.0)
    assert at(events) == [("NoBatches", "raised", 5401.0), ("NoBatches", "resolved", 9001.0)]
    assert events[0].threshold == 5400.0


def test_a_run_that_has_shown_no_pace_has_an_hour():
    _, events = watched((601.0, 3600.0, 3601.0, 7200.0, 7201.0))
    assert at(events) == [("NoBatches", "raised", 3601.0), ("NoBatches", "resolved", 7201.0)]


def test_a_batch_ends_the_silence():
    state, events = observe_clock(JudgeState("run", 1), 700.0, 0.0, 1.0)
    assert told(events) == [("NoBatches", "raised", None)]
    state, events = observe_clock(state, 720.0, 719.0, 700.0)
    assert told(events) == [("NoBatches", "resolved", None)]
    assert observe_clock(state, 730.0, 719.0, 700.0)[1] == ()


def test_a_run_that_never_had_a_batch_is_not_silent():
    state = JudgeState("run", 1)
    assert observe_clock(state, 1e9, None) == (state, ())


def test_a_clock_that_is_set_back_is_no_silence_and_hides_none_for_long():
    state, events = watched((10_000.0, 6400.0), last_batch_at=9990.0, gap=10.0)
    assert events == []
    _, events = watched((6400.0, 7000.0, 7001.0), last_batch_at=6400.0, gap=10.0, state=state)
    assert at(events) == [("NoBatches", "raised", 7001.0)]


def test_a_step_leaves_silence_alone():
    state, _ = observe_clock(JudgeState("run", 1), 700.0, 0.0, 1.0)
    state, events = judged([step(0, ess_ratio=0.9)], state)
    assert events == []
    assert [event.alert for event in state.active] == ["NoBatches"]
