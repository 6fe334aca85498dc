"""What the probe's judgement is told: limits that a person may want to move."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JudgeConfig:
    """The judgement's limits; :class:`satwatch.probe.settings.ProbeSettings` holds those that a user sets.

    Attributes:
        canary_limit: mean abs(log pi - log mu) above which two sides do not have the same weights, nats.
        canary_pulse_seconds: the pause between two scorings of one version.
        canary_wait: how long a new version waits for spare capacity before it is scored all the same.
        canary_lag_seconds: how long after a publishing an engine whose label did not follow is asked by a canary.
        ahead_seconds: how long an engine may serve a version before the trainer says that it published it.
        max_load: the most that the probe may ask of an engine, as a share of its requests and of its time.
        restarted_seconds: how long a restart is told.
        scores_sleepers: whether engines whose memory a trainer may take away are scored too.
    """

    canary_limit: float = 0.1
    canary_pulse_seconds: float = 300.0
    canary_wait: float = 60.0
    canary_lag_seconds: float = 10.0
    ahead_seconds: float = 60.0
    max_load: float = 0.01
    restarted_seconds: float = 60.0
    scores_sleepers: bool = False
