"""A judge that starts again: what was stored of a life brings it back to where it stood."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from satwatch.alerts.judge import JudgeState, observe_step
from satwatch.alerts.standing import Standing, resolved
from satwatch.types import Event, StepPoint


def replay(state: JudgeState, points: Iterable[StepPoint]) -> JudgeState:
    """Return the state after stored steps, whose alerts have been told already.

    Args:
        state: ``JudgeState(run, life)``, or where other steps have led.
        points: steps one by one, ascending; those that are not closed are left out.
    """
    for point in points:
        if point.is_closed:
            state, _ = observe_step(state, point)
    return state


def adopt(state: JudgeState, told: Iterable[Event]) -> JudgeState:
    """Return the state with alerts that a judge of before has raised; what is observed next may resolve them.

    Args:
        state: of the engines of a run.
        told: the events that raised them.
    """
    return replace(state, standings={**state.standings, **{(e.alert, e.engine): Standing(raised=e) for e in told}})


def settle(state: JudgeState, told: Sequence[Event], at: float, why: str) -> tuple[JudgeState, tuple[Event, ...]]:
    """Bring what was told of alerts to what a replayed state says of them.

    Args:
        state: of a life, or of engines.
        told: the events that are raised and not resolved, as they were told.
        at: now, Unix time in seconds.
        why: why those are resolved that the state doesn't hold, in a sentence.

    Returns:
        The state, whose active alerts are named by the events that were told of them; and what is to be told: those
        that are over, and those that were never told.
    """
    by_subject = {(event.alert, event.engine): event for event in told}
    standings = {
        key: standing if standing.raised is None else replace(standing, raised=by_subject.get(key, standing.raised))
        for key, standing in state.standings.items()
    }
    held = {key: standing.raised for key, standing in standings.items() if standing.raised is not None}
    over = [resolved(event, at, why) for key, event in by_subject.items() if key not in held]
    new = [event for key, event in held.items() if key not in by_subject]
    return replace(state, standings=standings), (*over, *new)
