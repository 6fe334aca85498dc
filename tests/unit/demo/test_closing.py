from dataclasses import replace

import pytest

from satwatch.demo import DemoConfig, StepRecord
from satwatch.demo.closing import closing_lines
from satwatch.demo.findings import Alert, Findings
from satwatch.demo.summary import summarize_run


def _record(step, **changes):
    values = {
        "step": step,
        "reward": 0.5,
        "entropy": 1.0,
        "quantile_reference": 0.125,
        "log_ratio_abs_mean": 0.0625,
        "tokens": 1000,
        "gated_tokens": 100,
        "gated_within_ppo": 75,
        "version_lag": 8.0,
        "round_trip_seconds": 0.0015,
        "bounds_from_sidecar": 2 * (step + 1),
        "bounds_from_fallback": 0,
        "sidecar_up": True,
    }
    return StepRecord(**{**values, **changes})


def _said(records, **settings):
    config = DemoConfig(**{"steps": len(records), **settings})
    return closing_lines(config, summarize_run(config, records, 2.0), records)


def test_a_run_is_told_in_its_own_numbers():
    records = [_record(i, reward=i / 4, version_lag=float(min(i, 2))) for i in range(4)]
    assert _said(records, lag=2) == [
        "Trained 4 steps in 2.0 s.",
        "The reward went from 0.000 (mean of the first quarter of the steps) to 0.750 (of the last).",
        "The tokens were up to 2 policy versions old, 1.2 on average.",
        "Between trainer and engine, mean |d| was 0.0625 nats; q, the 0.9 quantile of |d|, was 0.1250 on average.",
        "The gate contracted the clip interval of 400 of 4,000 tokens (10.0%); 300 of those (75.0%) were not already "
        "beyond PPO's own bound.",
        "The sidecar bounded all 8 batches, the trainer none by itself. The median round trip was 1.5 ms.",
    ]


def test_an_interrupted_run_says_how_far_it_came():
    assert _said([_record(0), _record(1)], steps=600)[0] == "Interrupted after 2 of 600 steps, 2.0 s."


def test_one_step_has_one_reward():
    assert _said([_record(0)])[:2] == ["Trained 1 step in 2.0 s.", "The reward was 0.500."]


@pytest.mark.parametrize(
    ("lags", "line"),
    [
        ([0.0, 0.0], "The tokens were sampled by the very version that they trained."),
        ([1.0, 1.0], "The tokens were 1 policy version old."),
        ([0.0, 1.0], "The tokens were up to 1 policy version old, 0.5 on average."),
    ],
)
def test_the_age_of_the_tokens_is_what_it_was(lags, line):
    assert _said([_record(i, version_lag=lag) for i, lag in enumerate(lags)])[2] == line


def test_sequence_objectives_judge_responses():
    assert "q, the 0.9 quantile of |mean d| of the responses, was" in _said([_record(0)], objective="sat-gspo")[3]


def test_nothing_finite_is_no_number():
    nan = float("nan")
    said = _said([_record(0, quantile_reference=nan, log_ratio_abs_mean=nan)])
    assert said[3] == "Between trainer and engine, mean |d| or q had no finite value."


@pytest.mark.parametrize(
    ("objective", "line"),
    [
        ("ppo", "Each of the 1,000 tokens had PPO's interval: objective ppo contracts none."),
        ("sat", "The gate contracted the clip interval of 0 of 1,000 tokens (0.0%)."),
    ],
)
def test_no_contraction_is_claimed_where_there_was_none(objective, line):
    assert _said([_record(0, gated_tokens=0, gated_within_ppo=0)], objective=objective)[4] == line


@pytest.mark.parametrize(
    ("answered", "computed", "round_trip", "line"),
    [
        (0, 2, None, "The trainer bounded all 2 batches by itself: the sidecar bounded none."),
        (1, 0, None, "The sidecar bounded all 1 batch, the trainer none by itself."),
        (
            1,
            3,
            0.25,
            "The sidecar bounded 1 batch; the trainer bounded 3 by itself, without the sidecar's answer. "
            "The median round trip was 250.0 ms.",
        ),
    ],
)
def test_who_bounded_the_batches_is_counted(answered, computed, round_trip, line):
    counts = {"bounds_from_sidecar": answered, "bounds_from_fallback": computed, "round_trip_seconds": round_trip}
    assert _said([_record(0, **counts)])[5] == line


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("lag", "the engine took new weights at every 32nd version only, and said so."),
        ("nan", "the engine gave 3 tokens a step a log-prob that is no number."),
        ("stale-engine", "the engine took no more weights, and named each new version as its own."),
        ("temperature", "the engine sampled at temperature 1.5, which the trainer took for 1."),
    ],
)
def test_an_injected_fault_is_named_with_its_first_step(fault, line):
    said = _said([_record(i) for i in range(9)], fault=fault)
    assert said[1] == f"Injected from step 3 on: fault {fault}, {line}"


def test_a_fault_that_the_run_did_not_come_to_is_no_fault():
    said = _said([_record(0)], steps=9, fault="nan")
    assert said[1] == "The fault nan was to come with step 3, which was not reached."


def _said_of(found, *, fault="stale-engine", fault_step=2, steps=4):
    records = [_record(i) for i in range(steps)]
    config = DemoConfig(steps=steps, fault=fault, fault_step=fault_step)
    return closing_lines(config, summarize_run(config, records, 2.0, found=found), records)


WRONG = Alert("EngineWrongWeights", "critical", 3, 3, "rollout", "rollout, serving version 3: canary: equals version 0")


def test_what_was_injected_is_found_so_many_steps_later():
    said = _said_of(Findings("Fed by an engine", "wrong_weights", None, (WRONG,)))
    assert said[1].startswith("Injected from step 2 on: fault stale-engine")
    assert said[2:4] == [
        "Found at step 3, version 3 by EngineWrongWeights (critical), 1 step later: "
        "rollout, serving version 3: canary: equals version 0.",
        "The sidecar's verdict: Fed by an engine. The engine's state: wrong_weights.",
    ]


def test_an_alert_may_come_with_the_fault_or_before_the_learner_reaches_it():
    with_it = replace(WRONG, step=2)
    ahead = replace(WRONG, alert="CanaryNotComparable", step=1, version=None, evidence="rollout: seen")
    of_the_run = replace(WRONG, alert="StalenessDrift", step=1, engine="", version=None, evidence="seen")
    said = _said_of(Findings("Fed", None, None, (with_it, ahead, of_the_run)))
    assert ", version 3 by EngineWrongWeights (critical), in that very step: " in said[2]
    assert said[3:6] == [
        "Found at step 1 by CanaryNotComparable (critical), 1 step before the trainer had its first tokens: "
        "rollout: seen.",
        "Found at step 1 by StalenessDrift (critical), before the fault: seen.",
        "The sidecar's verdict: Fed.",
    ]


def test_an_engine_is_ahead_by_the_lag_and_no_more():
    early = replace(WRONG, step=10, evidence="rollout: seen")
    said = _said_of(Findings("Fed", None, None, (early,)), fault_step=30, steps=40)
    assert "by EngineWrongWeights (critical), before the fault: rollout: seen." in said[2]


def test_a_fault_that_was_not_found_is_said_to_be_so():
    said = _said_of(Findings("Healthy", "serving", 0, (replace(WRONG, alert="SyncSlow"),)))
    assert said[3] == "Not found yet: EngineWrongWeights or FloorRaised was not raised."


def test_without_a_fault_nothing_is_missed():
    records = [_record(0)]
    config = DemoConfig(steps=1)
    found = Findings("Healthy", "lagging", 8, ())
    said = closing_lines(config, summarize_run(config, records, 2.0, found=found), records)
    assert said[1] == "The sidecar's verdict: Healthy. The engine's state: lagging, 8 versions behind."


def test_a_fault_that_was_not_reached_was_not_missed():
    said = _said_of(Findings("Healthy", None, None, ()), steps=4, fault_step=3)
    assert any(line.startswith("Not found yet") for line in said)
    config = DemoConfig(steps=9, fault="nan", fault_step=8)
    records = [_record(0)]
    short = closing_lines(
        config, summarize_run(config, records, 2.0, found=Findings("Healthy", None, None, ())), records
    )
    assert not any(line.startswith("Not found") for line in short)
