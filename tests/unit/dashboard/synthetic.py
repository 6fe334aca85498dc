"""A made-up history to look at: every number follows from tokens that were drawn, so that all of them agree."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from satwatch.errors import UnknownRunError, required
from satwatch.types import (
    BatchRecord,
    EngineRecord,
    EngineStatus,
    Event,
    Finding,
    Rule,
    RunRecord,
    StepPoint,
    VersionRecord,
)
from tests.unit.dashboard.synthetic_run import ENGINES, STEP_SECONDS, Faults, RunPlan, SyntheticRun

Kind = Literal["empty", "healthy", "faults"]

# The last message of the newest run, Unix time; pass another to be "now".
NOW = 1_790_000_000.0
RUN = "sat-7b"
OTHER_RUN = "grpo-7b"
ENGINE_SECONDS = 5 * STEP_SECONDS


class SyntheticHistory:
    """A history of two runs, one of them with two lives, or of none.

    ``sat-7b`` sends all that can be sent: life 3 is open, life 1 was its first attempt. ``grpo-7b`` (life 2) sends
    versions and nothing else beside log-ratios. With ``kind="faults"`` engine B of life 3 falls behind at a third of
    the steps and calls its old weights new from half of them on; routing replay ends, some tokens are NaN, some come
    without a version, and one step has a negative lag.
    """

    def __init__(self, kind: Kind = "healthy", steps: int = 500, *, now: float = NOW) -> None:
        self.kind = kind
        self.now = now
        self.lives = {} if kind == "empty" else {run.plan.life: run for run in _lives(kind, steps, now)}

    def runs(self) -> Sequence[RunRecord]:
        return sorted((run.record() for run in self.lives.values()), key=lambda record: -record.last_at)

    def steps(
        self,
        run: str,
        *,
        life: int = 0,
        first_step: int | None = None,
        last_step: int | None = None,
        max_points: int = 500,
    ) -> Sequence[StepPoint]:
        found = self._find(run, life)
        first = found.plan.first_step if first_step is None else first_step
        last = found.plan.first_step + found.plan.steps if last_step is None else last_step
        return found.points(first, last, max_points)

    def batches(self, run: str, step: int, *, life: int = 0) -> Sequence[BatchRecord]:
        return self._find(run, life).batches(step)

    def versions(self, run: str, *, life: int = 0, limit: int = 1000) -> Sequence[VersionRecord]:
        return self._find(run, life).versions()[-limit:]

    def events(
        self, run: str = "", *, life: int = 0, after: int = 0, only_active: bool = False, limit: int = 1000
    ) -> Sequence[Event]:
        if run:
            self._find(run, life)
        found = [event for event in self._events() if event.id > after and (not run or event.run in ("", run))]
        found = [event for event in found if not life or event.life in (None, life)]
        if only_active:
            last = {(event.alert, event.run, event.engine): event for event in found}
            found = [event for event in last.values() if event.state == "raised"]
        return found[-limit:]

    def engines(
        self, run: str = "", *, since: float = 0.0, until: float | None = None, limit: int = 10_000
    ) -> Sequence[EngineRecord]:
        if run:
            self._find(run, 0)
        end = self.now if until is None else until
        found = [record for record in self._engine_records() if since <= record.at <= end]
        return [record for record in found if not run or record.run in ("", run)][-limit:]

    def _find(self, run: str, life: int) -> SyntheticRun:
        mine = {number: found for number, found in self.lives.items() if found.plan.run == run}
        wanted = life or max(mine, default=0)
        if wanted not in mine:
            raise UnknownRunError(required("run", f"{run!r}, life {life}", "one that is kept"))
        return mine[wanted]

    def _events(self) -> list[Event]:
        if self.kind == "empty":
            return []
        return _events(self.kind, self.lives[3])

    def _engine_records(self) -> list[EngineRecord]:
        return [] if self.kind == "empty" else _engine_records(self.lives[3])


@lru_cache(maxsize=8)
def _lives(kind: Kind, steps: int, now: float) -> tuple[SyntheticRun, ...]:
    faults = Faults()
    if kind == "faults":
        faults = Faults(
            lag_from=steps // 3,
            wrong_from=steps // 2,
            replay_off_from=3 * steps // 4,
            nan_steps=(steps // 5, steps // 5 + 1, 4 * steps // 5),
            unversioned_steps=tuple(range(3 * steps // 5, 3 * steps // 5 + max(1, steps // 25))),
            negative_step=2 * steps // 5,
        )
    began = now - (steps + 4) * STEP_SECONDS
    early = max(3, steps // 10)
    plans = (
        RunPlan(1, RUN, early, began - 600.0, incarnation="attempt-1", seed=7),
        RunPlan(2, OTHER_RUN, max(3, steps // 2), began, rule=Rule(enabled=False), tells_everything=False, seed=8),
        RunPlan(
            3,
            RUN,
            steps,
            now,
            incarnation="attempt-2",
            is_open=True,
            seed=9,
            faults=faults,
            missing_steps=(steps // 4,) if steps >= 8 else (),
        ),
    )
    return tuple(SyntheticRun(plan) for plan in plans)


def _events(kind: Kind, run: SyntheticRun) -> list[Event]:
    plan, found = run.plan, []

    def told(state, alert, severity, step, evidence, value=None, threshold=None, engine=""):
        found.append(
            Event(
                alert,
                severity,
                state,
                plan.at(step),
                evidence,
                run="" if engine else plan.run,
                life=None if engine else plan.life,
                engine=engine,
                step=step,
                version=step,
                value=value,
                threshold=threshold,
            )
        )

    third, steps = plan.steps // 3, plan.steps
    told("raised", "SyncSlow", "warning", steps // 6, "engine-a took 41 s to take version", 41.0, 30.0, "engine-a")
    told("resolved", "SyncSlow", "warning", steps // 6 + 2, "engine-a took 4 s", 4.0, 30.0, "engine-a")
    if kind == "faults":
        first_nan = steps // 5
        told("raised", "NanTokens", "critical", first_nan, f"6 NaN tokens at step {first_nan}", 6.0, 0.0)
        told("resolved", "NanTokens", "critical", first_nan + 3, "no NaN token for 1 step", 0.0, 0.0)
        told("raised", "EngineBehind", "warning", third + 3, "engine-b is 4 versions behind", 4.0, 3.0, "engine-b")
        told("raised", "NegativeLag", "warning", 2 * steps // 5, "tokens younger than their policy", None, 0.0)
        told("resolved", "NegativeLag", "warning", 2 * steps // 5 + 1, "none any more", 0.0, 0.0)
        told("resolved", "EngineBehind", "warning", steps // 2, "it says it serves the newest", 0.0, 3.0, "engine-b")
        told(
            "raised", "EngineWrongWeights", "critical", steps // 2, "canary differs by 0.2 nats", 0.2, 0.02, "engine-b"
        )
        told("raised", "StalenessDrift", "warning", steps // 2 + 5, "mean |d| is 4 times its past", 0.05, 0.02)
        told("raised", "ReplayOff", "warning", 3 * steps // 4, "the flip rate was 0 and is 0.06", 0.06, 0.0)
    ordered = sorted(found, key=lambda event: event.at)
    return [_numbered(event, number) for number, event in enumerate(ordered, 1)]


def _numbered(event: Event, number: int) -> Event:
    values = {name: getattr(event, name) for name in Event.__dataclass_fields__}
    return Event(**{**values, "id": number})


def _engine_records(run: SyntheticRun) -> list[EngineRecord]:
    plan, found = run.plan, []
    for step in [step for step in sorted(run.totals) if step % 5 == 0]:
        for number, name in enumerate(ENGINES):
            found.append(EngineRecord(plan.at(step) + number, _status(plan, step, name), plan.run))
    return found


def _status(plan: RunPlan, step: int, name: str) -> EngineStatus:
    faults, served, state, canary, reason = plan.faults, step, "serving", 0.0031, ""
    findings: tuple[Finding, ...] = ()
    labelled = served
    if name == "engine-b" and faults.lag_from is not None and step >= faults.lag_from:
        served = max(faults.lag_from - 1, step - 12)
        labelled = served
        if served < step:
            state, reason = "lagging", f"serves version {served}, {step} is published"
        if faults.wrong_from is not None and step >= faults.wrong_from:
            state, labelled, canary = "wrong_weights", step, 0.21
            reason = f"its canary differs by {canary} nats at version {step}"
            findings = (Finding("canary_differs", reason),)
    return EngineStatus(
        engine=name,
        state=state,
        reason=reason,
        kind="sglang",
        release="0.5.23",
        seen_at=plan.at(step),
        version_label=str(labelled),
        version_labelled=labelled,
        version_served=labelled if state == "wrong_weights" else served,
        version_published=step,
        version_canary=served,
        version_lag=step - (labelled if state == "wrong_weights" else served),
        weight_age_seconds=(step - served + 0.5) * STEP_SECONDS,
        sync_seconds=4.0 + step % 3,
        requests_running=24 + step % 7,
        requests_waiting=step // 5 % 4,
        queue_seconds=0.4 + 0.1 * (step // 5 % 4),
        drain_seconds=20.0 + step % 9,
        generation_tokens_per_second=2200.0 + 10.0 * (step % 11),
        version_lag_generation_expected=0.55,
        canary_log_ratio_abs_mean=canary,
        canary_log_ratio_abs_max=canary * 9,
        canary_version=served,
        findings=findings,
        looks=step,
        canary_requests=4 * step,
        version_changes=served,
    )
