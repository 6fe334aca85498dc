r"""The line of finished responses: how long it is when a version is published.

Between two steps of the trainer the line grows as a fluid. From step to step it wanders, as a diffusion: where the
rollout and the trainer are equally fast, it is chance that decides whether the queue is empty or full.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from satwatch.sat.forecast.pipeline import Pipeline

Array = npt.NDArray[np.float64]

POINTS: Final = 2001
# Mean overshoot of a normal random walk over a barrier, in standard deviations of its steps: -zeta(1/2) / sqrt(2 pi).
OVERSHOOT: Final = 0.5826
# A density below e^-NEGLIGIBLE of its peak changes no digit.
NEGLIGIBLE: Final = 40.0


@dataclass(frozen=True, slots=True)
class Line:
    """The line left by a step's start, as points of a density, and what follows from it.

    Attributes:
        left: finished responses that the step left in the line.
        growth: responses that finish while the step trains.
        held: those of them that find the queue full and hold their slots until the step ends.
        weight: of each point; adds up to 1.
        steps_to_settle: steps until a line that begins empty is near its mean.
    """

    left: Array
    growth: Array
    held: Array
    weight: Array
    steps_to_settle: float

    @property
    def growth_mean(self) -> float:
        """Responses that finish while a step trains, mean."""
        return float(self.weight @ self.growth)

    def at_publish(self, pipeline: Pipeline) -> Array:
        """Return the line at the moment that the step's version is published, of each point.

        A step that waited begins with a response's end. That response's slot is then at its start, not anywhere, and
        finishes fewer tokens while the step trains than other slots do.
        """
        lengths, tokens = pipeline.lengths, pipeline.train_seconds * pipeline.tokens_per_second
        fewer = min(tokens / lengths.mean - lengths.ended_within(tokens), (1 + lengths.cv**2) / 2)
        return self.left + np.maximum(self.growth - max(0.0, fewer) * self._waited(pipeline), 0.0)

    def share_waited(self, pipeline: Pipeline) -> float:
        """Return the share of steps that had to wait for responses."""
        return float(self.weight @ self._waited(pipeline))

    def _waited(self, pipeline: Pipeline) -> Array:
        short = self.growth < pipeline.batch_responses * (1 - 1e-6)
        return np.where((self.left == 0) & short, 1.0, 0.0)


def growth(pipeline: Pipeline, left: Array, seconds: float) -> tuple[Array, Array]:
    r"""Return the responses that finish in the first seconds of a step: those that find room, and those that don't.

    .. math:: \dot x = \frac{C - (x - Q)_+}{m}, \quad x(0) = left

    with m the mean seconds of a response. Linear until the queue is full; from then on each finished response holds
    its slot. A rate that depends on the number of busy slots alone takes their ages as those of the long run.

    Args:
        pipeline: the run.
        left: the line at the step's start, from 0 to Q + C.
        seconds: since the step's start, up to S.
    """
    response, slots, capacity = pipeline.response_seconds, pipeline.concurrency, pipeline.queue_capacity
    linear = np.minimum(np.maximum(capacity - left, 0.0) * response / slots, seconds)
    busy = slots - np.maximum(left - capacity, 0.0)
    return linear * slots / response, busy * -np.expm1((linear - seconds) / response)


def settle(pipeline: Pipeline) -> Line:
    r"""Return the line in the long run.

    What a step leaves follows Lindley's recursion, x' = max(0, x + growth - B), here as a diffusion with drift
    :math:`\delta(x) = growth(x) - B` and variance :math:`\sigma^2` a step, reflected at 0:

    .. math:: p(x) \propto \exp \int^x \frac{2 \delta(u)}{\sigma^2} du

    The walk's steps are not small, so the barrier stands :math:`0.58 \sigma` lower (Siegmund, 1979) and what lies
    below 0 is 0.
    """
    deviation = math.sqrt(pipeline.batch_responses * dispersion(pipeline))
    low, high = -OVERSHOOT * deviation, float(pipeline.queue_capacity + pipeline.concurrency)
    while True:
        points = np.linspace(low, high, POINTS)
        left = np.maximum(points, 0.0)
        queued, held = growth(pipeline, left, pipeline.train_seconds)
        grown = queued + held
        slope = 2 * (grown - pipeline.batch_responses) / deviation**2
        steps = (slope[1:] + slope[:-1]) / 2 * np.diff(points)
        exponent = np.concatenate(([0.0], np.cumsum(steps)))
        exponent -= exponent.max()
        matter = np.flatnonzero(exponent > -NEGLIGIBLE)
        first, last = max(int(matter[0]) - 1, 0), min(int(matter[-1]) + 1, POINTS - 1)
        if last - first >= POINTS // 4 or points[last] - points[first] <= 1e-9 * high:
            break
        low, high = float(points[first]), float(points[last])
    weight = np.exp(exponent)
    weight[[0, -1]] /= 2
    weight /= weight.sum()
    drift = max(0.0, (pipeline.throughput_ratio - 1) * pipeline.batch_responses)
    mean = float(weight @ left)
    settled = mean / (drift + deviation**2 / mean) if mean else 0.0
    return Line(left, grown, held, weight, settled)


def dispersion(pipeline: Pipeline) -> float:
    """Return the variance over the mean of the responses that finish in a step.

    Over times far below a response's, many slots finish as independent arrivals do: 1. Over far longer times each slot
    is a renewal process: cv squared.
    """
    responses = pipeline.train_seconds / pipeline.response_seconds
    long = -math.expm1(-responses)
    return max(0.02, 1 + (pipeline.lengths.cv**2 - 1) * long)
