"""The quantile is exact: for any n, alpha and values, however it is found."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from satwatch.sat import quantile
from satwatch.sat.quantile import rank, select_on_device, smallest, smallest_weighted
from tests.property.oracle import least_rank
from tests.property.strategies import anything, quantiles

WIDTHS = (np.float32, np.float64)


def sorted_answer(values, alpha):
    numbers = np.sort(np.abs(values[~np.isnan(values)]))
    return float(numbers[least_rank(len(numbers), alpha) - 1]) if len(numbers) else math.nan


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


@given(st.integers(1, 3000), quantiles)
def test_rank_is_the_least_k(n, alpha):
    assert rank(n, alpha) == least_rank(n, alpha)


@pytest.mark.parametrize("n", [3, 399, 1000, 12_345])
def test_rank_just_beside_a_share(n):
    for k in (1, n // 2, n - 1):
        assert rank(n, k / n) == least_rank(n, k / n)
        assert rank(n, math.nextafter(k / n, 1)) == least_rank(n, math.nextafter(k / n, 1)) == k + 1
        if k > 1:
            assert rank(n, math.nextafter(k / n, 0)) == k


def test_a_bracket_that_misses_finds_nothing():
    values = np.arange(1.0, 11.0)
    bits = values.view(np.int64).tolist()
    assert quantile._select_between(values, 0.5, bits[4], bits[6]) == 5.0
    assert quantile._select_between(values, 0.5, bits[5], bits[6]) is None
    assert quantile._select_between(values, 0.5, bits[1], bits[3]) is None


@given(st.integers(1, 2**53), quantiles)
def test_rank_for_large_n_is_where_the_division_first_reaches_alpha(n, alpha):
    k = rank(n, alpha)
    assert 1 <= k <= n
    assert k / n >= alpha or k == n
    assert k == 1 or (k - 1) / n < alpha
    assert abs(k - Fraction(alpha) * n) <= 2 + n * Fraction(2) ** -52


@given(st.lists(anything, max_size=60), quantiles, st.sampled_from(WIDTHS))
def test_every_way_gives_the_sorted_answer(numbers, alpha, width):
    values = np.array(numbers, dtype=width)
    want = sorted_answer(values, alpha)
    assert same(smallest(values, alpha), want)
    assert same(quantile._select_by_digits(values, alpha), want)
    assert same(float(select_on_device(torch.from_numpy(values), None, alpha)), want)


ORDERS = {
    "shuffled": lambda v: v,
    "ascending": np.sort,
    "sample sees the small ones": lambda v: np.where(np.arange(len(v)) % (len(v) // quantile.SAMPLE) == 0, v * 1e-6, v),
    "two values": lambda v: np.where(v > 0, 1.0, 0.0).astype(v.dtype),
    "half NaN": lambda v: np.where(np.arange(len(v)) % 2, np.nan, v).astype(v.dtype),
    "a third infinite": lambda v: np.where(np.arange(len(v)) % 3, v, -np.inf).astype(v.dtype),
    "all NaN": lambda v: np.full_like(v, np.nan),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("alpha", [0.001, 0.5, 0.9, 0.9999])
def test_large_arrays_in_every_order(order, width, alpha):
    n = 2 * quantile.CHUNK + 12_345
    values = ORDERS[order](np.random.default_rng(7).standard_normal(n).astype(width))
    numbers = np.sort(np.abs(values[~np.isnan(values)]))
    want = float(numbers[rank(len(numbers), alpha) - 1]) if len(numbers) else math.nan
    assert same(smallest(values, alpha), want)
    assert same(quantile._select_by_digits(values, alpha), want)


@given(st.lists(st.tuples(anything, st.integers(0, 9)), max_size=40), quantiles)
def test_weighted_is_the_quantile_of_the_repeated_values(pairs, alpha):
    values = np.array([value for value, _ in pairs], dtype=np.float64)
    weights = np.array([weight for _, weight in pairs], dtype=np.int64)
    want = sorted_answer(np.repeat(values, weights), alpha)
    assert same(smallest_weighted(values, weights, alpha), want)


@given(st.lists(anything, max_size=40), st.data(), quantiles)
def test_device_selection_honours_the_mask(numbers, data, alpha):
    values = np.array(numbers, dtype=np.float32)
    active = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))), dtype=bool)
    found = select_on_device(torch.from_numpy(values), torch.from_numpy(active), alpha)
    assert same(float(found), sorted_answer(values[active], alpha))
