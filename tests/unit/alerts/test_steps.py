from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from satwatch.alerts import JudgeState, observe_step, resolve_all
from satwatch.alerts.past import KEPT, RECENT, Past, quantile
from satwatch.alerts.thresholds import LAG_SETTLED
from tests.unit.alerts.making import judged, series, step, told

MEAN = "log_ratio_abs_mean"


def test_a_step_change_is_told_on_the_third_step_and_an_ordinary_run_is_not():
    _, events = judged(series(MEAN, (0.010, 0.018, 0.201), first=1))
    assert told(events) == [("StalenessTailSpike", "raised", 3)]
    assert events[0].evidence == (
        "mean |d| 0.201 nats at step 3, version 3: 14.4 times the median 0.014 of the 2 steps before"
    )
    assert (events[0].run, events[0].life, events[0].version, events[0].severity) == ("run", 1, 3, "warning")
    assert (events[0].value, events[0].threshold) == (0.201, pytest.approx(0.07))
    assert judged(series(MEAN, (0.010, 0.018, 0.015)))[1] == []


def test_a_spike_is_not_told_before_two_steps_nor_below_a_hundredth():
    assert judged(series(MEAN, (0.001, 0.2)))[1] == []
    assert judged(series(MEAN, (0.0001, 0.0002, 0.0099)))[1] == []
    assert told(judged(series(MEAN, (0.0001, 0.0002, 0.01)))[1]) == [("StalenessTailSpike", "raised", 2)]


def test_a_slow_rise_is_a_drift_and_a_flat_run_is_not():
    _, events = judged(series(MEAN, np.linspace(0.011, 0.036, 30).tolist()))
    assert [(event.alert, event.state) for event in events] == [("StalenessDrift", "raised")]
    assert events[0].step < 30
    assert events[0].evidence.endswith(f"; since step {events[0].step}")
    assert judged(series(MEAN, [0.011] * 300))[1] == []
    noisy = 0.011 * np.exp(np.random.default_rng(9).normal(0.0, 0.2, 3000))
    assert judged(series(MEAN, noisy.tolist()))[1] == []


def test_a_drift_cannot_drag_its_baseline_along():
    """However slowly it rises, a rise to three times the beginning is told."""
    for steps in (30, 300, 3000):
        _, events = judged(series(MEAN, np.linspace(0.011, 0.036, steps).tolist()))
        assert told(events)[0][:2] == ("StalenessDrift", "raised"), steps


def test_a_drift_is_resolved_after_five_steps_at_the_old_level():
    rise = [0.011] * 20 + [0.03] * 4 + [0.011] * 10
    _, events = judged(series(MEAN, rise))
    assert told(events) == [("StalenessDrift", "raised", 20), ("StalenessDrift", "resolved", 24)]
    assert events[1].at == 60.0 * 28


def test_a_queue_that_fills_is_no_drift_and_no_rising_lag():
    means = [0.001, 0.005, 0.02, 0.04, 0.06, 0.08, 0.1, 0.11, *[0.12] * 60]
    points = [step(i, log_ratio_abs_mean=mean, version_lag_mean=float(min(i, 8))) for i, mean in enumerate(means)]
    assert {event.alert for event in judged(points)[1]} <= {"StalenessTailSpike"}
    without_lag = [step(i, log_ratio_abs_mean=mean) for i, mean in enumerate(means)]
    assert "StalenessDrift" in {event.alert for event in judged(without_lag)[1]}


def test_a_lag_that_doubles_is_told():
    _, events = judged(series("version_lag_mean", [2.0] * 30 + [5.5] * 5 + [2.0] * 15))
    assert told(events) == [("VersionLagRising", "raised", 30), ("VersionLagRising", "resolved", 35)]
    assert events[0].threshold == 5.0
    assert events[0].evidence == (
        "mean version lag 5.5 at step 32, version 32, "
        "against the 2 that nine steps in ten of the run's own past exceed; since step 30"
    )
    assert judged(series("version_lag_mean", [2.0] * 30 + [5.0] * 5))[1] == []


def test_a_lag_that_swings_is_one_alert_for_as_long_as_it_swings():
    swings = [*range(8, 30)] * 3
    _, events = judged(series("version_lag_mean", [float(min(i, 8)) for i in range(60)] + swings))
    assert [(event.alert, event.state) for event in events] == [("VersionLagRising", "raised")]


def test_a_floor_that_jumps_is_told_for_as_long_as_it_lasts():
    _, events = judged(series("delta_impl_abs_mean", [0.0016] * 20 + [0.17] * 100 + [0.0016] * 3))
    assert told(events) == [("FloorRaised", "raised", 20), ("FloorRaised", "resolved", 120)]
    assert judged(series("delta_impl_abs_mean", [0.0001] * 20 + [0.009] * 20))[1] == []
    assert judged(series("delta_impl_abs_mean", [0.02] * 20 + [0.09] * 20))[1] == []
    assert judged(series("delta_policy_abs_mean", [0.0016] * 20 + [0.17] * 20))[1] == []


@pytest.mark.parametrize(
    ("alert", "name", "good", "bad", "steps_to_raise"),
    [
        ("EssLow", "ess_ratio", 0.9, 0.29, 3),
        ("EssCollapsed", "ess_ratio", 0.9, 0.09, 2),
        ("RatioExtreme", "log_ratio_abs_max", 20.0, 20.1, 1),
        ("NanTokens", "nan_tokens", 0.0, 1.0, 1),
        ("InfTokens", "inf_tokens", 0.0, 1.0, 1),
        ("NegativeLag", "negative_lag_tokens", 0.0, 1.0, 1),
        ("CoverageLost", "version_coverage_ratio", 1.0, 0.89, 2),
        ("SidecarBypassed", "client_fallbacks", 0.0, 1.0, 3),
        ("ReplayOff", "router_flip_rate", 0.0, 0.001, 1),
    ],
)
def test_an_alert_is_raised_once_and_resolved_after_three_good_steps(alert, name, good, bad, steps_to_raise):
    numbers = [good] * 12 + [bad] * 9 + [good] * 2 + [bad] + [good] * 6
    _, events = judged(series(name, numbers))
    mine = [event for event in events if event.alert == alert]
    assert told(mine) == [(alert, "raised", 12), (alert, "resolved", 24)]
    assert mine[0].at == 60.0 * (12 + steps_to_raise - 1)
    assert mine[0].evidence.endswith(f"since step {12}") == (steps_to_raise > 1)


def test_one_step_less_than_it_takes_raises_nothing():
    assert judged(series("ess_ratio", [0.9, 0.2, 0.2, 0.9]))[1] == []
    assert judged(series("ess_ratio", [0.9, 0.05, 0.9]))[1] == []


def test_a_heavy_tail_counts_only_where_there_is_a_mismatch():
    assert told(judged(series("tail_index", [1.3] * 3, log_ratio_abs_mean=0.02))[1]) == [("HeavyTail", "raised", 0)]
    assert judged(series("tail_index", [1.3] * 30, log_ratio_abs_mean=0.0005))[1] == []
    assert judged(series("tail_index", [1.3] * 30))[1] == []


def test_a_heavy_tail_of_a_policy_that_converges_is_no_news():
    points = [step(i, tail_index=0.2, log_ratio_abs_mean=0.12) for i in range(20)]
    points += [step(20 + i, tail_index=1.2, log_ratio_abs_mean=0.08 - 0.002 * i) for i in range(30)]
    assert judged(points)[1] == []
    worse = [step(20 + i, tail_index=1.2, log_ratio_abs_mean=0.12) for i in range(3)]
    assert told(judged(points[:20] + worse)[1]) == [("HeavyTail", "raised", 20)]


def test_replay_is_missed_only_where_it_was_seen():
    assert judged(series("router_flip_rate", [0.1] * 40))[1] == []
    assert judged(series("router_flip_rate", [0.0] * 9 + [0.1] * 9))[1] == []


def test_coverage_is_lost_only_where_it_was_whole():
    assert judged(series("version_coverage_ratio", [0.0] * 9))[1] == []
    assert judged(series("version_coverage_ratio", [0.6] * 9))[1] == []
    assert judged(series("version_coverage_ratio", [1.0, 0.95, 0.95, 0.95]))[1] == []


def test_a_few_fallbacks_are_no_bypass():
    points = [step(i, batches=100, client_fallbacks=5.0) for i in range(9)]
    assert judged(points)[1] == []


def test_the_gate_rate_says_nothing():
    assert judged(series("gate_rate", [0.1] * 20 + [0.9] * 20 + [0.0] * 20))[1] == []


def test_a_clock_that_is_set_back_hides_no_condition():
    points = [step(i, ess_ratio=0.2) for i in range(6)]
    points = [*points[:1], *(replace(point, at=point.at - 3600.0) for point in points[1:])]
    assert told(judged(points)[1]) == [("EssLow", "raised", 0)]


def test_unknown_neither_raises_nor_resolves():
    """A step that doesn't know ESS leaves the alert as it stands, and the count of steps too."""
    points = [step(0, ess_ratio=0.2), step(1), step(2, ess_ratio=0.2), step(3, ess_ratio=math.nan)]
    state, events = judged(points)
    assert events == []
    state, events = judged([step(4, ess_ratio=0.2)], state)
    assert told(events) == [("EssLow", "raised", 0)]
    state, events = judged([step(5 + i) for i in range(9)], state)
    assert events == []
    assert [event.alert for event in state.active] == ["EssLow"]


def test_values_that_are_no_numbers_enter_no_baseline():
    state, _ = judged([*series(MEAN, [0.01, math.nan, 0.02]), step(3)])
    assert (state.baseline.mismatch.count, state.baseline.mismatch.median()) == (2, pytest.approx(0.015))
    _, events = judged(series(MEAN, [0.01, math.nan, math.nan, 0.2]))
    assert events == []


def test_a_step_without_batches_or_told_again_is_not_judged():
    state, _ = judged([step(0, nan_tokens=0.0), step(1, nan_tokens=0.0)])
    for point in (step(1, nan_tokens=5.0), step(0, nan_tokens=5.0), step(2, batches=0, nan_tokens=5.0)):
        assert observe_step(state, point) == (state, ())


def test_a_step_without_a_version_says_so_by_leaving_it_out():
    _, events = judged([step(4, version=None, nan_tokens=2.0, tokens=100.0)])
    assert events[0].evidence == "2 of 100 tokens with a NaN log-ratio at step 4"
    assert events[0].version is None


def test_all_that_is_raised_can_be_resolved_for_a_reason():
    state, _ = judged([step(0, nan_tokens=1.0, inf_tokens=1.0)])
    state, events = resolve_all(state, 99.0, "the run began again")
    assert {(e.alert, e.state, e.at, e.evidence) for e in events} == {
        ("NanTokens", "resolved", 99.0, "the run began again"),
        ("InfTokens", "resolved", 99.0, "the run began again"),
    }
    assert state.active == ()


def test_a_history_judged_again_gives_the_same_state():
    """What a restarted sidecar needs: the stored steps of a life, judged again, give back where each alert stood."""
    rng = np.random.default_rng(3)
    points = [
        step(i, log_ratio_abs_mean=float(rng.uniform(0.005, 0.05)), ess_ratio=float(rng.uniform(0.1, 1.0)))
        for i in range(200)
    ]
    assert judged(points)[0] == judged(points[100:], judged(points[:100])[0])[0]


def test_the_memory_is_bounded_however_long_a_run_is():
    state = JudgeState("run", 1)
    for i in range(2000):
        state, _ = observe_step(state, step(i, log_ratio_abs_mean=0.01, version_lag_mean=1.0, ess_ratio=0.9))
    for past, count in ((state.baseline.mismatch, 2000), (state.baseline.lag, 2000 - LAG_SETTLED)):
        assert past.count == count
        assert len(past.recent) == RECENT
        assert KEPT // 2 < len(past.sample) <= KEPT


def test_the_sample_is_even_over_the_whole_past():
    past = Past()
    for i in range(10_000):
        past = past.add(float(i))
    values = [mark.value for mark in past.sample]
    assert values == list(range(0, 10_000, past.stride))
    assert quantile(tuple(values), 0.1) == pytest.approx(1000, abs=past.stride)


@pytest.mark.parametrize(("share", "expected"), [(0.1, 1.0), (0.5, 5.0), (0.55, 6.0), (1.0, 10.0)])
def test_quantile_is_one_of_the_values(share, expected):
    assert quantile(tuple(float(x) for x in (3, 1, 2, 10, 9, 8, 7, 6, 5, 4)), share) == expected
