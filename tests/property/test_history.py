"""Any totals through bytes and back; any steps at any level."""

from __future__ import annotations

import math
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from satwatch.history import Recorder, open_store
from satwatch.sat import BatchSummary, Deltas, Gap, Sketch, StepTotals, VersionLag
from satwatch.sat.codec import decode_totals, encode_totals
from satwatch.sat.moments import Moments
from satwatch.sat.summary import GateSums
from satwatch.types import MAX_STEP, LayerRouting, LengthLag, Routing, Total
from tests.unit.history.making import opened, same, seen, shows

counts = st.integers(0, 2**62)
numbers = st.floats(allow_nan=True, allow_infinity=True)
steps = st.integers(-MAX_STEP, MAX_STEP)
by_lag = st.dictionaries(st.integers(0, 2**40), counts, max_size=4)


def flat(cls, **given):
    """A dataclass of numbers, whole where its default is."""
    fields = cls.__dataclass_fields__.values()
    return st.builds(cls, **{f.name: numbers if isinstance(f.default, float) else counts for f in fields} | given)


@st.composite
def sketches(draw):
    codes = sorted(draw(st.sets(st.integers(0, 2**16 - 1), max_size=12)))
    found = draw(st.lists(st.integers(1, 2**50), min_size=len(codes), max_size=len(codes)))
    return Sketch(np.array(codes, np.uint16), np.array(found, np.int64), draw(flat(Moments)))


@st.composite
def routings(draw):
    layers = []
    for index in sorted(draw(st.sets(st.integers(0, 99), max_size=3))):
        tokens = draw(st.integers(0, 10**9))
        flipped = draw(st.integers(0, tokens))
        layers.append(LayerRouting(index, tokens, flipped, draw(st.integers(flipped, 8 * flipped)), 8))
    tokens = draw(st.integers(0, 10**9))
    return Routing(tuple(layers), tokens, draw(st.integers(0, tokens)), draw(counts))


gaps = flat(Gap)
summaries = st.builds(
    BatchSummary, sketches(), flat(GateSums), numbers, st.booleans(), st.none() | st.tuples(numbers, numbers)
)
lags = st.builds(VersionLag, counts, by_lag, by_lag, by_lag, counts, st.dictionaries(steps, counts, max_size=4))
lengths = st.lists(flat(LengthLag, longest=counts, responses=counts), max_size=3)
totals = st.builds(
    StepTotals,
    summary=summaries,
    lag=lags,
    routing=st.none() | routings(),
    deltas=st.builds(Deltas, gaps, gaps, gaps),
    lengths=lengths.map(lambda buckets: {bucket.longest: bucket for bucket in buckets}),
    measures=st.dictionaries(st.text(max_size=8), flat(Total), max_size=3),
    batches=counts,
    client_fallbacks=counts,
)


@given(totals)
def test_totals_come_back_as_they_were(told):
    assert same(decode_totals(encode_totals(told)), told)


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    store = open_store(str(tmp_path_factory.mktemp("history") / "h.sqlite"))
    recorder = Recorder(store, commit_seconds=0.001)
    yield store, recorder
    assert recorder.close(60)
    store.close()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.one_of(st.integers(-5, 40), st.integers(0, 600), steps), min_size=1, max_size=40),
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.integers(1, 12),
)
def test_any_steps_in_any_order_are_the_same_history(history, told, groups, max_points):
    store, recorder = history
    run = f"r{len(store.runs())}"
    recorder.put(opened(run, run))
    while told:
        group, told = told[: groups[0]], told[groups[0] :]
        groups = [*groups[1:], groups[0]]
        for step in group:
            recorder.put(seen(step, key=run))
        assert recorder.flush(60)
        check(store, run, max_points)


def check(store, run, max_points):
    """Points are in order, hold each step once, and each is the merge of its steps."""
    alone = [point.first_step for point in store.steps(run, max_points=5000)]
    assert alone == sorted(set(alone))
    points = store.steps(run, max_points=max_points)
    assert len(points) <= max_points
    assert sum(point.steps for point in points) == len(alone)
    for point in points:
        shows(point, [step for step in alone if point.first_step <= step <= point.last_step])
    for before, after in pairwise(points):
        assert before.last_step < after.first_step


@given(st.lists(st.floats(-30, 30) | st.sampled_from([math.nan, math.inf, -math.inf]), min_size=2, max_size=40))
def test_what_was_stored_merges_as_what_was_not(values):
    tokens = np.array(values)
    parts = [
        StepTotals(BatchSummary(Sketch.build(part), GateSums(), 0.1, False, None), batches=1)
        for part in np.array_split(tokens, 3)
    ]
    through = [decode_totals(encode_totals(part)) for part in parts]
    merged = reduce(StepTotals.merge, through)
    assert same(merged, reduce(StepTotals.merge, parts))
    assert merged.summary.sketch.moments.tokens == len(tokens)
