import json
import math

import pytest

from satwatch.demo import DemoConfig, StepRecord
from satwatch.demo.findings import Alert, Findings
from satwatch.demo.summary import sparkline, summarize_run

JSON_KEYS = [
    "objective",
    "lag",
    "steps",
    "seed",
    "reward_first_quarter",
    "reward_last_quarter",
    "batches_sent",
    "bounds_from_sidecar",
    "bounds_from_fallback",
    "quantile_reference_mean",
    "gate_rate",
    "log_ratio_abs_mean",
    "task",
    "seconds",
    "run",
    "metrics_url",
    "history",
    "round_trip_seconds",
    "fault",
    "fault_step",
    "found",
]


def record(step, **changes):
    values = {
        "step": step,
        "reward": 0.5,
        "entropy": 1.0,
        "quantile_reference": 0.1,
        "log_ratio_abs_mean": 0.05,
        "tokens": 100,
        "gated_tokens": 10,
        "gated_within_ppo": 4,
        "version_lag": 8.0,
        "round_trip_seconds": 0.001,
        "bounds_from_sidecar": 2 * (step + 1),
        "bounds_from_fallback": 0,
        "sidecar_up": True,
    }
    return StepRecord(**{**values, **changes})


def test_the_json_object_has_its_keys_and_nothing_else():
    line = summarize_run(DemoConfig(steps=1), [record(0)], 1.0).to_json()
    assert "\n" not in line
    assert list(json.loads(line)) == JSON_KEYS


def test_what_was_found_is_an_object_and_a_fault_has_its_step_once_that_was_reached():
    alert = Alert("NanTokens", "critical", 1, 1, "", "3 tokens are NaN")
    found = Findings("Bad data: log-probs are NaN", "lagging", 2, (alert,))
    config = DemoConfig(steps=2, fault="nan", fault_step=1)
    summary = summarize_run(config, [record(0), record(1)], 1.0, found=found)
    assert json.loads(summary.to_json())["found"] == {
        "verdict": "Bad data: log-probs are NaN",
        "engine_state": "lagging",
        "engine_lag": 2,
        "alerts": [
            {
                "alert": "NanTokens",
                "severity": "critical",
                "step": 1,
                "version": 1,
                "engine": "",
                "evidence": "3 tokens are NaN",
            }
        ],
    }
    assert (summary.fault, summary.fault_step) == ("nan", 1)
    assert summarize_run(config, [record(0)], 1.0).fault_step is None


def test_quarters_are_means_over_a_quarter_of_the_steps():
    rewards = [0.0, 0.2, 0.4, 0.5, 0.5, 0.5, 0.6, 0.7, 1.0]
    summary = summarize_run(DemoConfig(), [record(i, reward=r) for i, r in enumerate(rewards)], 1.0)
    assert summary.reward_first_quarter == pytest.approx(0.1)
    assert summary.reward_last_quarter == pytest.approx(0.85)


def test_token_statistics_are_weighted_by_tokens():
    records = [
        record(0, tokens=100, gated_tokens=10, log_ratio_abs_mean=0.1, quantile_reference=0.2),
        record(1, tokens=300, gated_tokens=0, log_ratio_abs_mean=0.3, quantile_reference=0.4),
    ]
    summary = summarize_run(DemoConfig(), records, 1.0)
    assert summary.gate_rate == 10 / 400
    assert summary.log_ratio_abs_mean == pytest.approx(0.25)
    assert summary.quantile_reference_mean == pytest.approx(0.3)


def test_batches_are_those_from_the_sidecar_and_those_from_the_fallback():
    last = record(9, bounds_from_sidecar=13, bounds_from_fallback=7)
    summary = summarize_run(DemoConfig(), [record(0), last], 1.0)
    assert (summary.batches_sent, summary.bounds_from_sidecar, summary.bounds_from_fallback) == (20, 13, 7)


def test_what_has_no_value_is_null():
    nothing = record(0, quantile_reference=math.nan, log_ratio_abs_mean=math.nan)
    values = json.loads(summarize_run(DemoConfig(steps=1), [nothing], 1.0).to_json())
    assert values["quantile_reference_mean"] is None
    assert values["log_ratio_abs_mean"] is None
    assert values["metrics_url"] is None


def test_the_round_trip_is_the_median_of_the_steps_that_have_one():
    records = [record(i, round_trip_seconds=s) for i, s in enumerate([0.25, None, 2.0, 0.5])]
    assert summarize_run(DemoConfig(), records, 1.0).round_trip_seconds == 0.5
    assert summarize_run(DemoConfig(), records[1:2], 1.0).round_trip_seconds is None


def test_the_summary_names_the_run_and_where_its_metrics_are():
    url = "http://127.0.0.1:1/metrics"
    summary = summarize_run(DemoConfig(run="mine"), [record(0)], 1.0, metrics_url=url, history="a.sqlite")
    assert (summary.run, summary.metrics_url, summary.history) == ("mine", url, "a.sqlite")


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([], 5, ""),
        ([3.0], 5, "_"),
        ([1.0, 1.0, 1.0], 5, "___"),
        ([0.0, 1.0], 5, "_#"),
        ([0.0, 0.0, 3.0, 3.0], 2, "_#"),
        ([0.0, 2.0, 9.0, 9.0, 9.0, 9.0], 3, "_##"),
        (list(range(5)), 3, "_.#"),
    ],
)
def test_a_sparkline_averages_neighbours_and_spans_its_range(values, width, line):
    assert sparkline(values, width, marks="_.-#") == line
