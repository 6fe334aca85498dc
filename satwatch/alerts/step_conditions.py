"""The conditions of a run's alerts on one closed step, against the steps before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from satwatch.alerts.past import Past, quantile
from satwatch.alerts.standing import Sighting
from satwatch.alerts.thresholds import (
    BYPASSED,
    COVERAGE,
    DRIFT_LAG_SHARE,
    DRIFT_PAST,
    DRIFT_TIMES,
    ESS_COLLAPSED,
    ESS_LOW,
    EXTREME,
    FLOOR_TIMES,
    LAG_MORE,
    LAG_PAST,
    LAG_SETTLED,
    LAG_TIMES,
    LOW,
    MISMATCH,
    REPLAY_PAST,
    SPIKE_PAST,
    SPIKE_TIMES,
    TAIL_FALLING,
    TAIL_INDEX,
)
from satwatch.types import StepPoint


@dataclass(frozen=True, slots=True)
class Baseline:
    """What is remembered of the steps before.

    Attributes:
        mismatch: mean abs(d), with the lag it was seen at.
        floor: mean abs(delta_impl).
        lag: mean version lag, from where a queue that fills in the beginning has settled.
        lag_steps: steps with a known lag, the beginning included.
        replayed_steps: steps whose router flip rate was exactly 0.
        was_covered: a step had the versions of all its tokens.
    """

    mismatch: Past = field(default_factory=Past)
    floor: Past = field(default_factory=Past)
    lag: Past = field(default_factory=Past)
    lag_steps: int = 0
    replayed_steps: int = 0
    was_covered: bool = False

    def add(self, point: StepPoint) -> Baseline:
        """Return the baseline with one more step."""
        lag = _value(point, "version_lag_mean")
        return Baseline(
            mismatch=self.mismatch.add(_value(point, "log_ratio_abs_mean"), lag),
            floor=self.floor.add(_value(point, "delta_impl_abs_mean")),
            lag=self.lag.add(lag if self.lag_steps >= LAG_SETTLED else None),
            lag_steps=self.lag_steps + (lag is not None),
            replayed_steps=self.replayed_steps + (_value(point, "router_flip_rate") == 0),
            was_covered=self.was_covered or _value(point, "version_coverage_ratio") == 1,
        )


_EXCEEDED: Final = "that nine steps in ten of the run's own past exceed"

Condition: TypeAlias = Callable[[StepPoint, Baseline], Sighting | None]


def where(point: StepPoint) -> str:
    """Return a step's name in a sentence."""
    version = "" if point.policy_version is None else f", version {point.policy_version}"
    return f"step {point.last_step}{version}"


def _value(point: StepPoint, name: str) -> float | None:
    """Return a diagnostic; None where it isn't known or is no number."""
    value = point.values.get(name)
    return None if value is None or math.isnan(value) else value


def _sighting(point: StepPoint, is_bad: bool, value: float, threshold: float, evidence: str) -> Sighting:
    return Sighting(is_bad, evidence, value, threshold, point.at, point.last_step, point.policy_version)


def _spike(point: StepPoint, before: Baseline) -> Sighting | None:
    mean, median = _value(point, "log_ratio_abs_mean"), before.mismatch.median()
    if mean is None or median is None or before.mismatch.count < SPIKE_PAST:
        return None
    limit = max(SPIKE_TIMES * median, MISMATCH)
    evidence = f"mean |d| {mean:.3g} nats at {where(point)}: {_times(mean, median)} the median {median:.3g} "
    evidence += f"of the {len(before.mismatch.recent)} steps before"
    return _sighting(point, mean > SPIKE_TIMES * median and mean >= MISMATCH, mean, limit, evidence)


def _drift(point: StepPoint, before: Baseline) -> Sighting | None:
    mean, lag = _value(point, "log_ratio_abs_mean"), _value(point, "version_lag_mean")
    past = before.mismatch.comparable(lag, DRIFT_LAG_SHARE)
    if mean is None or len(past) < DRIFT_PAST:
        return None
    low = quantile(past, LOW)
    evidence = f"mean |d| {mean:.3g} nats at {where(point)}: {_times(mean, low)} the {low:.3g} {_EXCEEDED}"
    return _sighting(
        point, mean > DRIFT_TIMES * low and mean >= MISMATCH, mean, max(DRIFT_TIMES * low, MISMATCH), evidence
    )


def _heavy_tail(point: StepPoint, before: Baseline) -> Sighting | None:
    index, mean = _value(point, "tail_index"), _value(point, "log_ratio_abs_mean")
    if index is None or mean is None:
        return None
    evidence = f"tail index {index:.3g} at {where(point)} (limit {TAIL_INDEX:g}), mean |d| {mean:.3g} nats"
    floor = max(MISMATCH, TAIL_FALLING * (before.mismatch.median() or 0.0))
    return _sighting(point, index > TAIL_INDEX and mean > floor, index, TAIL_INDEX, evidence)


def _lag_rising(point: StepPoint, before: Baseline) -> Sighting | None:
    lag = _value(point, "version_lag_mean")
    if lag is None or before.lag.count < LAG_PAST:
        return None
    low = quantile(before.lag.comparable(), LOW)
    limit = LAG_TIMES * low + LAG_MORE
    evidence = f"mean version lag {lag:.3g} at {where(point)}, against the {low:.3g} {_EXCEEDED}"
    return _sighting(point, lag > limit, lag, limit, evidence)


def _floor_raised(point: StepPoint, before: Baseline) -> Sighting | None:
    floor = _value(point, "delta_impl_abs_mean")
    if floor is None or before.floor.count < DRIFT_PAST:
        return None
    low = quantile(before.floor.comparable(), LOW)
    limit = max(FLOOR_TIMES * low, MISMATCH)
    evidence = f"mean |delta_impl| {floor:.3g} nats at {where(point)}: {_times(floor, low)} the {low:.3g} {_EXCEEDED}"
    return _sighting(point, floor > FLOOR_TIMES * low and floor >= MISMATCH, floor, limit, evidence)


def _ess_below(limit: float) -> Condition:
    def condition(point: StepPoint, before: Baseline) -> Sighting | None:
        ess = _value(point, "ess_ratio")
        if ess is None:
            return None
        return _sighting(point, ess < limit, ess, limit, f"ESS ratio {ess:.3g} at {where(point)} (limit {limit:g})")

    return condition


def _extreme(point: StepPoint, before: Baseline) -> Sighting | None:
    largest = _value(point, "log_ratio_abs_max")
    if largest is None:
        return None
    evidence = f"largest |d| {largest:.3g} nats at {where(point)} (limit {EXTREME:g})"
    return _sighting(point, largest > EXTREME, largest, EXTREME, evidence)


def _tokens_of(name: str, kind: str) -> Condition:
    def condition(point: StepPoint, before: Baseline) -> Sighting | None:
        count = _value(point, name)
        if count is None:
            return None
        tokens = _value(point, "tokens")
        of = "" if tokens is None else f" of {tokens:.0f}"
        return _sighting(point, count > 0, count, 0.0, f"{count:.0f}{of} tokens {kind} at {where(point)}")

    return condition


def _replay_off(point: StepPoint, before: Baseline) -> Sighting | None:
    rate = _value(point, "router_flip_rate")
    if rate is None or before.replayed_steps < REPLAY_PAST:
        return None
    evidence = f"router flip rate {rate:.3g} at {where(point)}, exactly 0 in {before.replayed_steps} steps before"
    return _sighting(point, rate > 0, rate, 0.0, evidence)


def _coverage_lost(point: StepPoint, before: Baseline) -> Sighting | None:
    coverage = _value(point, "version_coverage_ratio")
    if coverage is None or not before.was_covered:
        return None
    evidence = f"{coverage:.1%} of the tokens at {where(point)} came with a version; all did before"
    return _sighting(point, coverage < COVERAGE, coverage, COVERAGE, evidence)


def _bypassed(point: StepPoint, before: Baseline) -> Sighting | None:
    fallbacks = _value(point, "client_fallbacks")
    if fallbacks is None or point.batches + fallbacks == 0:
        return None
    share = fallbacks / (point.batches + fallbacks)
    evidence = f"{fallbacks:.0f} batches answered without the sidecar, {point.batches} with it, told at {where(point)}"
    return _sighting(point, share > BYPASSED, share, BYPASSED, evidence)


def _times(value: float, past: float) -> str:
    return f"{value / past:.3g} times" if past > 0 else "against"


CONDITIONS: Final[Mapping[str, Condition]] = {
    "NanTokens": _tokens_of("nan_tokens", "with a NaN log-ratio"),
    "InfTokens": _tokens_of("inf_tokens", "with an infinite log-ratio"),
    "NegativeLag": _tokens_of("negative_lag_tokens", "from a version newer than the policy"),
    "EssCollapsed": _ess_below(ESS_COLLAPSED),
    "RatioExtreme": _extreme,
    "FloorRaised": _floor_raised,
    "StalenessTailSpike": _spike,
    "StalenessDrift": _drift,
    "VersionLagRising": _lag_rising,
    "EssLow": _ess_below(ESS_LOW),
    "HeavyTail": _heavy_tail,
    "ReplayOff": _replay_off,
    "CoverageLost": _coverage_lost,
    "SidecarBypassed": _bypassed,
}
