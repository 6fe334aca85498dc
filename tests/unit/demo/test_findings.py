from itertools import count

import pytest

from satwatch.demo.findings import PATIENCE_SECONDS, Alert, Findings, ask_findings
from satwatch.errors import UnavailableError
from satwatch.types import EngineRecord, EngineStatus, Event, Rule, RunRecord, StepPoint

OPENED = 1_000.0


def life(number=2, incarnation="mine", **changes):
    kept = {"first_step": 0, "last_step": 39, "stored_step": 39, "steps": 40}
    return RunRecord(number, "demo", incarnation, Rule(), 1, OPENED, OPENED + 20, **{**kept, **changes})


def event(alert, state="raised", *, at=OPENED + 5, **changes):
    told = {"severity": "critical", "evidence": f"{alert} seen", "run": "demo", **changes}
    return Event(alert, told.pop("severity"), state, at, told.pop("evidence"), **told)


class Kept:
    """A history of one run; what its lives are may change with each look."""

    def __init__(self, *looks, events=(), engines=()):
        self._looks, self._events, self._engines = [*looks], events, engines

    def runs(self):
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]

    def events(self, run):
        return self._events

    def engines(self, run, *, since):
        return [record for record in self._engines if record.at >= since]

    def steps(self, run, *, life, first_step):
        values = {"log_ratio_abs_mean": 0.01}
        return [StepPoint(life, first_step, first_step, 1, OPENED + 20, True, 1, 2, first_step, values)]


def found(history, last_step=39):
    ticks = count()
    return ask_findings(history, "mine", last_step, clock=lambda: next(ticks) * 0.5, sleep=lambda seconds: None)


def test_a_run_without_an_alert_is_healthy_and_has_an_engine_that_serves():
    engines = [
        EngineRecord(OPENED - 1, EngineStatus("rollout", "wrong_weights"), "demo"),  # another life's
        EngineRecord(OPENED + 1, EngineStatus("rollout", "serving", version_lag=2), "demo"),
    ]
    for is_open, ended_at in ((True, None), (False, OPENED + 20)):  # whether or not the sidecar knows that it has ended
        kept = Kept([life(is_open=is_open, ended_at=ended_at)], engines=engines)
        assert found(kept) == Findings("Healthy", "serving", 2, ())


def test_alerts_are_those_of_this_life_each_once_and_in_order():
    events = [
        event("NanTokens", at=OPENED - 1, life=1, step=3),
        event("NanTokens", life=1, step=4),  # of another life that goes on
        event("FloorRaised", life=2, step=25, version=25, severity="warning"),
        event("FloorRaised", "resolved", life=2, step=30),
        event("EngineWrongWeights", engine="rollout", step=32, version=32),
        event("FloorRaised", life=2, step=35, version=35, severity="warning"),
    ]
    assert found(Kept([life()], events=events)).alerts == (
        Alert("FloorRaised", "warning", 25, 25, "", "FloorRaised seen"),
        Alert("EngineWrongWeights", "critical", 32, 32, "rollout", "EngineWrongWeights seen"),
    )


def test_an_alert_that_ended_with_the_run_is_in_the_verdict_and_one_that_was_over_is_not():
    wrong = event("EngineWrongWeights", engine="rollout", step=32)
    left = event("EngineWrongWeights", "resolved", at=OPENED + 19, engine="rollout", step=None)
    well = event("EngineWrongWeights", "resolved", at=OPENED + 19, engine="rollout", step=38)
    blamed = "Fed by an engine that serves other weights than it says"
    assert found(Kept([life()], events=[wrong, left])).verdict == blamed
    assert found(Kept([life()], events=[wrong, well])).verdict == "Healthy"


def test_the_last_step_is_waited_for():
    kept = Kept([], [life(stored_step=None)], [life(stored_step=38)], [life()])
    assert found(kept) is not None
    assert kept.runs() == [life()]


def test_the_first_step_is_waited_for_too():
    kept = Kept([life(stored_step=None, last_step=None)], [life(stored_step=0, last_step=0)])
    found(kept, last_step=0)
    assert kept.runs() == [life(stored_step=0, last_step=0)]


@pytest.mark.parametrize(
    ("kept", "verdict"), [([life(stored_step=20)], "Healthy"), ([life(incarnation="other")], None)]
)
def test_the_wait_has_an_end(kept, verdict):
    looks = []

    def sleep(seconds):
        looks.append(seconds)

    findings = ask_findings(Kept(kept), "mine", 39, clock=lambda: sum(looks), sleep=sleep)
    assert sum(looks) == pytest.approx(PATIENCE_SECONDS, abs=0.1)
    assert (None if findings is None else findings.verdict) == verdict


def test_a_history_that_does_not_answer_is_the_callers_to_tell():
    class Off(Kept):
        def runs(self):
            raise UnavailableError

    with pytest.raises(UnavailableError):
        found(Off([]))
