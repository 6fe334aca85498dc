"""The sidecar's own judge: which alerts a step, an engine or the clock raises and resolves.

Pure: a state and an observation give the next state and what happened. The thresholds are the Prometheus rules'; how
long a condition must last is counted in steps where Prometheus counts seconds, since a step is what a run is made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from satwatch.alerts import engine_conditions, step_conditions
from satwatch.alerts.catalogue import rule_of
from satwatch.alerts.engine_conditions import Pace
from satwatch.alerts.standing import Patience, Sighting, Standing, Subject, follow, resolved
from satwatch.alerts.step_conditions import Baseline
from satwatch.alerts.thresholds import (
    NO_BATCH_FORGET_SECONDS,
    NO_BATCH_SECONDS,
    NO_BATCH_TIMES,
    NO_BATCH_UNPACED_SECONDS,
)
from satwatch.types import EngineStatus, Event, StepPoint


@dataclass(frozen=True, slots=True)
class JudgeState:
    """What is remembered between observations: of one life of a run, or of the engines.

    Its size has a bound: the past is thinned, and there is one standing an alert (and engine).

    Attributes:
        run: the run; empty for engines that belong to none.
        life: the run's life, or None.
        last_step: the last step judged.
        baseline: what the next step is compared with.
        standings: where each alert stands, by alert and engine ("" for one of the run).
        paces: how often versions are published, by engine.
    """

    run: str = ""
    life: int | None = None
    last_step: int | None = None
    baseline: Baseline = field(default_factory=Baseline)
    standings: Mapping[tuple[str, str], Standing] = field(default_factory=dict)
    paces: Mapping[str, Pace] = field(default_factory=dict)

    @property
    def active(self) -> tuple[Event, ...]:
        """The alerts that are raised, by the events that raised them."""
        return tuple(standing.raised for standing in self.standings.values() if standing.raised is not None)


def observe_step(state: JudgeState, point: StepPoint) -> tuple[JudgeState, tuple[Event, ...]]:
    """Judge a closed step.

    A step without batches says nothing, and so does one that is not newer than the last one judged: a batch that comes
    late does not change what was said.

    Args:
        state: what is remembered of the life so far; ``JudgeState(run, life)`` at its beginning.
        point: the step alone, not merged with others.

    Returns:
        The state to go on with, and the alerts that were raised or resolved.
    """
    if not point.batches or (state.last_step is not None and point.last_step <= state.last_step):
        return state, ()
    subject = Subject(state.run, state.life)
    sightings = {(name, ""): condition(point, state.baseline) for name, condition in step_conditions.CONDITIONS.items()}
    standings = dict(state.standings)
    events = _follow_all(standings, sightings, subject, by_steps=True)
    baseline = state.baseline.add(point)
    return replace(state, last_step=point.last_step, baseline=baseline, standings=standings), events


def observe_engines(
    state: JudgeState, statuses: Sequence[EngineStatus], at: float, *, step: int | None = None
) -> tuple[JudgeState, tuple[Event, ...]]:
    """Judge the engines.

    Args:
        state: what is remembered of them; ``JudgeState()``, or ``JudgeState(run)`` for the engines of a run.
        statuses: all that are watched now. The alerts of one that is missing are resolved, for nobody looks at it.
        at: now, Unix time in seconds.
        step: the newest step of the run that they serve, for the events to name; None if that isn't known.

    Returns:
        The state to go on with, and the alerts that were raised or resolved.
    """
    names = {status.engine for status in statuses}
    left = [standing.raised for (_, engine), standing in state.standings.items() if engine and engine not in names]
    gone = [resolved(event, at, f"{event.engine} is watched no more") for event in left if event is not None]
    standings = {key: standing for key, standing in state.standings.items() if not key[1] or key[1] in names}
    events: list[Event] = gone
    paces = {s.engine: state.paces.get(s.engine, Pace()).see(s.version_published, at) for s in statuses}
    for status in statuses:
        pace = paces[status.engine]
        sightings = {
            (name, status.engine): _at_step(condition(status, pace, at), step)
            for name, condition in engine_conditions.CONDITIONS.items()
        }
        events.extend(_follow_all(standings, sightings, Subject(state.run, state.life, status.engine)))
    return replace(state, standings=standings, paces=paces), tuple(events)


def observe_clock(
    state: JudgeState, now: float, last_batch_at: float | None, gap: float | None = None
) -> tuple[JudgeState, tuple[Event, ...]]:
    """Judge the silence of a run: no batches for much longer than usual, until it is taken to have ended.

    Args:
        state: what is remembered of the life so far.
        now: Unix time in seconds.
        last_batch_at: when its last batch came, likewise; None before the first.
        gap: the longest time between two batches of its recent past, seconds; None while that isn't known.

    Returns:
        The state to go on with, and the alert that was raised or resolved.
    """
    if last_batch_at is None:
        return state, ()
    silent = max(0.0, now - last_batch_at)
    limit = NO_BATCH_UNPACED_SECONDS if gap is None else max(NO_BATCH_TIMES * gap, NO_BATCH_SECONDS)
    has_ended = silent > limit + NO_BATCH_FORGET_SECONDS
    evidence = f"the last batch came {silent / 60:.0f} minutes ago (limit {limit / 60:.0f})"
    if state.last_step is not None:
        evidence += f"; the last step closed is {state.last_step}"
    evidence += "; the run is taken to have ended" if has_ended else ""
    sighting = Sighting(silent > limit and not has_ended, evidence, silent, float(limit), now, state.last_step)
    standings = dict(state.standings)
    events = _follow_all(standings, {("NoBatches", ""): sighting}, Subject(state.run, state.life))
    return replace(state, standings=standings), events


def resolve_all(state: JudgeState, at: float, why: str) -> tuple[JudgeState, tuple[Event, ...]]:
    """Resolve what is raised, for a reason in a sentence: the life is over, or nobody looks any more."""
    events = tuple(resolved(event, at, why) for event in state.active)
    return replace(state, standings={}), events


def _at_step(sighting: Sighting | None, step: int | None) -> Sighting | None:
    return None if sighting is None else replace(sighting, step=step)


def _follow_all(
    standings: dict[tuple[str, str], Standing],
    sightings: Mapping[tuple[str, str], Sighting | None],
    subject: Subject,
    *,
    by_steps: bool = False,
) -> tuple[Event, ...]:
    """Bring standings to where they are after these sightings, and return the events of it."""
    events = []
    for (name, engine), sighting in sightings.items():
        rule = rule_of(name)
        patience = Patience.of_steps(rule) if by_steps else Patience.of_seconds(rule)
        standing, event = follow(standings.get((name, engine), Standing()), sighting, rule, subject, patience)
        if standing.first is not None:
            standings[name, engine] = standing
        if event is not None:
            events.append(event)
    return tuple(events)
