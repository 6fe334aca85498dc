"""Steps with known sums, records stored, and a comparison in which NaN equals NaN."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from functools import reduce

import numpy as np

from satwatch.history import BatchSeen, LifeOpened, Recorder, StepSeen
from satwatch.sat import BatchSummary, Deltas, Gap, Sketch, StepTotals, VersionLag
from satwatch.sat.summary import GateSums
from satwatch.types import BatchRecord, LayerRouting, LengthLag, Routing, Rule, Total, WorstToken

RULE = Rule(eps_high=0.28, exponent=3.0, level="sequence", scope="step")


def record(store, *records):
    """Have all of them stored."""
    recorder = Recorder(store, commit_seconds=0.01)
    for each in records:
        recorder.put(each)
    assert recorder.close(60)


def tokens_of(step, n=50):
    """The log-ratios of a step: the same for the same step."""
    return np.random.default_rng(abs(step)).standard_normal(n) ** 3 * 0.02


def totals_of(step, n=50):
    """One batch with every field set."""
    tokens = tokens_of(step, n)
    return StepTotals(
        summary=BatchSummary(Sketch.build(tokens), GateSums(3, 9.5, 9.25, 0.125, 3, 1.5, n, 2, 4), 0.05, True, None),
        lag=VersionLag(n, {0: n - 20, 2: 10}, {0: n - 20}, {2: 10}, 4, {step: n - 20, step - 2: 10}),
        routing=Routing((LayerRouting(0, n, 5, 6, 8), LayerRouting(3, n, 1, 1, 8)), n, 6, 2),
        deltas=Deltas(Gap(n, 0.5, 1.5), Gap(n, 0.25, 0.75), Gap(10, -0.125, 0.25)),
        lengths={16: LengthLag(16, 2, 20, 20, 8, 10, 3, 5), 32: LengthLag(32, 1, 30)},
        measures={"reward": Total(1.5, 3, 1)},
        batches=1,
        client_fallbacks=2,
    )


def merged(steps, n=50):
    return reduce(StepTotals.merge, [totals_of(step, n) for step in steps])


def opened(key="k", run="r", incarnation="i", *, at=1000.0, world_size=2):
    return LifeOpened(key, run, incarnation, RULE, world_size, at)


def seen(step, totals=None, key="k", *, at=None, is_closed=True, policy_version=None, ranks=2):
    at = 1000.0 + step if at is None else at
    version = step if policy_version is None else policy_version
    return StepSeen(key, step, totals_of(step) if totals is None else totals, at, version, ranks, is_closed)


def batch_seen(step, rank=0, microbatch=0, key="k", *, at=1001.0, values=None):
    worst = (WorstToken(math.nan, 3), WorstToken(-2.5, 7, 1, -0.5, -3.0, -2.75, 0.5, 11, "engine-0"))
    values = {"tokens": 50, "ratio_max": math.inf} if values is None else values
    return BatchSeen(key, BatchRecord(0, step, rank, microbatch, at, step, values, worst))


def same(a, b):
    """Tell whether two values are equal, field by field, NaN equal to NaN."""
    if is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return dict(a).keys() == dict(b).keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def shows(point, steps, n=50):
    """Check that a point shows what its steps add up to, counts exactly and sums up to rounding."""
    whole = merged(steps, n)
    assert (point.first_step, point.last_step, point.steps) == (min(steps), max(steps), len(steps))
    assert point.batches == whole.batches
    assert point.heat == whole.heat()
    assert point.lags == whole.lag.lags
    assert point.generation_lags == whole.lag.generation_lags
    assert point.queue_lags == whole.lag.queue_lags
    assert point.versions == whole.lag.versions
    assert point.length_lags == tuple(bucket for _, bucket in sorted(whole.lengths.items()))
    assert point.layer_flip_rates == whole.layer_flip_rates()
    assert point.values.keys() == whole.values().keys()
    for name, value in whole.values().items():
        assert math.isclose(point.values[name], value, rel_tol=1e-9, abs_tol=1e-12), name
