"""What the sidecar found out about a run, as its history tells it when the run is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from satwatch.alerts import verdict
from satwatch.types import EngineState, Event, History, RunRecord, Severity

# A step is on disk half a second after it closed, if nothing is amiss with the disk.
PATIENCE_SECONDS: Final = 3.0
_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that was raised while the run trained; raised again, it is still one.

    Attributes:
        alert: its name.
        severity: how bad.
        step: the first step that showed it; None: it is of no step.
        version: the policy version of that step, or the engine's.
        engine: the engine; empty for an alert of the run.
        evidence: what was seen, with its numbers.
    """

    alert: str
    severity: Severity
    step: int | None
    version: int | None
    engine: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What the sidecar made of a run.

    Attributes:
        verdict: what to think of the run as it was at its end, in one line.
        engine_state: what the probe last said of the rollout engine; None: nothing.
        engine_lag: by how many versions it was behind then, by its own word; None: unknown.
        alerts: those raised, in that order.
    """

    verdict: str
    engine_state: EngineState | None
    engine_lag: int | None
    alerts: tuple[Alert, ...]


def ask_findings(
    history: History,
    incarnation: str,
    last_step: int,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Findings | None:
    """Ask what was found, as soon as the last step is kept, or soon without it.

    Args:
        history: the sidecar's.
        incarnation: of the life that is asked about.
        last_step: its last step.
        clock: seconds, upwards.
        sleep: waits for so many seconds.

    Returns:
        The findings; None: the sidecar knows no such life.

    Raises:
        SatwatchError: the history can't be read.
    """
    deadline = clock() + PATIENCE_SECONDS
    while True:
        life = next((life for life in history.runs() if life.incarnation == incarnation), None)
        is_kept = life is not None and life.stored_step is not None and life.stored_step >= last_step
        if is_kept or clock() >= deadline:
            break
        sleep(_LOOK_SECONDS)
    return None if life is None else _findings(history, life)


def _findings(history: History, life: RunRecord) -> Findings:
    events = [event for event in history.events(life.run) if event.at >= life.opened_at and _is_of(event, life)]
    records = history.engines(life.run, since=life.opened_at)
    points = history.steps(life.run, life=life.life, first_step=life.last_step) if life.last_step is not None else ()
    # Judged as it was when its last message came: that it has ended since then says nothing of the training.
    as_it_was = replace(life, is_open=True, ended_at=None)
    judged = verdict(as_it_was, _active(events), points[-1] if points else None, life.last_at)
    status = records[-1].status if records else None
    state, lag = (None, None) if status is None else (status.state, status.version_lag)
    return Findings(judged.headline, state, lag, _alerts(events))


def _is_of(event: Event, life: RunRecord) -> bool:
    return event.run == life.run and event.life in (None, life.life)


def _active(events: Sequence[Event]) -> list[Event]:
    """Return the alerts that no step has shown the end of: those that end with the run were active until then."""
    active: dict[tuple[str, str], Event] = {}
    for event in events:
        if event.state == "raised":
            active[event.alert, event.engine] = event
        elif event.step is not None:
            active.pop((event.alert, event.engine), None)
    return [*active.values()]


def _alerts(events: Sequence[Event]) -> tuple[Alert, ...]:
    first: dict[tuple[str, str], Event] = {}
    for event in events:
        if event.state == "raised":
            first.setdefault((event.alert, event.engine), event)
    return tuple(
        Alert(event.alert, event.severity, event.step, event.version, event.engine, event.evidence)
        for event in first.values()
    )
