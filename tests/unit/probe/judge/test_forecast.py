"""The lag to expect of live engines: unknown is not zero."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from satwatch.errors import ConfigError
from satwatch.probe.judge.forecast import forecast_from_engines
from satwatch.sat.forecast import Lengths, Pipeline, forecast_lag

KNOWN = {
    "requests_running": 64,
    "seconds_per_token": 0.025,
    "length_mean": 4000.0,
    "published_at": [10.0, 60.0, 110.0, 400.0],
}


def test_it_is_the_forecast_of_the_same_run():
    """64 requests at 40 tokens/s give 0.64 responses/s; a batch of 32 is a step of 50 s."""
    forecast = forecast_from_engines(**KNOWN, length_cv=1.5)
    same = forecast_lag(Pipeline(64, 40.0, Lengths.lognormal(4000.0, 1.5), 32, 32, 10.0))

    assert (forecast.step_seconds, forecast.response_seconds) == (50.0, 100.0)
    assert forecast.responses_per_step == pytest.approx(32)
    # The forecast of a whole run knows that one slot of 64 brings no versions to its own response.
    assert forecast.version_lag_generation == pytest.approx(same.version_lag_generation, rel=1 / 64)


def test_a_late_publish_does_not_change_the_period():
    """The median: one checkpoint that took five minutes says nothing about the steps."""
    assert forecast_from_engines(**KNOWN).step_seconds == 50.0


def test_without_a_spread_no_lag_is_lower():
    forecast = forecast_from_engines(**KNOWN, length_cv=0.0)

    assert forecast.version_lag_generation == forecast.version_lag_generation_least == 1.0


@pytest.mark.parametrize("published", [[], [10.0], [10.0, 10.0]])
def test_without_a_period_the_lag_is_unknown(published: list[float]):
    forecast = forecast_from_engines(**{**KNOWN, "published_at": published})

    assert forecast.version_lag_generation is None
    assert forecast.version_lag_generation_least is None
    assert forecast.responses_per_step is None
    assert forecast.responses_per_second == pytest.approx(0.64)


@pytest.mark.parametrize("field", ["seconds_per_token", "length_mean"])
@pytest.mark.parametrize("value", [None, 0.0, float("nan"), float("inf"), -1.0])
def test_what_an_engine_does_not_say_yet_is_unknown(field: str, value: float | None):
    forecast = asdict(forecast_from_engines(**{**KNOWN, field: value}))

    assert {name for name, known in forecast.items() if known is not None} == {"step_seconds"}


def test_an_idle_engine_finishes_nothing():
    forecast = forecast_from_engines(**{**KNOWN, "requests_running": 0})

    assert (forecast.responses_per_second, forecast.responses_per_step) == (0.0, 0.0)


def test_a_spread_that_cannot_be_meant_is_refused():
    with pytest.raises(ConfigError, match=r"^length_cv: got -1\.0, "):
        forecast_from_engines(**KNOWN, length_cv=-1.0)


def test_a_response_too_short_for_a_float_is_unknown():
    forecast = forecast_from_engines(**{**KNOWN, "seconds_per_token": 1e-200, "length_mean": 1e-200})

    assert (forecast.response_seconds, forecast.responses_per_second, forecast.version_lag_generation) == (None,) * 3


def test_a_length_that_no_response_has_is_no_error_of_the_probe():
    assert forecast_from_engines(**{**KNOWN, "length_mean": 1e12}).version_lag_generation == pytest.approx(5e8)
