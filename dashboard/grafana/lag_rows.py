"""The rows of the clip bounds, and of the tokens' age in versions."""

from __future__ import annotations

from typing import Final

from satwatch._dashboard.grafana.panel import PanelSpec, Query, RowSpec
from satwatch._dashboard.grafana.query import RATE, RUN, gauge, rate

_SHARE: Final = "percentunit"

BOUNDS: Final = RowSpec(
    "Bounds: what the rule does about it",
    (
        PanelSpec(
            "Tail threshold q",
            "The quantile of abs(score) beyond which a token's interval contracts. Steadily up: the whole batch goes "
            "stale or the engine drifts, and the rule, being relative, does not see it.",
            (gauge("quantile_reference"),),
            unit="suffix: nats",
            low=0,
            runbook="StalenessDrift",
        ),
        PanelSpec(
            "Mean clip radius",
            "Mean radius of each side of the clip interval. Far below the nominal radius: most of the tail lies on "
            "this side.",
            (Query('satwatch_clip_radius_mean{run=~"$run"}', "{{run}} {{side}}"),),
            low=0,
        ),
        PanelSpec(
            "Contraction",
            "The smallest contraction factor, and the share of tokens inside the gate. Near 0: some token is far out. "
            "The share is about 1 - alpha by construction, and says nothing of health.",
            (gauge("contraction_min", "{{run}} smallest factor"), gauge("gate_rate", "{{run}} gated tokens")),
            low=0,
            high=1,
        ),
        PanelSpec(
            "Clipped tokens",
            "Share of tokens without a gradient: under PPO's interval, under the contracted one, and the difference. "
            "Rising: the policy moves further from its rollouts than the interval lets it.",
            (
                gauge("clip_fraction_ppo", "{{run}} PPO"),
                gauge("clip_fraction", "{{run}} contracted"),
                gauge("intercepted_fraction", "{{run}} intercepted by the contraction"),
            ),
            unit=_SHARE,
            width=16,
            low=0,
        ),
        PanelSpec(
            "Narrower scope than asked for",
            "Batches a second whose q is the microbatch's though the rule asks for more. Rising: the rule asks for a "
            "scope that this version does not compute.",
            (rate("scope_fallbacks"),),
            low=0,
        ),
    ),
)

LAG: Final = RowSpec(
    "Lag: how old the tokens are, in versions",
    (
        PanelSpec(
            "Version lag",
            "Mean and largest version lag of the latest step. Above what the trainer was set to: rollouts wait in a "
            "queue, or new weights do not reach an engine.",
            (gauge("version_lag_mean", "{{run}} mean"), gauge("version_lag_max", "{{run}} max")),
            low=0,
            runbook="VersionLagRising",
        ),
        PanelSpec(
            "Where the lag comes from",
            "Versions that passed while a response was generated (N_PQS) and while it waited (N_IQS), means over "
            "tokens, stacked. The first grows: long responses. The second: the trainer is slower than its rollouts.",
            (
                gauge("version_lag_generation_mean", "{{run}} generated (N_PQS)"),
                gauge("version_lag_queue_mean", "{{run}} waited (N_IQS)"),
            ),
            kind="stacked",
            low=0,
            runbook="VersionLagRising",
        ),
        PanelSpec(
            "Tokens by version lag",
            "Every token of the runs chosen, by its lag. A second band above the first: an engine that was left "
            "behind.",
            (
                Query(
                    f'sum by (le) (increase(satwatch_version_lag_versions_bucket{{run=~"$run", kind="total"}}{RATE}))',
                    "{{le}}",
                ),
            ),
            unit="none",
            kind="heat",
            runbook="EngineBehind",
        ),
        PanelSpec(
            "Lag that nine of ten tokens stay below",
            "0.9 quantile of the lag, whole and by its parts. It climbs while the mean stays: a few responses outlast "
            "many steps.",
            (
                Query(
                    "histogram_quantile(0.9, sum by (run, kind, le) "
                    f"(rate(satwatch_version_lag_versions_bucket{RUN}{RATE})))",
                    "{{run}} {{kind}}",
                ),
            ),
            low=0,
        ),
        PanelSpec(
            "Lag of generating: expected and seen",
            "What the engines' speed and lengths lead to, and what the tokens show. At or above 1 responses outlast a "
            "step, and no engine is at fault. Seen far above expected: an engine is behind.",
            (
                Query('satwatch_engine_version_lag_generation_expected{engine=~"$engine"}', "{{engine}} expected"),
                gauge("version_lag_generation_mean", "{{run}} seen"),
            ),
            low=0,
        ),
        PanelSpec(
            "Versions in a batch",
            "Distinct versions that generated the latest step's tokens. More than the engines can serve at once: "
            "mixed or stuck engines.",
            (gauge("behavior_versions"),),
            unit="none",
            low=0,
        ),
        PanelSpec(
            "Published and consumed",
            "The version published last, and the one that consumed the latest batch. Published stands still: weights "
            "are not sent. Consumed stands still: the trainer has stopped.",
            (gauge("published_version", "{{run}} published"), gauge("policy_version", "{{run}} consumed")),
            unit="none",
            width=24,
        ),
    ),
)
