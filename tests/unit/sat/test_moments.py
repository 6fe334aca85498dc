"""Sums against exact arithmetic, and the extremes that overflow it."""

from __future__ import annotations

import math
import sys

import mpmath
import numpy as np
import pytest

from satwatch.sat.moments import LARGEST, Moments, take_moments

RNG = np.random.default_rng(11)
TYPICAL = np.concatenate([RNG.standard_normal(500) * 0.01, RNG.standard_normal(20), [1e-9, -1e-9, 3.0]])


def exactly(values, function):
    with mpmath.workdps(60):
        return float(mpmath.fsum(function(mpmath.mpf(float(x))) for x in values))


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("total", lambda x: x),
        ("absolute", abs),
        ("square", lambda x: x * x),
        ("k3", lambda x: mpmath.expm1(x) - x),
        ("deviation", lambda x: abs(mpmath.expm1(x))),
        ("excess_square", lambda x: mpmath.expm1(2 * x)),
    ],
)
@pytest.mark.parametrize("width", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-7])
def test_sums_are_accurate_to_twelve_digits(name, function, width, scale):
    values = (TYPICAL * scale).astype(width)
    assert getattr(take_moments(values), name) == pytest.approx(exactly(values, function), rel=1e-12)


def test_ratio_sums_are_relative_to_the_highest():
    moments = take_moments(TYPICAL)
    for found, power in ((moments.ratio, 1), (moments.ratio_square, 2)):
        want = exactly(TYPICAL, lambda x, power=power: mpmath.exp(power * (x - moments.highest)))
        assert found == pytest.approx(want, rel=1e-13)


def test_k3_keeps_its_digits_where_expm1_minus_d_loses_them():
    values = np.full(10, 1e-8)
    with mpmath.workdps(60):
        want = 10 * float(mpmath.expm1(mpmath.mpf("1e-8")) - mpmath.mpf("1e-8"))
    assert take_moments(values).k3 == pytest.approx(want, rel=1e-12)


def test_a_ratio_that_overflows_float32_is_exact_in_every_metric():
    """Log pi -2 against log mu -91: d = 89."""
    found = take_moments(np.array([0.01, 89.0], np.float32)).diagnostics()
    assert all(math.isfinite(value) for value in found.values())
    assert found["ratio_max"] == pytest.approx(math.exp(89))
    assert found["log_ratio_abs_max"] == 89.0


@pytest.mark.parametrize("d", [400.0, 800.0, 1e4, 1e300])
def test_ratios_beyond_doubles_saturate(d):
    moments = take_moments(np.array([d, 0.0, -0.5]))
    found = moments.diagnostics()
    assert all(math.isfinite(value) for value in found.values()), found
    assert found["chi2"] == LARGEST == sys.float_info.max
    assert found["ess_ratio"] == pytest.approx(1 / 3)
    assert moments.extreme_tokens == 1


def test_sums_that_overflow_saturate():
    found = take_moments(np.array([1e308, 1e308, 0.0])).diagnostics()
    assert found["log_ratio_mean"] == found["log_ratio_abs_mean"] == -found["kl_k1"] == LARGEST / 3
    assert take_moments(np.array([1.7e308, 1.7e308, -1.7e308, -1.7e308])).diagnostics()["log_ratio_mean"] == 0.0


def test_extreme_is_strictly_beyond_twenty():
    assert take_moments(np.array([20.0, -20.0, np.nextafter(20.0, 21.0)])).extreme_tokens == 1


@pytest.mark.parametrize("d", [-400.0, -1e4, -1e300])
def test_vanishing_ratios_keep_their_ess(d):
    found = take_moments(np.array([d, d])).diagnostics()
    assert found["ess_ratio"] == pytest.approx(1.0)
    assert found["chi2"] == pytest.approx(-1.0)


def test_nan_and_infinite_tokens_are_counted_and_left_out():
    """Abs(d) = .01, .01, NaN, inf: the mean is .01 over two tokens, never .005."""
    moments = take_moments(np.array([0.01, -0.01, math.nan, math.inf]))
    assert (moments.tokens, moments.nan_tokens, moments.inf_tokens, moments.finite_tokens) == (4, 1, 1, 2)
    assert moments.extreme_tokens == 1
    assert moments.diagnostics()["log_ratio_abs_mean"] == pytest.approx(0.01)


def test_one_large_ratio_among_twenty_thousand():
    values = np.concatenate([RNG.standard_normal(19_999) * 1e-3, [8.0]]).astype(np.float32)
    assert take_moments(values).diagnostics()["ratio_max"] == pytest.approx(2980.957987, rel=1e-9)


def test_nothing_finite_has_no_diagnostics():
    assert take_moments(np.array([math.nan, math.inf])).diagnostics() == {}
    assert take_moments(np.empty(0)).diagnostics() == {}


def test_merging_with_nothing_changes_nothing():
    moments = take_moments(TYPICAL)
    assert Moments().merge(moments) == moments == moments.merge(Moments())


@pytest.mark.parametrize("far", [0.0, 89.0, 1e4, -1e300])
def test_merging_batches_of_distant_ratios(far):
    a, b = TYPICAL, TYPICAL[:100] + far
    merged = take_moments(a).merge(take_moments(b)).diagnostics()
    assert merged == pytest.approx(take_moments(np.concatenate([a, b])).diagnostics(), rel=1e-9)
