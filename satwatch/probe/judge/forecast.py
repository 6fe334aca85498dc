"""The version lag to expect of live engines, from what they count and when the trainer publishes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from satwatch.errors import ConfigError, required
from satwatch.types import is_number

# As satwatch.sat.forecast.Lengths, which is not asked for it: it brings torch, which takes seconds to load.
WIDEST: Final = 10.0


@dataclass(frozen=True, slots=True)
class EngineForecast:
    """What the engines' pace and the trainer's lead to; None is unknown.

    Attributes:
        step_seconds: between two published versions, median.
        response_seconds: to generate a response, mean, without its time in the queue.
        responses_per_second: that the running requests finish at.
        responses_per_step: that they finish between two versions.
        version_lag_generation: N_PQS, versions published between a token and the end of its response, mean over tokens.
        version_lag_generation_least: the same if all responses were as long as the mean: no spread gives less.
    """

    step_seconds: float | None = None
    response_seconds: float | None = None
    responses_per_second: float | None = None
    responses_per_step: float | None = None
    version_lag_generation: float | None = None
    version_lag_generation_least: float | None = None


def forecast_from_engines(
    *,
    requests_running: float | None,
    seconds_per_token: float | None,
    length_mean: float | None,
    published_at: Sequence[float],
    length_cv: float = 1.0,
) -> EngineForecast:
    r"""Forecast the lag that tokens gain while they are generated.

    .. math:: N_{PQS} = \frac{E[L^2]}{2 E[L]} \frac{\tau}{T}

    An engine counts its responses' mean length and not their spread, so the spread is an assumption, and the value
    without one a floor. What waits in the trainer's queue no engine knows: for N_IQS there is ``forecast_lag``.

    Args:
        requests_running: over all engines.
        seconds_per_token: of one request's decoding, mean.
        length_mean: output tokens of a finished response, mean.
        published_at: when versions were published, oldest first, seconds on any clock; two or more tell a period.
        length_cv: the lengths' standard deviation over their mean.

    Raises:
        ConfigError: a length_cv that can't be meant.

    >>> forecast = forecast_from_engines(
    ...     requests_running=64, seconds_per_token=0.025, length_mean=4000.0, published_at=[0.0, 50.0, 100.0])
    >>> forecast.version_lag_generation, forecast.version_lag_generation_least, forecast.responses_per_step
    (2.0, 1.0, 32.0)
    """
    if not (is_number(length_cv) and 0 <= length_cv <= WIDEST):
        raise ConfigError(required("length_cv", repr(length_cv), f"a number from 0 to {WIDEST:g}"))
    tau, mean = _positive(seconds_per_token), _positive(length_mean)
    step = _positive(median(later - earlier for earlier, later in pairwise(published_at))) if published_at[1:] else None
    response = None if tau is None or mean is None else _positive(tau * mean)
    running = requests_running if requests_running is not None and 0 <= requests_running < math.inf else None
    pace = None if running is None or response is None else running / response
    least = None if response is None or step is None else response / (2 * step)
    return EngineForecast(
        step_seconds=step,
        response_seconds=response,
        responses_per_second=pace,
        responses_per_step=None if pace is None or step is None else pace * step,
        version_lag_generation=None if least is None else least * (1 + length_cv**2),
        version_lag_generation_least=least,
    )


def _positive(value: float | None) -> float | None:
    """Return a finite value above 0, else None: an engine that has finished nothing yet says 0 or NaN."""
    return value if value is not None and 0 < value < math.inf else None
