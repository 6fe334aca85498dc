"""One line that a person reads: is this run healthy?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from satwatch.alerts.catalogue import RULES, rule_of
from satwatch.alerts.thresholds import NO_BATCH_UNPACED_SECONDS
from satwatch.types import SEVERITIES, Event, RunRecord, StepPoint

VerdictLevel: TypeAlias = Literal["healthy", "warning", "critical", "waiting", "stopped"]

_ORDER = {rule.name: i for i, rule in enumerate(RULES)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to think of a run, from its active alerts.

    Attributes:
        level: ``healthy``; ``warning`` or ``critical``, as the worst alert; ``waiting`` for a first step; ``stopped``
            when no batches come and nothing critical was left open.
        headline: one line.
        evidence: the numbers, in a sentence or a few; what is not measured is called unknown.
        first_step: the first step that showed what the headline says.
        first_version: the policy version of that step, or the engine's.
        alerts: the active ones, worst first.
    """

    level: VerdictLevel
    headline: str
    evidence: str
    first_step: int | None = None
    first_version: int | None = None
    alerts: tuple[Event, ...] = ()


def verdict(run: RunRecord | None, active: Sequence[Event], last: StepPoint | None, now: float) -> Verdict:
    """Judge a run by what is active.

    Args:
        run: the life looked at; None if there is none yet.
        active: alerts raised and not resolved, of the run and of the engines; those of other runs and lives are left
            out.
        last: its last closed step, or None.
        now: Unix time in seconds.
    """
    if run is None:
        return Verdict("waiting", "Waiting for a run", "No trainer has opened a run here yet.")
    alerts = tuple(sorted((event for event in active if _concerns(event, run)), key=_rank))
    silence = _silence(run, alerts, now)
    if last is None and not alerts and not silence:
        return Verdict("waiting", "Waiting for the first step to close", f"{run.batches} batches so far.")
    # What is only worth knowing makes no run unhealthy.
    worst = next((event for event in alerts if event.alert != "NoBatches" and event.severity != "info"), None)
    if worst is not None and (worst.severity == "critical" or not silence):
        return _of_alert(worst, alerts, silence, last)
    if silence:
        return Verdict("stopped", silence, _stopped(worst, last), run.last_step, _version(last), alerts)
    return Verdict("healthy", "Healthy", _numbers(last), alerts=alerts)


def _concerns(event: Event, run: RunRecord) -> bool:
    return event.state == "raised" and event.run in ("", run.run) and event.life in (None, run.life)


def _rank(event: Event) -> tuple[int, int, float]:
    return SEVERITIES.index(event.severity), _ORDER.get(event.alert, len(_ORDER)), event.at


def _of_alert(worst: Event, alerts: tuple[Event, ...], silence: str, last: StepPoint | None) -> Verdict:
    level: VerdictLevel = "critical" if worst.severity == "critical" else "warning"
    summary = rule_of(worst.alert).summary if worst.alert in _ORDER else worst.alert
    headline = f"{summary}. {silence}" if silence else summary
    numbers = _numbers(last, of_label=worst.alert == "EngineWrongWeights")
    evidence = f"{_sentence(worst)} {numbers}" if last else _sentence(worst)
    return Verdict(level, headline, evidence, worst.step, worst.version, alerts)


def _silence(run: RunRecord, alerts: Sequence[Event], now: float) -> str:
    """Return what to say of a run that no message comes from; empty while they come.

    A run that is open is silent when the judge says so, who knows its pace, or when nothing has come for an hour: by
    then the judge may have taken it to have ended. Of one that is not open, and that its trainer has not closed, no
    more is known than when it was heard of: its sidecar may have ended before it did.
    """
    if run.ended_at is not None:  # its trainer has said so
        return f"Ended at {_moment(run.ended_at)}"
    is_silent = now - run.last_at > NO_BATCH_UNPACED_SECONDS or any(event.alert == "NoBatches" for event in alerts)
    return f"No batches since {_moment(run.last_at)}" if is_silent or not run.is_open else ""


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _stopped(worst: Event | None, last: StepPoint | None) -> str:
    if worst is None:
        return f"No alert was active then. {_numbers(last)}"
    return f"Active then: {_sentence(worst)} {_numbers(last)}"


def _version(last: StepPoint | None) -> int | None:
    return None if last is None else last.policy_version


def _numbers(last: StepPoint | None, *, of_label: bool = False) -> str:
    """Return the last step in a sentence; ``of_label``: an engine serves other weights than the lag is counted from."""
    if last is None:
        return "No step has closed."
    mean, ess, lag = (last.values.get(name) for name in ("log_ratio_abs_mean", "ess_ratio", "version_lag_mean"))
    said = ["mean |d| unknown: no finite log-ratio" if mean is None else f"mean |d| {mean:.3g} nats"]
    said += [] if ess is None else [f"ESS {_share(ess)}"]
    said.append(
        "version lag unknown: no versions are sent"
        if lag is None
        else f"version lag {lag:.3g}{' as declared' if of_label else ''}"
    )
    return f"Step {last.last_step}: {', '.join(said)}."


def _share(value: float) -> str:
    """Return a share in percent; what is not quite all of it does not look like all.

    >>> [_share(value) for value in (0.9807, 0.99997, 1.0)]
    ['98.1%', '>99.9%', '100%']
    """
    return ">99.9%" if 0.9995 <= value < 1 else f"{100 * value:.3g}%"


def _sentence(event: Event) -> str:
    """Return an event's evidence as a sentence; an engine's name at its beginning stays as it is spelt."""
    evidence = event.evidence
    if not (event.engine and evidence.startswith(event.engine)):
        evidence = evidence[:1].upper() + evidence[1:]
    return evidence if evidence.endswith(".") else f"{evidence}."
