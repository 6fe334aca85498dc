"""The rows that say whether a run is healthy, and how stale its tokens are."""

from __future__ import annotations

from typing import Final

from satwatch._dashboard.grafana.panel import PanelSpec, Query, RowSpec
from satwatch._dashboard.grafana.query import RATE, RUN, firing, gauge

_SHARE: Final = "percentunit"

HEALTH: Final = RowSpec(
    "Healthy?",
    (
        PanelSpec(
            "Critical alerts",
            "Alerts that stop a run, firing now, of the runs and engines chosen. Anything above 0: read the table "
            "below.",
            (Query(f"sum({firing('critical')}) or vector(0)", "critical"),),
            kind="stat",
            width=3,
            critical=1,
        ),
        PanelSpec(
            "Warnings",
            "Alerts that say where to look, firing now. One that stays is a run that gets worse.",
            (Query(f"sum({firing('warning')}) or vector(0)", "warnings"),),
            kind="stat",
            width=3,
            warning=1,
        ),
        PanelSpec(
            "Step",
            "Latest step that sent a batch. It stands still: the trainer has stopped, or does without the sidecar.",
            (gauge("step"),),
            unit="none",
            kind="stat",
            width=3,
            runbook="NoBatches",
        ),
        PanelSpec(
            "Steps a minute",
            "Steps closed a minute. A fall: the trainer waits, for rollouts or for a rank.",
            (Query(f"60 * rate(satwatch_steps_closed_total{RUN}{RATE})", "{{run}}"),),
            kind="stat",
            width=3,
            low=0,
        ),
        PanelSpec(
            "Mean abs(d)",
            "Mean absolute log-ratio of trainer and engine. A jump against the run's own past is what counts; in "
            "large models with a small learning rate 0.01 is suspect and 0.03 the level of published collapses.",
            (gauge("log_ratio_abs_mean"),),
            unit="suffix: nats",
            kind="stat",
            width=3,
            warning=0.01,
            critical=0.03,
            runbook="StalenessTailSpike",
        ),
        PanelSpec(
            "Worth of a batch",
            "Effective sample size as a share of the tokens. Below 0.3 fewer than a third of the tokens carry the "
            "importance-weighted gradient; below 0.1 the batch is lost.",
            (gauge("ess_ratio"),),
            unit=_SHARE,
            kind="stat",
            width=3,
            low=0,
            high=1,
            warning=0.3,
            critical=0.1,
            is_bad_below=True,
            runbook="EssLow",
        ),
        PanelSpec(
            "Version lag",
            "Mean age of the tokens in policy versions. Above what the trainer was set to: rollouts wait, or new "
            "weights do not reach the engine.",
            (gauge("version_lag_mean"),),
            kind="stat",
            width=3,
            low=0,
            runbook="VersionLagRising",
        ),
        PanelSpec(
            "Reward",
            "Mean reward that the trainer reported for its latest step; no value where it reports none.",
            (gauge("reward_mean"),),
            kind="stat",
            width=3,
        ),
        PanelSpec(
            "Firing now",
            "The alerts behind the two numbers above. The page Alerts of satwatch dashboard has the runbook.",
            (Query(firing()),),
            kind="table",
            width=12,
        ),
        PanelSpec(
            "Alerts over time",
            "When each alert fired. Read it against the panels below: the first to fire is usually the cause.",
            (Query(f"max by (alertname, run, engine) ({firing()})", "{{alertname}} {{run}}{{engine}}"),),
            kind="timeline",
            width=12,
            meanings={1: ("firing", "red")},
        ),
    ),
)

STALENESS: Final = RowSpec(
    "Staleness: how far the tokens' policy is from the trainer's",
    (
        PanelSpec(
            "Tail of abs(d)",
            "Quantiles and maximum of the absolute log-ratio, on a logarithmic axis. q0.999 grows while q0.5 stays: a "
            "heavy tail. Both grow: staleness, or an engine at fault. Above 20 engine and trainer disagree on what is "
            "possible.",
            (
                Query('satwatch_log_ratio_abs{run=~"$run"}', "{{run}} q{{q}}"),
                gauge("log_ratio_abs_max", "{{run}} max"),
            ),
            unit="suffix: nats",
            width=12,
            is_log=True,
            critical=20,
            runbook="StalenessTailSpike",
        ),
        PanelSpec(
            "Tokens by abs(d)",
            "Every token of the runs chosen, by the size of its log-ratio. A band that climbs is drift; a new island "
            "far above the band is one engine, or one broken kernel.",
            (Query(f"sum by (le) (increase(satwatch_log_ratio_abs_nats_bucket{RUN}{RATE}))", "{{le}}"),),
            unit="suffix: nats",
            kind="heat",
            width=12,
            runbook="StalenessDrift",
        ),
        PanelSpec(
            "Mean abs(d) against its floor",
            "The mean mismatch, and what would be left of it at equal weights: by the trainer's own log-probs of the "
            "version named (impl), by the tokens of lag 0, and by the engines' canaries. Mean and floor rise "
            "together: the engine (dtype, kernel, temperature, weights). The mean alone: staleness.",
            (
                gauge("log_ratio_abs_mean", "{{run}} mean abs(d)"),
                gauge("delta_abs_mean", "{{run}} floor: impl", kind="impl"),
                gauge("log_ratio_abs_mean_lag0", "{{run}} floor: lag 0"),
                Query('satwatch_engine_canary_log_ratio_abs_mean{engine=~"$engine"}', "{{engine}} floor: canary"),
            ),
            unit="suffix: nats",
            is_log=True,
            runbook="FloorRaised",
        ),
        PanelSpec(
            "Where d comes from",
            "Mean magnitude of the policy's drift since the version named, and of what engine and trainer differ by "
            "at that version. impl above policy: look at the engine and not at the lag.",
            (
                gauge("delta_abs_mean", "{{run}} policy drift", kind="policy"),
                gauge("delta_abs_mean", "{{run}} implementation", kind="impl"),
            ),
            unit="suffix: nats",
            low=0,
            runbook="FloorRaised",
        ),
        PanelSpec(
            "Bias",
            "Mean log-ratio, and of its parts. Away from 0 for long: another temperature, a wrong mask, stale "
            "weights. q is relative and does not show it.",
            (gauge("log_ratio_mean", "{{run}} mean d"), Query('satwatch_delta_mean{run=~"$run"}', "{{run}} {{kind}}")),
            unit="suffix: nats",
        ),
        PanelSpec(
            "Effective sample size",
            "Share of the tokens that a batch is worth. Falling: a few ratios carry the gradient.",
            (gauge("ess_ratio"),),
            unit=_SHARE,
            low=0,
            high=1,
            warning=0.3,
            critical=0.1,
            is_bad_below=True,
            runbook="EssLow",
        ),
        PanelSpec(
            "Tail index",
            "Hill estimate of the tail beyond q. Rising above 1 while mean abs(d) is above 0.01: the tail is too "
            "heavy for its mean to be trusted. A policy that has converged is there all the time, harmlessly.",
            (gauge("tail_index"),),
            unit="suffix: nats",
            low=0,
            warning=1,
            runbook="HeavyTail",
        ),
        PanelSpec(
            "Divergence",
            "Three estimates of KL(behavior, policy), and the total variation distance. k3 far above k2: few tokens "
            "with a large ratio decide. k1 below 0 for long: noise, or a bias.",
            tuple(gauge(name, f"{{{{run}}}} {name}") for name in ("kl_k1", "kl_k2", "kl_k3", "tv_sampled")),
            unit="suffix: nats",
        ),
        PanelSpec(
            "Importance weights",
            "Largest probability ratio, and the chi-square divergence, on a logarithmic axis. Rising faster than KL: "
            "the weights are about to fail.",
            (gauge("ratio_max", "{{run}} largest ratio"), gauge("chi2", "{{run}} chi-square")),
            width=24,
            is_log=True,
            runbook="RatioExtreme",
        ),
    ),
)
