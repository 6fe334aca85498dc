"""The alerts of a run, the likeliest cause first: where several are active, the first one is the verdict's headline."""

from __future__ import annotations

from typing import Final

from satwatch.alerts.rule import AlertRule, RecordingRule
from satwatch.alerts.thresholds import (
    BYPASSED,
    COVERAGE,
    DRIFT_LAG_SHARE,
    DRIFT_PAST,
    DRIFT_TIMES,
    ESS_COLLAPSED,
    ESS_LOW,
    EXTREME,
    FLOOR_TIMES,
    LAG_MORE,
    LAG_SETTLED,
    LAG_TIMES,
    LOW,
    MISMATCH,
    NO_BATCH_FORGET_SECONDS,
    NO_BATCH_SECONDS,
    NO_BATCH_TIMES,
    NO_BATCH_UNPACED_SECONDS,
    REPLAY_PAST,
    SPIKE_PAST,
    SPIKE_TIMES,
    TAIL_FALLING,
    TAIL_INDEX,
)

_MEAN: Final = "satwatch_log_ratio_abs_mean"
_LAG: Final = "satwatch_version_lag_mean"
_FLIPS: Final = "satwatch_router_flip_rate"
_COVERAGE: Final = "satwatch_version_coverage_ratio"
_LOW: Final = f"run:{_MEAN}:low1d"
_CHANGES: Final = f"run:{_MEAN}:changes1d"
_LAG_SETTLED: Final = f"run:{_LAG}:settled"
_FLOOR: Final = 'satwatch_delta_abs_mean{kind="impl"}'
_FLOOR_LOW: Final = "run:satwatch_delta_impl_abs_mean:low1d"
_FLOOR_CHANGES: Final = "run:satwatch_delta_impl_abs_mean:changes1d"
_LAST_BATCH: Final = "satwatch_last_batch_timestamp_seconds"
_SILENCE: Final = f"time() - {_LAST_BATCH}"
_SILENCE_LIMIT: Final = "run:satwatch_batch_gap_seconds:limit"
# The present value stays out of what it is compared with.
_MEDIAN: Final = f"quantile_over_time(0.5, {_MEAN}[3h] offset 1m)"

# A day is long to read at every evaluation: these are kept once a minute. So is what two conditions share.
RUN_RECORDINGS: Final = (
    RecordingRule(
        _LOW,
        f"quantile_over_time({LOW:g}, ({_MEAN} unless {_LAG} < {DRIFT_LAG_SHARE:g} * ({_LAG} @ end()))[1d:1m])",
    ),
    RecordingRule(_CHANGES, f"changes({_MEAN}[1d])"),
    RecordingRule(_LAG_SETTLED, f"{_LAG} and {_CHANGES} >= {LAG_SETTLED}"),
    RecordingRule(_FLOOR_LOW, f"quantile_over_time({LOW:g}, {_FLOOR}[1d])"),
    RecordingRule(_FLOOR_CHANGES, f"changes({_FLOOR}[1d])"),
    RecordingRule(
        _SILENCE_LIMIT,
        f"clamp_min({NO_BATCH_TIMES:g} * satwatch_batch_gap_seconds, {NO_BATCH_SECONDS}) "
        f"or 0 * {_LAST_BATCH} + {NO_BATCH_UNPACED_SECONDS}",
    ),
)


def _rose(counter: str, window: str = "5m") -> str:
    """Return PromQL for a counter that rose; one that is above 0 when first seen has risen too."""
    return f"increase({counter}[{window}]) > 0 or ({counter} > 0 unless {counter} offset {window})"


def _going_on(expr: str) -> str:
    """Return PromQL for a condition of runs that go on: of one that has ended the latest step stays as it was."""
    return f"({expr}) unless on (job, instance, run) satwatch_run_open == 0"


RUN_RULES: Final = (
    AlertRule(
        name="NanTokens",
        severity="critical",
        scope="run",
        summary="Bad data: log-probs are NaN",
        look_at="The worst tokens of the step: which engine and which side sent NaN. Nothing else of the step is to be "
        "read before this is found.",
        expr=_rose("satwatch_nan_tokens_total"),
        reading="{} tokens in five minutes",
    ),
    AlertRule(
        name="InfTokens",
        severity="warning",
        scope="run",
        summary="Bad data: log-ratios are infinite",
        look_at="The worst tokens of the step: a token that one side thinks impossible. Top-p or top-k masks, another "
        "vocabulary, or a log-prob of 0 probability.",
        expr=_rose("satwatch_inf_tokens_total"),
        reading="{} tokens in five minutes",
    ),
    AlertRule(
        name="NegativeLag",
        severity="warning",
        scope="run",
        summary="Bad data: tokens come from versions newer than the policy",
        look_at="How versions are numbered by the trainer and by the engines, and whether one of them began again from "
        "a checkpoint.",
        expr=_rose("satwatch_negative_lag_tokens_total"),
        reading="{} tokens in five minutes",
    ),
    AlertRule(
        name="EssCollapsed",
        severity="critical",
        scope="run",
        summary="The batch is worth less than a tenth of its tokens",
        look_at="satwatch_ratio_max and the worst tokens: a few ratios carry the whole gradient. Then the mean abs(d) "
        "and the lag: is it the batch or a few tokens?",
        expr=_going_on(f"satwatch_ess_ratio < {ESS_COLLAPSED:g}"),
        reading="ESS ratio {}",
        hold_seconds=120,
        clear_seconds=300,
        hold_steps=2,
    ),
    AlertRule(
        name="RatioExtreme",
        severity="warning",
        scope="run",
        summary="Engine and trainer disagree on what is possible",
        look_at="The worst tokens of the step, both log-probs: a probability ratio beyond exp(20).",
        expr=_going_on(f"satwatch_log_ratio_abs_max > {EXTREME:g}"),
        reading="largest abs(d) {} nats",
        clear_seconds=600,
    ),
    AlertRule(
        name="FloorRaised",
        severity="warning",
        scope="run",
        summary="At equal weights, engine and trainer differ more than before",
        look_at="What changed in the engine: its temperature or top-p, dtype, quantization, kernels or flags. The "
        "policy is not the cause: delta_impl compares both at the same weights.",
        expr=_going_on(
            f"{_FLOOR} >= {MISMATCH:g} and {_FLOOR} > {FLOOR_TIMES:g} * {_FLOOR_LOW} "
            f"and {_FLOOR_CHANGES} >= {DRIFT_PAST}"
        ),
        reading="mean abs(delta_impl) {} nats",
        hold_seconds=120,
        clear_seconds=300,
        hold_steps=3,
    ),
    AlertRule(
        name="StalenessTailSpike",
        severity="warning",
        scope="run",
        summary="Engine and trainer came apart from one step to the next",
        look_at="Did the lag jump too? Then rollouts are old. If not, the engine changed: weights, dtype, kernel, "
        "temperature or mask. The Engines page and the tail by version tell them apart.",
        expr=_going_on(
            f"{_MEAN} >= {MISMATCH:g} and {_MEAN} > {SPIKE_TIMES:g} * {_MEDIAN} "
            f"and changes({_MEAN}[3h]) >= {SPIKE_PAST}"
        ),
        reading="mean abs(d) {} nats",
        clear_seconds=300,
    ),
    AlertRule(
        name="StalenessDrift",
        severity="warning",
        scope="run",
        summary="Engine and trainer stay further apart than they were",
        look_at="delta_policy against delta_impl where references are sent: the first is training, the second is the "
        "engine. Then the entropy, the learning rate, and the canary.",
        expr=_going_on(
            f"{_MEAN} >= {MISMATCH:g} and {_MEAN} > {DRIFT_TIMES:g} * {_LOW} and {_CHANGES} >= {DRIFT_PAST}"
        ),
        reading="mean abs(d) {} nats",
        hold_seconds=600,
        clear_seconds=600,
        hold_steps=3,
        clear_steps=5,
    ),
    AlertRule(
        name="VersionLagRising",
        severity="warning",
        scope="run",
        summary="Lagging: rollouts are older than they were",
        look_at="N_PQS against N_IQS: long responses, or a queue. Then the engines' own lag: new weights may not reach "
        "one of them.",
        expr=_going_on(f"{_LAG} > {LAG_TIMES:g} * quantile_over_time({LOW:g}, {_LAG_SETTLED}[1d]) + {LAG_MORE:g}"),
        reading="mean version lag {}",
        hold_seconds=300,
        clear_seconds=600,
        hold_steps=3,
        clear_steps=15,
    ),
    AlertRule(
        name="EssLow",
        severity="warning",
        scope="run",
        summary="The batch is worth less than a third of its tokens",
        look_at="satwatch_ratio_max and satwatch_tail_index: a few tokens, or the whole batch? Then the lag.",
        expr=_going_on(f"satwatch_ess_ratio < {ESS_LOW:g}"),
        reading="ESS ratio {}",
        hold_seconds=300,
        clear_seconds=300,
        hold_steps=3,
    ),
    AlertRule(
        name="HeavyTail",
        severity="warning",
        scope="run",
        summary="The tail is so heavy that means are not to be trusted",
        look_at="The quantiles: q=0.999 against q=0.5. Then the worst tokens: do they share an engine, a version or a "
        "position?",
        expr=_going_on(
            f"satwatch_tail_index > {TAIL_INDEX:g} and {_MEAN} > {MISMATCH:g} "
            f"unless {_MEAN} < {TAIL_FALLING:g} * {_MEDIAN}"
        ),
        reading="tail index {}",
        hold_seconds=300,
        clear_seconds=600,
        hold_steps=3,
    ),
    AlertRule(
        name="ReplayOff",
        severity="warning",
        scope="run",
        summary="Routing replay has stopped working",
        look_at="The flip rate by layer: all layers, or one? Then whether routes still come with the rollouts "
        "(satwatch_router_coverage).",
        expr=_going_on(f"{_FLIPS} > 0 and quantile_over_time(0.1, {_FLIPS}[1d]) == 0 and {_CHANGES} >= {REPLAY_PAST}"),
        reading="router flip rate {}",
        clear_seconds=300,
    ),
    AlertRule(
        name="CoverageLost",
        severity="warning",
        scope="run",
        summary="Rollouts come without their versions",
        look_at="Which engine's rollouts have none: an engine that was restarted calls its weights `default` until it "
        "is told. Lag is known of the rest only.",
        expr=_going_on(f"{_COVERAGE} < {COVERAGE:g} and max_over_time({_COVERAGE}[1d]) == 1"),
        reading="version coverage {}",
        hold_seconds=120,
        clear_seconds=120,
        hold_steps=2,
    ),
    AlertRule(
        name="SidecarBypassed",
        severity="warning",
        scope="run",
        summary="The trainer computes its own bounds: the sidecar is late or away",
        look_at="satwatch_request_seconds against the client's timeout, satwatch_compute_seconds_total, and the "
        "trainer's log. Training is safe; what is shown here is incomplete.",
        expr="increase(satwatch_client_fallbacks_total[10m]) > "
        f"{BYPASSED:g} * (increase(satwatch_batches_total[10m]) + increase(satwatch_client_fallbacks_total[10m]))",
        reading="{} batches in ten minutes",
        hold_seconds=300,
        clear_seconds=300,
        hold_steps=3,
    ),
    AlertRule(
        name="NoBatches",
        severity="warning",
        scope="run",
        summary="No batches for three times as long as they take to come",
        look_at="The trainer's log, then the rollout queue: does the trainer wait for rollouts, or has it stopped?",
        expr=_going_on(f"{_SILENCE} > {_SILENCE_LIMIT} and {_SILENCE} <= {_SILENCE_LIMIT} + {NO_BATCH_FORGET_SECONDS}"),
        reading="the last batch came {} seconds ago",
    ),
)
