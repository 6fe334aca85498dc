"""The metrics of the engines, made of their statuses. What is unknown has no sample, and is never 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, get_args

from satwatch.server.engine_families import COUNTERS, DROPPED, ENGINE_FAMILIES, FINDINGS, MEASURES, STATE, UP
from satwatch.server.families import Samples
from satwatch.server.labels import OTHER, divide
from satwatch.types import EngineState, EngineStatus

__all__ = ["ENGINE_FAMILIES", "add_engines"]

# Of several engines the least is the worst; of all other measures the greatest is.
_LEAST_IS_WORST: Final = frozenset(
    {
        "version_served",
        "version_labelled",
        "version_canary",
        "canary_version",
        "generation_tokens_per_second",
    }
)


def add_engines(samples: Samples, statuses: Sequence[EngineStatus], *, dropped: int, most: int) -> int:
    """Add the samples of all engines.

    Args:
        samples: added to.
        statuses: what is known of each engine.
        dropped: statuses left out, ever.
        most: the most labels; the first by name keep theirs.

    Returns:
        How many engines share the label ``_other``, which shows the worst of each measure, and counters added up.
    """
    samples.add(DROPPED.name, dropped)
    own, rest = divide(sorted(statuses, key=lambda status: status.engine), lambda status: status.engine, most)
    for status in own:
        _add(samples, status.engine, [status])
    if rest:
        _add(samples, OTHER, rest)
    return len(rest)


def _add(samples: Samples, label: str, statuses: Sequence[EngineStatus]) -> None:
    """Add the samples of one engine, or of several as one."""
    samples.add(UP.name, all(status.state != "unknown" for status in statuses), label)
    for state in get_args(EngineState):
        samples.add(STATE.name, any(status.state == state for status in statuses), label, state)
    for family in MEASURES:
        field = family.name.removeprefix("satwatch_engine_")
        worst = min if field in _LEAST_IS_WORST else max
        samples.add(family.name, worst(_known(field, statuses), default=None), label)
    for family in COUNTERS:
        field = family.name.removeprefix("satwatch_engine_").removesuffix("_total")
        samples.add(family.name, sum(_known(field, statuses)), label)
    for kind in sorted({finding.kind for status in statuses for finding in status.findings}):
        samples.add(FINDINGS.name, 1, label, kind)


def _known(field: str, statuses: Sequence[EngineStatus]) -> list[float]:
    values = (getattr(status, field) for status in statuses)
    return [value for value in values if value is not None]
