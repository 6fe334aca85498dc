"""What a run did, in sentences: each says what its records show, and no more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from satwatch.demo.config import DemoConfig, FaultName
from satwatch.demo.faults import NAN_TOKENS, RAISES, VERSIONS_BETWEEN_UPDATES, WRONG_TEMPERATURE
from satwatch.demo.findings import Alert
from satwatch.demo.summary import DemoSummary, StepRecord

_FAULTS: Final[Mapping[FaultName, str]] = {
    "lag": f"the engine took new weights at every {VERSIONS_BETWEEN_UPDATES}nd version only, and said so",
    "nan": f"the engine gave {NAN_TOKENS} tokens a step a log-prob that is no number",
    "stale-engine": "the engine took no more weights, and named each new version as its own",
    "temperature": f"the engine sampled at temperature {WRONG_TEMPERATURE:g}, which the trainer took for 1",
}


def closing_lines(config: DemoConfig, summary: DemoSummary, records: list[StepRecord]) -> list[str]:
    """Sum a run up.

    Args:
        config: the run.
        summary: its summary.
        records: its steps, at least one; fewer than ``config.steps`` when it was interrupted.

    Returns:
        Sentences, one a line.
    """
    return [
        _length(config, summary),
        *_fault(config, summary),
        *_found(config, summary),
        _reward(summary),
        _age(records),
        _mismatch(config, summary),
        _gate(config, records),
        _source(summary),
    ]


def _length(config: DemoConfig, summary: DemoSummary) -> str:
    if summary.steps < config.steps:
        return f"Interrupted after {summary.steps} of {config.steps} steps, {summary.seconds:.1f} s."
    return f"Trained {_count(summary.steps, 'step')} in {summary.seconds:.1f} s."


def _fault(config: DemoConfig, summary: DemoSummary) -> list[str]:
    first = config.first_faulty_batch
    if first is None:
        return []
    if first >= summary.steps:
        return [f"The fault {config.fault} was to come with step {first}, which was not reached."]
    return [f"Injected from step {first} on: fault {config.fault}, {_FAULTS[config.fault]}."]


def _found(config: DemoConfig, summary: DemoSummary) -> list[str]:
    """Say what the sidecar made of it, and how soon it found what was injected."""
    found = summary.found
    if found is None:
        return []
    lines = [_alert(alert, summary.fault_step, config.lag) for alert in found.alerts]
    if summary.fault_step is not None and not any(alert.alert in RAISES[summary.fault] for alert in found.alerts):
        lines.append(f"Not found yet: {' or '.join(RAISES[summary.fault])} was not raised.")
    lag = f", {_count(found.engine_lag, 'version')} behind" if found.engine_lag else ""
    state = "" if found.engine_state is None else f" The engine's state: {found.engine_state}{lag}."
    return [*lines, f"The sidecar's verdict: {found.verdict}.{state}"]


def _alert(alert: Alert, injected: int | None, lag: int) -> str:
    """Say what an alert says, and where it began; with ``injected``, how long after that step."""
    about = f"engine {alert.engine}: " if alert.engine and not alert.evidence.startswith(alert.engine) else ""
    version = "" if alert.version is None else f", version {alert.version}"
    place = "" if alert.step is None else f" at step {alert.step}{version}"
    after = ""
    if injected is not None and alert.step is not None:
        # What is seen of an engine itself may come before the trainer has what it generated.
        ahead = lag + 1 if alert.engine else 0
        after = _after(alert.step - injected, ahead)
    return f"Found{place} by {alert.alert} ({alert.severity}){after}: {about}{alert.evidence.rstrip('.')}."


def _after(steps: int, ahead: int) -> str:
    """Say how many steps after the fault's first one, or before it: up to ``ahead`` of them the engine is ahead."""
    if steps < -ahead:
        return ", before the fault"
    if steps < 0:
        return f", {_count(-steps, 'step')} before the trainer had its first tokens"
    return f", {_count(steps, 'step')} later" if steps else ", in that very step"


def _reward(summary: DemoSummary) -> str:
    first, last = summary.reward_first_quarter, summary.reward_last_quarter
    if summary.steps == 1:
        return f"The reward was {first:.3f}."
    return f"The reward went from {first:.3f} (mean of the first quarter of the steps) to {last:.3f} (of the last)."


def _age(records: list[StepRecord]) -> str:
    ages = [r.version_lag for r in records]
    oldest = max(ages)
    if oldest == 0:
        return "The tokens were sampled by the very version that they trained."
    if min(ages) == oldest:
        return f"The tokens were {_count(oldest, 'policy version')} old."
    mean = math.fsum(ages) / len(ages)
    return f"The tokens were up to {_count(oldest, 'policy version')} old, {mean:.1f} on average."


def _mismatch(config: DemoConfig, summary: DemoSummary) -> str:
    if summary.log_ratio_abs_mean is None or summary.quantile_reference_mean is None:
        return "Between trainer and engine, mean |d| or q had no finite value."
    judged = "|d|" if config.level == "token" else "|mean d| of the responses"
    return (
        f"Between trainer and engine, mean |d| was {summary.log_ratio_abs_mean:.4f} nats; "
        f"q, the {config.rule.quantile:g} quantile of {judged}, was {summary.quantile_reference_mean:.4f} on average."
    )


def _gate(config: DemoConfig, records: list[StepRecord]) -> str:
    tokens = sum(r.tokens for r in records)
    if not config.adaptive:
        return f"Each of the {tokens:,} tokens had PPO's interval: objective {config.objective} contracts none."
    gated, within = sum(r.gated_tokens for r in records), sum(r.gated_within_ppo for r in records)
    contracted = f"The gate contracted the clip interval of {gated:,} of {tokens:,} tokens ({gated / tokens:.1%})"
    if not gated:
        return f"{contracted}."
    return f"{contracted}; {within:,} of those ({within / gated:.1%}) were not already beyond PPO's own bound."


def _source(summary: DemoSummary) -> str:
    answered, computed = summary.bounds_from_sidecar, summary.bounds_from_fallback
    if not answered:
        return f"The trainer bounded all {_count(computed, 'batch', 'batches')} by itself: the sidecar bounded none."
    if not computed:
        said = f"The sidecar bounded all {_count(answered, 'batch', 'batches')}, the trainer none by itself."
    else:
        said = (
            f"The sidecar bounded {_count(answered, 'batch', 'batches')}; "
            f"the trainer bounded {computed:,} by itself, without the sidecar's answer."
        )
    if summary.round_trip_seconds is None:
        return said
    return f"{said} The median round trip was {summary.round_trip_seconds * 1e3:.1f} ms."


def _count(number: float, one: str, many: str = "") -> str:
    return f"{number:,.12g} {one if number == 1 else many or one + 's'}"
