"""What a run says about itself: one record a step, and one summary."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from satwatch.demo.config import DemoConfig, FaultName, Objective, TaskName
from satwatch.demo.findings import Findings


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One optimizer step.

    Attributes:
        step: its number, from 0.
        reward: mean reward of its batch, in [0, 1].
        entropy: mean entropy of the policy at the response positions, nats.
        quantile_reference: q, mean over the microbatches; NaN when none had a score.
        log_ratio_abs_mean: mean abs(d) over its tokens, NaN ones left out, nats.
        tokens: response tokens.
        gated_tokens: tokens whose interval SAT contracted.
        gated_within_ppo: of those, tokens whose ratio is not beyond PPO's own bound.
        version_lag: policy version minus behavior version, mean over the responses.
        round_trip_seconds: of the step's microbatch that the sidecar answered last; None when it answered none.
        bounds_from_sidecar: microbatches of the run so far whose bounds came from the sidecar.
        bounds_from_fallback: microbatches of the run so far whose bounds were computed in the trainer.
        sidecar_up: every microbatch of the step was answered by the sidecar.
    """

    step: int
    reward: float
    entropy: float
    quantile_reference: float
    log_ratio_abs_mean: float
    tokens: int
    gated_tokens: int
    gated_within_ppo: int
    version_lag: float
    round_trip_seconds: float | None
    bounds_from_sidecar: int
    bounds_from_fallback: int
    sidecar_up: bool


@dataclass(frozen=True, slots=True)
class DemoSummary:
    """The outcome of a run; the keys of its JSON object, in this order.

    Attributes:
        objective: the run's objective.
        lag: versions between the engine's weights and the learner's.
        steps: optimizer steps done.
        seed: the run's seed.
        reward_first_quarter: mean reward over the first quarter of the steps.
        reward_last_quarter: mean reward over the last quarter.
        batches_sent: microbatches, ``bounds_from_sidecar + bounds_from_fallback``.
        bounds_from_sidecar: those answered by the sidecar.
        bounds_from_fallback: those computed in the trainer.
        quantile_reference_mean: q, mean over the steps; None when no step had one.
        gate_rate: share of the run's tokens whose interval SAT contracted.
        log_ratio_abs_mean: mean abs(d) over the run's tokens, nats.
        task: the run's task.
        seconds: wall time of the training loop.
        run: the run's name in the sidecar.
        metrics_url: the sidecar's metrics, as it last said; None when they are off or it never answered.
        history: where the demo's own sidecar kept the run; None when it kept none, or was not the demo's own.
        round_trip_seconds: median over the steps; None when the sidecar answered none.
        fault: what the engine did wrong.
        fault_step: from which step on; None: it did nothing wrong, or the step was not reached.
        found: what the sidecar found; None: its history couldn't be asked.
    """

    objective: Objective
    lag: int
    steps: int
    seed: int
    reward_first_quarter: float
    reward_last_quarter: float
    batches_sent: int
    bounds_from_sidecar: int
    bounds_from_fallback: int
    quantile_reference_mean: float | None
    gate_rate: float
    log_ratio_abs_mean: float | None
    task: TaskName
    seconds: float
    run: str
    metrics_url: str | None
    history: str | None
    round_trip_seconds: float | None
    fault: FaultName = "none"
    fault_step: int | None = None
    found: Findings | None = None

    def to_json(self) -> str:
        """Return the summary as one line of JSON."""
        return json.dumps(asdict(self), allow_nan=False)


def summarize_run(
    config: DemoConfig,
    records: list[StepRecord],
    seconds: float,
    *,
    metrics_url: str | None = None,
    history: str | None = None,
    found: Findings | None = None,
) -> DemoSummary:
    """Put a run's records together.

    Args:
        config: the run.
        records: one record a step, at least one.
        seconds: wall time of the training loop.
        metrics_url: the sidecar's metrics, if known.
        history: where the run is kept, if known.
        found: what the sidecar found, if known.

    Returns:
        The summary; token statistics are weighted by tokens.
    """
    quarter = max(1, len(records) // 4)
    tokens = sum(r.tokens for r in records)
    last, fault_step = records[-1], config.first_faulty_batch
    round_trips = [r.round_trip_seconds for r in records if r.round_trip_seconds is not None]
    return DemoSummary(
        objective=config.objective,
        lag=config.lag,
        steps=len(records),
        seed=config.seed,
        reward_first_quarter=_mean([r.reward for r in records[:quarter]]),
        reward_last_quarter=_mean([r.reward for r in records[-quarter:]]),
        batches_sent=last.bounds_from_sidecar + last.bounds_from_fallback,
        bounds_from_sidecar=last.bounds_from_sidecar,
        bounds_from_fallback=last.bounds_from_fallback,
        quantile_reference_mean=_finite_or_none(
            _mean([r.quantile_reference for r in records if not math.isnan(r.quantile_reference)])
        ),
        gate_rate=sum(r.gated_tokens for r in records) / tokens,
        log_ratio_abs_mean=_finite_or_none(sum(r.log_ratio_abs_mean * r.tokens for r in records) / tokens),
        task=config.task,
        seconds=round(seconds, 3),
        run=config.run_name,
        metrics_url=metrics_url,
        history=history,
        round_trip_seconds=median(round_trips) if round_trips else None,
        fault=config.fault,
        fault_step=fault_step if fault_step is not None and fault_step < len(records) else None,
        found=found,
    )


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


SPARKS: Final = "▁▂▃▄▅▆▇█"
ASCII_SPARKS: Final = "_.-:=+*#"


def sparkline(values: list[float], width: int, *, marks: str = SPARKS) -> str:
    """Draw values as one line of bars, from the lowest value to the highest.

    Args:
        values: finite numbers; more than ``width`` of them are averaged in ``width`` runs of neighbours.
        width: characters, 1 or more.
        marks: a bar of each height, lowest first.

    Returns:
        ``min(width, len(values))`` characters.

    >>> sparkline([0.0, 1.0, 2.0, 3.0], 4, marks="_.-#")
    '_.-#'
    """
    count = min(width, len(values))
    edges = [i * len(values) // count for i in range(count + 1)] if count else []
    means = [_mean(values[a:b]) for a, b in pairwise(edges)]
    low, high = (min(means), max(means)) if means else (0.0, 0.0)
    scale = (len(marks) - 1) / (high - low) if high > low else 0.0
    return "".join(marks[round((m - low) * scale)] for m in means)
