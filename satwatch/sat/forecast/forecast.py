r"""The version lag to expect of an asynchronous run, before it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from satwatch.sat.forecast.line import Array, Line, growth, settle
from satwatch.sat.forecast.pipeline import Pipeline

Regime: TypeAlias = Literal["rollout-limited", "trainer-limited", "balanced"]

# Within this distance of equal speed chance decides which side waits.
BALANCED: Final = 0.1
TAIL: Final = 0.99
# Moments of a step at which the line is looked at for its mean.
INSTANTS: Final = 32
# Different values of N_IQS that the quantiles tell apart.
MOST_LAGS: Final = 200


@dataclass(frozen=True, slots=True)
class LagForecast:
    """The version lag to expect, in versions; means are over tokens.

    Attributes:
        regime: who waits: ``rollout-limited``: the trainer; ``trainer-limited``: the responses; ``balanced``: now
            one, now the other, and the figures are the least certain.
        throughput_ratio: responses that the slots can finish in a training step over those that it needs.
        step_seconds: T, between two published versions.
        trainer_busy_ratio: share of the time that the trainer trains.
        slots_busy_ratio: share of the slots' time that generates.
        responses_waiting: finished responses that wait, mean over time, those that hold their slots included.
        wait_seconds: that a finished response waits, mean.
        steps_to_settle: steps, about, until a queue that begins empty is near its mean; before that N_IQS is lower.
        version_lag_generation: N_PQS, versions published between a token and the end of its response.
        version_lag_queue: N_IQS, versions published between the end of a response and its step.
        version_lag: N, their sum.
        version_lag_generation_q99: N_PQS of 99% of the tokens is at most this.
        version_lag_queue_q99: N_IQS likewise.
        version_lag_q99: N likewise.
    """

    regime: Regime
    throughput_ratio: float
    step_seconds: float
    trainer_busy_ratio: float
    slots_busy_ratio: float
    responses_waiting: float
    wait_seconds: float
    steps_to_settle: float
    version_lag_generation: float
    version_lag_queue: float
    version_lag: float
    version_lag_generation_q99: int
    version_lag_queue_q99: int
    version_lag_q99: int


def forecast_lag(pipeline: Pipeline) -> LagForecast:
    r"""Forecast the version lag of an asynchronous run.

    .. math::
        T = S + \frac{m}{C} (B - E[g]), \quad
        N_{PQS} = \frac{E[L^2]}{2 E[L]} \frac{\tau}{T}, \quad
        N_{IQS} = \frac{E[x + g]}{B} + \frac{D}{T}

    with :math:`\tau` the seconds of a token, m = :math:`\tau E[L]` those of a response, S the train seconds, D the
    sync seconds, x the line that a step leaves and g what finishes while it trains. The second: the rest of a token's
    response, by inspection paradox, over the time between versions. The third: each publish adds one to the lag of
    every response that waits then, and B responses leave a step.

    Args:
        pipeline: the run.

    Returns:
        The forecast. What the model assumes, and how far it is off, is in docs/forecast.md.

    Example: 512 slots, 40 tokens/s each, 4000 tokens with a tail, batches of 512 and a minute to train on one.

    >>> from satwatch.sat.forecast import Lengths, Pipeline, forecast_lag
    >>> forecast = forecast_lag(Pipeline(512, 40.0, Lengths.lognormal(4000.0, 1.2), 1024, 512, 60.0))
    >>> forecast.regime, round(forecast.version_lag_generation, 2), round(forecast.version_lag_queue, 2)
    ('rollout-limited', 1.22, 0.6)
    """
    line = settle(pipeline)
    idle = max(0.0, pipeline.batch_responses - line.growth_mean) / pipeline.responses_per_second
    period = pipeline.train_seconds + idle
    tokens = period * pipeline.tokens_per_second
    generation = _generation(pipeline, line, tokens)
    queue_lags = line.at_publish(pipeline) / pipeline.batch_responses + pipeline.sync_seconds / period
    queue = float(line.weight @ queue_lags)
    by_queue_lag = _spread(queue_lags, line.weight)
    wait = _waiting(pipeline, line, period)
    return LagForecast(
        regime=_regime(pipeline),
        throughput_ratio=pipeline.throughput_ratio,
        step_seconds=period,
        trainer_busy_ratio=pipeline.train_seconds / period,
        slots_busy_ratio=min(1.0, pipeline.batch_responses / (period * pipeline.responses_per_second)),
        responses_waiting=wait,
        wait_seconds=wait * period / pipeline.batch_responses,
        steps_to_settle=line.steps_to_settle,
        version_lag_generation=generation,
        version_lag_queue=queue,
        version_lag=generation + queue,
        version_lag_generation_q99=_quantile(pipeline, tokens, {0: 1.0}),
        version_lag_queue_q99=_queue_quantile(by_queue_lag),
        version_lag_q99=_quantile(pipeline, tokens, by_queue_lag),
    )


def _regime(pipeline: Pipeline) -> Regime:
    if abs(math.log(pipeline.throughput_ratio)) <= BALANCED:
        return "balanced"
    return "rollout-limited" if pipeline.throughput_ratio < 1 else "trainer-limited"


def _generation(pipeline: Pipeline, line: Line, tokens: float) -> float:
    """Return the mean N_PQS; a response whose slot was held begins at a publish, the others at any moment.

    Args:
        pipeline: the run.
        line: of finished responses.
        tokens: that a response advances by between two versions.
    """
    lengths = pipeline.lengths
    held = min(1.0, float(line.weight @ line.held) / pipeline.batch_responses)
    # Where the steps wait for responses, it is the other slots' responses that bring the versions.
    own = lengths.own_remainder(pipeline.train_seconds * pipeline.tokens_per_second) / pipeline.concurrency
    free = lengths.token_remainder - line.share_waited(pipeline) * own
    return (1 - held) * free / tokens + held * lengths.passes_from_start(tokens)


def _waiting(pipeline: Pipeline, line: Line, period: float) -> float:
    """Return the finished responses that wait, mean over a step's training and the trainer's idle time after it."""
    instants = (np.arange(INSTANTS) + 0.5) / INSTANTS * pipeline.train_seconds
    grown = sum((sum(growth(pipeline, line.left, t)) for t in instants.tolist()), np.zeros_like(line.left)) / INSTANTS
    training = float(line.weight @ (line.left + grown))
    idle = (float(line.weight @ line.at_publish(pipeline)) + pipeline.batch_responses) / 2
    busy = pipeline.train_seconds / period
    return training * busy + idle * (1 - busy)


def _spread(lags: Array, weight: Array) -> dict[int, float]:
    """Return shares by whole lag: a mean between two whole numbers is met by those two.

    A line of thousands of steps is told by coarser numbers, with the same mean.
    """
    stride = max(1, math.ceil(float(np.ptp(lags)) / MOST_LAGS))
    whole = np.floor(lags / stride)
    upper = weight * (lags / stride - whole)
    shares: dict[int, float] = {}
    for start, part in ((0, weight - upper), (1, upper)):
        for lag, share in zip((stride * (whole + start)).tolist(), part.tolist(), strict=True):
            shares[int(lag)] = shares.get(int(lag), 0.0) + share
    return shares


def _queue_quantile(shares: Mapping[int, float]) -> int:
    below = 0.0
    for lag in sorted(shares):
        below += shares[lag]
        if below >= TAIL:
            return lag
    return max(shares)


def _quantile(pipeline: Pipeline, tokens: float, queue_lags: Mapping[int, float]) -> int:
    """Return the least lag that the tail's share of tokens does not pass, by bisection.

    Args:
        pipeline: the run.
        tokens: that a response advances by between two versions.
        queue_lags: shares of responses by N_IQS, which is taken to know nothing of a response's length.
    """

    def above(lag: int) -> float:
        return sum(share * pipeline.lengths.passes(lag + 1 - queue, tokens) for queue, share in queue_lags.items())

    low, high = -1, 1
    while above(high) > 1 - TAIL:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if above(middle) > 1 - TAIL else (low, middle)
    return high
