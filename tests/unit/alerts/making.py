"""Steps and engines for the judge to look at."""

from __future__ import annotations

from satwatch.alerts import JudgeState, observe_step
from satwatch.types import Rule, RunRecord, StepPoint

RUN = RunRecord(
    life=1,
    run="run",
    incarnation="",
    rule=Rule(),
    world_size=1,
    opened_at=0.0,
    last_at=1000.0,
    first_step=0,
    last_step=9,
    steps=10,
    batches=20,
    tokens=4000,
    is_open=True,
)


def step(number, *, batches=2, version=..., **values):
    """Return a closed step, a minute after the one before, of a policy version of its own number."""
    return StepPoint(
        life=1,
        first_step=number,
        last_step=number,
        steps=1,
        at=60.0 * number,
        is_closed=True,
        ranks=1,
        batches=batches,
        policy_version=number if version is ... else version,
        values=values,
    )


def judged(points, state=None):
    """Return the state after some steps, and all that happened."""
    state, events = state or JudgeState("run", 1), []
    for point in points:
        state, more = observe_step(state, point)
        events.extend(more)
    return state, events


def series(name, numbers, first=0, **values):
    """Return one step a number, all else the same."""
    return [step(first + i, **{name: number}, **values) for i, number in enumerate(numbers)]


def told(events):
    """Return what happened as (alert, state, step)."""
    return [(event.alert, event.state, event.step) for event in events]
