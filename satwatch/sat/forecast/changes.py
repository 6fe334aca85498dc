"""What a change of one thing does to the forecast: where a run's lag comes from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from satwatch.sat.forecast.forecast import LagForecast, forecast_lag
from satwatch.sat.forecast.lengths import Lengths
from satwatch.sat.forecast.pipeline import Pipeline

RATIOS: Final = (0.25, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 2.0, 4.0)
# A change that costs less of the throughput than this is free.
FREE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Change:
    """One thing changed, all else as it was.

    Attributes:
        name: what, in words.
        forecast: what it leads to.
        responses_per_second: that the trainer trains on.
    """

    name: str
    forecast: LagForecast
    responses_per_second: float


def forecast_changes(pipeline: Pipeline) -> tuple[Change, ...]:
    """Forecast the run as it is, named "now", and then with one thing halved at a time, or doubled where less is worse.

    Args:
        pipeline: the run.

    >>> changes = forecast_changes(Pipeline(512, 40.0, Lengths.lognormal(4000.0, 1.2), 1024, 512, 60.0))
    >>> best_change(changes).name, best_change(changes, free=True).name
    ('half the concurrency', 'batches twice as large, and as long')
    """
    changes = []
    for name, changed in (("now", pipeline), *_halved(pipeline)):
        forecast = forecast_lag(changed)
        changes.append(Change(name, forecast, changed.batch_responses / forecast.step_seconds))
    return tuple(changes)


def _halved(pipeline: Pipeline) -> Iterator[tuple[str, Pipeline]]:
    lengths = pipeline.lengths
    if pipeline.concurrency > 1:
        yield "half the concurrency", replace(pipeline, concurrency=pipeline.concurrency // 2)
    if pipeline.queue_capacity:
        yield "half the queue", replace(pipeline, queue_capacity=pipeline.queue_capacity // 2)
    if lengths.cv:
        yield "half the lengths' spread", replace(pipeline, lengths=Lengths.lognormal(lengths.mean, lengths.cv / 2))
    yield "tokens twice as fast", replace(pipeline, tokens_per_second=2 * pipeline.tokens_per_second)
    yield "training twice as fast", replace(pipeline, train_seconds=pipeline.train_seconds / 2)
    if pipeline.sync_seconds:
        yield "half the sync time", replace(pipeline, sync_seconds=pipeline.sync_seconds / 2)
    larger = replace(pipeline, batch_responses=2 * pipeline.batch_responses, train_seconds=2 * pipeline.train_seconds)
    yield "batches twice as large, and as long", larger


def best_change(changes: Sequence[Change], *, free: bool = False) -> Change | None:
    """Return the change that lowers the lag most, of those that lower it.

    Args:
        changes: as :func:`forecast_changes` gives them, the run as it is first.
        free: only a change that leaves the throughput as it is.
    """
    now, *others = changes
    floor = now.responses_per_second * (1 - FREE) if free else -math.inf
    better = [
        change
        for change in others
        if change.forecast.version_lag < now.forecast.version_lag and change.responses_per_second >= floor
    ]
    return min(better, key=lambda change: change.forecast.version_lag, default=None)


def forecast_by_ratio(pipeline: Pipeline, ratios: Sequence[float] = RATIOS) -> tuple[LagForecast, ...]:
    """Forecast the run at other throughput ratios: with a training time that makes each.

    Args:
        pipeline: the run.
        ratios: of the rollout's throughput to the trainer's, above 0.
    """
    per_ratio = pipeline.train_seconds / pipeline.throughput_ratio
    return tuple(forecast_lag(replace(pipeline, train_seconds=ratio * per_ratio)) for ratio in ratios)
