"""The conditions of an engine's alerts on what the probe knows of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from satwatch.alerts.engine_rules import BLIND_FINDING, SUSPECT_FINDINGS
from satwatch.alerts.standing import Sighting
from satwatch.alerts.thresholds import ENGINE_LAG, SYNC_CHANGES, SYNC_SECONDS, SYNC_SHARE
from satwatch.types import EngineStatus, FindingKind


@dataclass(frozen=True, slots=True)
class Pace:
    """How often new versions are published, as seen from an engine's status.

    Attributes:
        version: the version published last, None before any.
        changes: when it was seen to change, Unix time in seconds, the latest few.
    """

    version: int | None = None
    changes: tuple[float, ...] = ()

    def see(self, version: int | None, at: float) -> Pace:
        """Return the pace after one more look."""
        if version is None or version == self.version:
            return self
        is_set_back = bool(self.changes) and at < self.changes[-1]
        if self.version is None or version < self.version or is_set_back:
            return Pace(version)
        return Pace(version, (*self.changes, at)[-(2 * SYNC_CHANGES + 1) :])

    @property
    def seconds(self) -> float | None:
        """Mean time between two versions; None before enough of them."""
        gaps = len(self.changes) - 1
        return (self.changes[-1] - self.changes[0]) / gaps if gaps >= SYNC_CHANGES else None


Condition: TypeAlias = Callable[[EngineStatus, Pace, float], Sighting | None]


def _sighting(
    status: EngineStatus,
    at: float,
    evidence: str,
    *,
    is_bad: bool,
    value: float | None = None,
    threshold: float | None = None,
) -> Sighting:
    serves = "" if status.version_served is None else f", serving version {status.version_served}"
    said = f"{status.engine}{serves}: {evidence}"
    return Sighting(is_bad, said, value, threshold, at, version=status.version_served)


def _wrong_weights(status: EngineStatus, pace: Pace, at: float) -> Sighting | None:
    if status.state == "unknown":
        return None
    if status.state != "wrong_weights":
        return _sighting(status, at, f"its state is {status.state}", is_bad=False)
    told = "; ".join(finding.message for finding in status.findings if finding.kind.startswith("canary_"))
    return _sighting(status, at, told or status.reason or "its canary differs", is_bad=True)


def _behind(status: EngineStatus, pace: Pace, at: float) -> Sighting | None:
    if status.state == "unknown":
        return None
    left = next((finding.message for finding in status.findings if finding.kind == "left_behind"), None)
    lag = status.version_lag
    if left is not None:
        return _sighting(status, at, left, is_bad=True, value=lag)
    if lag is None:
        return None
    evidence = f"{lag} versions behind the {status.version_published} published (limit {ENGINE_LAG})"
    return _sighting(status, at, evidence, is_bad=lag > ENGINE_LAG, value=lag, threshold=ENGINE_LAG)


def _unknown(status: EngineStatus, pace: Pace, at: float) -> Sighting | None:
    is_gone = status.state == "unknown"
    return _sighting(
        status, at, (status.reason or "it can't be looked at") if is_gone else "it answers", is_bad=is_gone
    )


def _found(kinds: Collection[FindingKind], otherwise: str) -> Condition:
    def condition(status: EngineStatus, pace: Pace, at: float) -> Sighting | None:
        if status.state == "unknown":
            return None
        told = [finding.message for finding in status.findings if finding.kind in kinds]
        return _sighting(status, at, "; ".join(told) or otherwise, is_bad=bool(told))

    return condition


def _sync_slow(status: EngineStatus, pace: Pace, at: float) -> Sighting | None:
    sync, between = status.sync_seconds, pace.seconds
    if sync is None or between is None:
        return None
    limit = max(SYNC_SHARE * between, SYNC_SECONDS)
    evidence = f"weights took {sync:.3g} s to arrive, and a new version comes every {between:.3g} s"
    is_bad = sync > SYNC_SHARE * between and sync >= SYNC_SECONDS
    return _sighting(status, at, evidence, is_bad=is_bad, value=sync, threshold=limit)


CONDITIONS: Final[Mapping[str, Condition]] = {
    "EngineWrongWeights": _wrong_weights,
    "EngineBehind": _behind,
    "EngineUnknown": _unknown,
    "EngineSuspect": _found(SUSPECT_FINDINGS, "it contradicts nothing"),
    "SyncSlow": _sync_slow,
    "CanaryNotComparable": _found((BLIND_FINDING,), "its canary can be compared"),
}
