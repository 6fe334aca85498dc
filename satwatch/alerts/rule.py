"""What an alert is: one condition, as Prometheus asks it of metrics and as the sidecar asks it of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from satwatch.types import Severity

Scope: TypeAlias = Literal["run", "engine", "sidecar"]

RUNBOOK = "docs/runbook.md"


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One alert of the catalogue.

    Attributes:
        name: the alert's name, the same in events, in Prometheus and in the runbook.
        severity: how bad.
        scope: what it is raised for. The sidecar judges runs and engines itself; what is amiss with the sidecar only
            Prometheus can tell.
        summary: one line, which is the verdict's headline too.
        look_at: what to look at first, in a sentence or two.
        expr: the condition in PromQL; its value is what ``reading`` names.
        reading: the value in words, ``{}`` for the number; ``{} seconds`` is shown as a span of time.
        hold_seconds: how long the condition must last, 0 or more; of an alert of a run this is Prometheus' only.
        clear_seconds: how long it must be gone to resolve.
        hold_steps: steps in a row that must show it, 1 or more, where the sidecar judges a run.
        clear_steps: steps in a row that must not show it to resolve, likewise.
    """

    name: str
    severity: Severity
    scope: Scope
    summary: str
    look_at: str
    expr: str
    reading: str
    hold_seconds: int = 0
    clear_seconds: int = 0
    hold_steps: int = 1
    clear_steps: int = 3

    @property
    def runbook(self) -> str:
        """Its section of the runbook, as a path in the repository.

        >>> from satwatch.alerts import rule_of
        >>> rule_of("EssLow").runbook
        'docs/runbook.md#esslow'
        """
        return f"{RUNBOOK}#{self.name.lower()}"


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """A series that Prometheus keeps of a run's own past, for alerts to compare with.

    Attributes:
        name: the series.
        expr: what it is, in PromQL.
    """

    name: str
    expr: str
