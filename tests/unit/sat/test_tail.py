"""The tail's counts are exact, bucket by bucket, in both precisions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satwatch.sat import TAIL_EDGES, tail_counts
from satwatch.sat.quantile import CHUNK
from tests.property.strategies import anything

at_an_edge = st.sampled_from([sign * edge for edge in TAIL_EDGES for sign in (1, -1)])


def oracle(values):
    """Count one by one, in Python's doubles."""
    counts = [0] * (len(TAIL_EDGES) + 1)
    for value in map(abs, map(float, values)):
        if not math.isnan(value):
            counts[next((i for i, edge in enumerate(TAIL_EDGES) if value <= edge), len(TAIL_EDGES))] += 1
    return tuple(counts)


@given(st.lists(st.one_of(anything, at_an_edge), max_size=60), st.sampled_from([np.float32, np.float64]))
def test_counts_are_those_of_an_oracle(numbers, dtype):
    values = np.array(numbers, dtype=dtype)
    assert tail_counts(values) == oracle(values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_neighbours_of_an_edge_fall_on_its_sides(dtype):
    values = np.array([np.nextafter(dtype(edge), dtype(to)) for edge in TAIL_EDGES for to in (0, 99)], dtype)
    assert tail_counts(values) == oracle(values)


def test_several_chunks_are_counted_as_one():
    values = np.random.default_rng(0).normal(0, 0.05, CHUNK + 77)
    counts = tail_counts(values)
    edges = [-1.0, *TAIL_EDGES, np.inf]
    assert counts == tuple(np.histogram(np.abs(values), edges)[0].tolist())
    assert sum(counts) == len(values)
