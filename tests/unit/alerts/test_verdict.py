from __future__ import annotations

from dataclasses import replace

import pytest

from satwatch.alerts import observe_engines, observe_step, verdict
from satwatch.alerts.judge import JudgeState
from satwatch.types import EngineStatus, Event
from tests.unit.alerts.making import RUN, judged, series, step

NOW = 1010.0
LAST = step(9, log_ratio_abs_mean=0.0072, ess_ratio=0.981, version_lag_mean=1.25)
NAN = Event("NanTokens", "critical", "raised", 540.0, "3 tokens with a NaN log-ratio at step 9", "run", 1, step=9)
SPIKE = Event(
    "StalenessTailSpike", "warning", "raised", 180.0, "mean |d| 0.201 nats at step 3", "run", 1, step=3, version=4
)
SILENT = Event("NoBatches", "warning", "raised", 2000.0, "the last batch came 17 minutes ago", "run", 1, step=9)
LIAR = Event("EngineWrongWeights", "critical", "raised", 60.0, "a:1: it lies", engine="a:1", version=7)


def test_no_run_and_no_step_are_waited_for():
    assert verdict(None, (), None, NOW).level == "waiting"
    fresh = replace(RUN, steps=0, batches=3, first_step=None, last_step=None)
    found = verdict(fresh, (), None, NOW)
    assert (found.level, found.headline, found.evidence) == (
        "waiting",
        "Waiting for the first step to close",
        "3 batches so far.",
    )


def test_a_run_without_alerts_is_healthy_by_its_numbers():
    found = verdict(RUN, (), LAST, NOW)
    assert (found.level, found.headline) == ("healthy", "Healthy")
    assert found.evidence == "Step 9: mean |d| 0.0072 nats, ESS 98.1%, version lag 1.25."
    assert (found.first_step, found.first_version, found.alerts) == (None, None, ())


def test_what_is_not_measured_is_called_unknown():
    evidence = verdict(RUN, (), step(9), NOW).evidence
    assert evidence == ("Step 9: mean |d| unknown: no finite log-ratio, version lag unknown: no versions are sent.")


def test_a_warning_names_its_first_step_and_version():
    found = verdict(RUN, (SPIKE,), LAST, NOW)
    assert (found.level, found.first_step, found.first_version) == ("warning", 3, 4)
    assert found.headline == "Engine and trainer came apart from one step to the next"
    assert found.evidence.startswith("Mean |d| 0.201 nats at step 3. Step 9: ")


def test_the_worst_comes_first_whatever_the_order():
    for active in ((SPIKE, NAN, LIAR), (LIAR, NAN, SPIKE), (NAN, SPIKE, LIAR)):
        found = verdict(RUN, active, LAST, NOW)
        assert [event.alert for event in found.alerts] == ["EngineWrongWeights", "NanTokens", "StalenessTailSpike"]
        assert found.level == "critical"
        assert found.headline == "Fed by an engine that serves other weights than it says"


def test_other_runs_other_lives_and_what_is_resolved_are_left_out():
    others = (replace(NAN, run="other"), replace(NAN, life=2), replace(NAN, state="resolved"))
    assert verdict(RUN, others, LAST, NOW).level == "healthy"
    assert verdict(RUN, (replace(LIAR, run="other"),), LAST, NOW).level == "healthy"


def test_a_silent_run_is_stopped():
    found = verdict(RUN, (SILENT,), LAST, 2000.0)
    assert (found.level, found.headline) == ("stopped", "No batches since 1970-01-01 00:16 UTC")
    assert found.evidence.startswith("No alert was active then. Step 9: ")
    assert (found.first_step, found.first_version) == (9, 9)


def test_a_run_of_long_steps_is_healthy_between_them_and_stopped_once_nobody_waits_any_more():
    assert verdict(RUN, (), LAST, 1000.0 + 3000.0).level == "healthy"
    assert verdict(RUN, (), LAST, 1000.0 + 3601.0).headline == "No batches since 1970-01-01 00:16 UTC"


def test_what_is_only_worth_knowing_changes_no_verdict():
    blind = Event("CanaryNotComparable", "info", "raised", 60.0, "a:1: temperature 0.7", engine="a:1")
    found = verdict(RUN, (blind,), LAST, NOW)
    assert (found.level, found.headline, found.alerts) == ("healthy", "Healthy", (blind,))
    found = verdict(RUN, (blind, SPIKE), LAST, NOW)
    assert (found.level, found.alerts) == ("warning", (SPIKE, blind))


def test_a_silent_run_tells_what_was_active():
    found = verdict(RUN, (SILENT, SPIKE), LAST, 2000.0)
    assert (found.level, found.headline) == ("stopped", "No batches since 1970-01-01 00:16 UTC")
    assert found.evidence.startswith("Active then: Mean |d| 0.201 nats at step 3. ")
    found = verdict(RUN, (SILENT, NAN), LAST, 2000.0)
    assert (found.level, found.first_step) == ("critical", 9)
    assert found.headline == "Bad data: log-probs are NaN. No batches since 1970-01-01 00:16 UTC"


def test_a_run_that_is_not_open_and_was_never_closed_is_not_said_to_have_ended():
    found = verdict(replace(RUN, is_open=False), (), LAST, NOW)
    assert (found.level, found.headline) == ("stopped", "No batches since 1970-01-01 00:16 UTC")


def test_a_run_that_its_trainer_closed_has_ended_however_long_ago():
    closed = replace(RUN, is_open=False, ended_at=1060.0)
    for now in (NOW + 60.0, NOW + 86_400.0):
        found = verdict(closed, (), LAST, now)
        assert (found.level, found.headline) == ("stopped", "Ended at 1970-01-01 00:17 UTC")
    assert verdict(replace(closed, ended_at=None), (), LAST, NOW + 86_400.0).headline.startswith("No batches since ")


def test_an_alert_of_another_release_is_shown_by_its_name():
    assert verdict(RUN, (replace(SPIKE, alert="Unheard"),), LAST, NOW).headline == "Unheard"


@pytest.mark.parametrize("is_engine_first", [True, False])
def test_the_judges_own_events_make_the_verdict(is_engine_first):
    _, raised = judged(series("log_ratio_abs_mean", (0.010, 0.018, 0.201), first=1))
    lying = EngineStatus("a:1", state="wrong_weights", reason="it equals version 5")
    _, lies = observe_engines(JudgeState(), (lying,), 100.0)
    found = verdict(RUN, (*lies, *raised) if is_engine_first else (*raised, *lies), LAST, NOW)
    assert found.alerts == (*lies, *raised)
    state, events = observe_step(JudgeState("run", 1), step(5, nan_tokens=1.0))
    assert verdict(RUN, state.active, LAST, NOW).first_step == events[0].step == 5


def test_an_engines_name_is_spelt_as_it_is():
    named = replace(LIAR, engine="rollout", evidence="rollout, serving version 7: it lies")
    assert verdict(RUN, (named,), LAST, NOW).evidence.startswith("rollout, serving version 7: it lies. Step 9: ")


def test_a_lag_that_is_counted_from_a_lie_is_called_declared():
    assert verdict(RUN, (LIAR,), LAST, NOW).evidence.endswith("version lag 1.25 as declared.")
    assert verdict(RUN, (NAN,), LAST, NOW).evidence.endswith("version lag 1.25.")
