"""The rows of routes and of the data itself."""

from __future__ import annotations

from typing import Final

from satwatch._dashboard.grafana.panel import PanelSpec, Query, RowSpec
from satwatch._dashboard.grafana.query import RUN, gauge, rate

_SHARE: Final = "percentunit"

ROUTING: Final = RowSpec(
    "Routing: do engine and trainer choose the same experts?",
    (
        PanelSpec(
            "Differing routes",
            "Share of routers, and of tokens with any such router, whose experts differ, and the mean share of "
            "experts not in common. With routing replay on all are 0. Without, about a tenth of the routers is usual.",
            (
                gauge("router_flip_rate", "{{run}} routers"),
                gauge("router_token_flip_rate", "{{run}} tokens"),
                gauge("router_expert_disagreement", "{{run}} experts"),
            ),
            unit=_SHARE,
            low=0,
            high=1,
            runbook="ReplayOff",
        ),
        PanelSpec(
            "By layer, now",
            "Share of tokens whose experts differ, by layer. One layer far above the others: its kernel or dtype "
            "differs.",
            (Query('satwatch_router_layer_flip_rate{run=~"$run"}', "{{run}} layer {{layer}}"),),
            unit=_SHARE,
            kind="bars",
            low=0,
            high=1,
            runbook="ReplayOff",
        ),
        PanelSpec(
            "By layer, over time",
            "The same as it went. All layers leave 0 at once: replay went off. One does: that layer.",
            (Query('satwatch_router_layer_flip_rate{run=~"$run"}', "{{run}} layer {{layer}}"),),
            unit=_SHARE,
            low=0,
            runbook="ReplayOff",
        ),
    ),
    is_collapsed=True,
)

DATA: Final = RowSpec(
    "Data: is it sound, and is it all there?",
    (
        PanelSpec(
            "Bad tokens",
            "Tokens a second that are NaN, infinite, beyond 20 nats, or of a version newer than the policy. Above 0: "
            "a fault of the data, to be found before anything else is read.",
            (
                rate("nan_tokens", "{{run}} NaN"),
                rate("inf_tokens", "{{run}} infinite"),
                rate("extreme_tokens", "{{run}} extreme"),
                rate("negative_lag_tokens", "{{run}} negative lag"),
            ),
            unit="cps",
            low=0,
            critical=1e-9,
            runbook="NanTokens",
        ),
        PanelSpec(
            "Coverage",
            "Share of the tokens that came with versions, with references and with routes. Below 1 the lag, the floor "
            "and the flip rates speak for the rest alone; no line: never sent.",
            (
                gauge("version_coverage_ratio", "{{run}} versions"),
                gauge("reference_coverage_ratio", "{{run}} references"),
                gauge("router_coverage", "{{run}} routes"),
            ),
            unit=_SHARE,
            low=0,
            high=1,
            runbook="CoverageLost",
        ),
        PanelSpec(
            "Batches",
            "Batches a second that the sidecar answered, that were retries, and that clients answered without it. "
            "Fallbacks: the sidecar is late or away; training goes on with bounds of its own.",
            (
                rate("batches", "{{run}} answered"),
                rate("duplicate_batches", "{{run}} retried"),
                rate("client_fallbacks", "{{run}} without the sidecar"),
            ),
            unit="cps",
            low=0,
            runbook="SidecarBypassed",
        ),
        PanelSpec(
            "Tokens",
            "Active tokens a second. Not there: as no batches.",
            (rate("tokens"),),
            unit="cps",
            low=0,
            runbook="NoBatches",
        ),
        PanelSpec(
            "Silence",
            "Time since the last batch of a run that goes on, and the longest time between two batches of the last "
            "hour or more. Above three times that, and ten minutes: the trainer has stopped, or waits for rollouts.",
            (
                Query(
                    f"time() - satwatch_last_batch_timestamp_seconds{RUN} unless on (job, instance, run) "
                    "satwatch_run_open == 0",
                    "{{run}} since the last",
                ),
                gauge("batch_gap_seconds", "{{run}} longest between two"),
            ),
            unit="s",
            low=0,
            runbook="NoBatches",
        ),
        PanelSpec(
            "Reward and loss",
            "Means that the trainer reported. Reward that falls after an alert is what the alert was about.",
            (gauge("reward_mean", "{{run}} reward"), gauge("loss_mean", "{{run}} loss")),
        ),
        PanelSpec(
            "Response length",
            "Mean response length in tokens. Growing lengths make lag: responses outlast steps.",
            (gauge("response_length_mean"),),
            unit="none",
            low=0,
        ),
    ),
)
