"""How an alert is raised once and resolved with hysteresis, whatever its condition is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from satwatch.alerts.rule import AlertRule
from satwatch.types import Event, EventState


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a condition says of one observation. A condition that can't be told says nothing: it gives no sighting.

    Attributes:
        is_bad: the condition holds.
        evidence: a sentence with the numbers, true either way.
        value: what was compared.
        threshold: with what.
        at: Unix time in seconds.
        step: the step looked at, or None.
        version: the step's policy version, or the engine's.
    """

    is_bad: bool
    evidence: str
    value: float | None
    threshold: float | None
    at: float
    step: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an alert stands.

    Attributes:
        first: the first of the sightings in a row that say the same, or None before any.
        times: how many there are.
        raised: the event that raised it, or None while it isn't.
    """

    first: Sighting | None = None
    times: int = 0
    raised: Event | None = None

    def see(self, sighting: Sighting) -> Standing:
        """Return the standing after one more sighting."""
        if self.first is None or self.first.is_bad != sighting.is_bad:
            return replace(self, first=sighting, times=1)
        first = self.first
        if sighting.at < first.at:  # a clock that was set back: seconds are counted from there
            first = replace(first, at=sighting.at)
        return replace(self, first=first, times=self.times + 1)


@dataclass(frozen=True, slots=True)
class Patience:
    """How many sightings in a row, over how many seconds, it takes to raise an alert and to resolve it."""

    hold_times: int = 1
    hold_seconds: float = 0.0
    clear_times: int = 1
    clear_seconds: float = 0.0

    @classmethod
    def of_steps(cls, rule: AlertRule) -> Patience:
        """Return a rule's patience with steps."""
        return cls(hold_times=rule.hold_steps, clear_times=rule.clear_steps)

    @classmethod
    def of_seconds(cls, rule: AlertRule) -> Patience:
        """Return a rule's patience with what is looked at all the time."""
        return cls(hold_seconds=rule.hold_seconds, clear_seconds=rule.clear_seconds)


@dataclass(frozen=True, slots=True)
class Subject:
    """What an alert is about; the fields are those of its events."""

    run: str = ""
    life: int | None = None
    engine: str = ""


def follow(
    standing: Standing, sighting: Sighting | None, rule: AlertRule, subject: Subject, patience: Patience
) -> tuple[Standing, Event | None]:
    """Return where an alert stands after an observation, and the event if it was raised or resolved by it."""
    if sighting is None:
        return standing, None
    standing = standing.see(sighting)
    first = standing.first or sighting
    lasted = sighting.at - first.at
    if standing.raised is None:
        if sighting.is_bad and standing.times >= patience.hold_times and lasted >= patience.hold_seconds:
            event = _event(rule, subject, sighting, first, "raised", _since(sighting, first))
            return replace(standing, raised=event), event
    elif not sighting.is_bad and standing.times >= patience.clear_times and lasted >= patience.clear_seconds:
        return replace(standing, raised=None), _event(rule, subject, sighting, first, "resolved", sighting.evidence)
    return standing, None


def resolved(event: Event, at: float, why: str) -> Event:
    """Return the event that resolves a raised one, for a reason beside its condition."""
    return replace(event, state="resolved", at=at, evidence=why, step=None, value=None, threshold=None, id=0)


def _event(
    rule: AlertRule, subject: Subject, sighting: Sighting, first: Sighting, state: EventState, evidence: str
) -> Event:
    return Event(
        alert=rule.name,
        severity=rule.severity,
        state=state,
        at=sighting.at,
        evidence=evidence,
        run=subject.run,
        life=subject.life,
        engine=subject.engine,
        step=first.step,
        version=first.version,
        value=sighting.value,
        threshold=sighting.threshold,
    )


def _since(sighting: Sighting, first: Sighting) -> str:
    if first.step is None or first.step == sighting.step:
        return sighting.evidence
    return f"{sighting.evidence}; since step {first.step}"
