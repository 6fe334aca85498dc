"""The row of the engines: do they serve what they say?"""

from __future__ import annotations

from typing import Final

from satwatch._dashboard.grafana.panel import PanelSpec, Query, RowSpec
from satwatch._dashboard.grafana.query import engine_gauge, engine_rate, sidecar_rate

_STATES: Final = {
    0: ("serving", "blue"),
    1: ("paused", "purple"),
    2: ("lagging", "orange"),
    3: ("unknown", "text"),
    4: ("wrong weights", "red"),
}
_STATE_NAMES: Final = ("serving", "paused", "lagging", "unknown", "wrong_weights")
_STATE: Final = " or ".join(
    f'satwatch_engine_state{{engine=~"$engine", kind="{name}"}} * {i}' for i, name in enumerate(_STATE_NAMES)
)


ENGINES: Final = RowSpec(
    "Engines: do they serve what they say?",
    (
        PanelSpec(
            "State",
            "What the probe makes of each engine. Wrong weights: its canary is not that of the version it names; stop "
            "using its rollouts. Unknown: it can't be looked at.",
            (Query(f"max by (engine) ({_STATE})", "{{engine}}"),),
            kind="timeline",
            width=12,
            meanings=_STATES,
            runbook="EngineWrongWeights",
        ),
        PanelSpec(
            "Findings",
            "What is amiss with each engine while it lasts. Any line is worth reading; the probe's table has the "
            "sentence with the figures.",
            (engine_gauge("findings", "{{engine}} {{kind}}"),),
            kind="timeline",
            width=12,
            meanings={0: ("over", "text"), 1: ("amiss", "red")},
            runbook="EngineSuspect",
        ),
        PanelSpec(
            "Versions",
            "The version that each engine serves, that it names, that its canary proves, and the one published. "
            "Served stands still while published rises: no new weights. Canary below served: a label without its "
            "weights.",
            (
                engine_gauge("version_served", "{{engine}} served"),
                engine_gauge("version_labelled", "{{engine}} labelled"),
                engine_gauge("version_canary", "{{engine}} by canary"),
                engine_gauge("version_published", "{{engine}} published"),
            ),
            unit="none",
            width=12,
            runbook="EngineWrongWeights",
        ),
        PanelSpec(
            "Versions behind",
            "Versions published since the one served. One engine above the others was left behind.",
            (engine_gauge("version_lag"),),
            unit="none",
            width=12,
            low=0,
            runbook="EngineBehind",
        ),
        PanelSpec(
            "Canary",
            "What engine and trainer differ by on the same tokens at the same version, mean and largest. Above 0.1 "
            "other weights; below it the floor that kernels and precision leave.",
            (
                engine_gauge("canary_log_ratio_abs_mean", "{{engine}} mean"),
                engine_gauge("canary_log_ratio_abs_max", "{{engine}} max"),
            ),
            unit="suffix: nats",
            is_log=True,
            critical=0.1,
            runbook="EngineWrongWeights",
        ),
        PanelSpec(
            "Version of the canary",
            "The version that engine and trainer scored the canary at. Behind the version served: the trainer has not "
            "scored that one, and nothing proves it.",
            (engine_gauge("canary_version"),),
            unit="none",
        ),
        PanelSpec(
            "Answering",
            "1 while an engine answers the probe. 0: gone, slow, or it refuses the key.",
            (engine_gauge("up"),),
            unit="none",
            kind="timeline",
            meanings={0: ("no answer", "red"), 1: ("up", "blue")},
            runbook="EngineUnknown",
        ),
        PanelSpec(
            "Age of the weights",
            "Time since the weights served were published. Above a few steps: no new weights reach the engine.",
            (engine_gauge("weight_age_seconds"),),
            unit="s",
            low=0,
            runbook="EngineBehind",
        ),
        PanelSpec(
            "Sync",
            "From a version's publishing to its first sight in the engine. Near a step's length: rollouts are old "
            "before they begin.",
            (engine_gauge("sync_seconds"),),
            unit="s",
            low=0,
            runbook="SyncSlow",
        ),
        PanelSpec(
            "Version changes",
            "Changes a second of the version served. Fewer than are published: updates are skipped.",
            (engine_rate("version_changes", "{{engine}}"),),
            unit="cps",
            low=0,
            runbook="EngineBehind",
        ),
        PanelSpec(
            "Requests",
            "Requests that run and that wait. Waiting grows: more concurrency than the engine runs at once, and the "
            "wait is lag.",
            (
                engine_gauge("requests_running", "{{engine}} running"),
                engine_gauge("requests_waiting", "{{engine}} waiting"),
            ),
            unit="none",
            low=0,
        ),
        PanelSpec(
            "Queue",
            "Mean time that requests waited, and the time to finish all that run and wait. Near a step's length: a "
            "response is a version old before its first token.",
            (engine_gauge("queue_seconds", "{{engine}} waited"), engine_gauge("drain_seconds", "{{engine}} to drain")),
            unit="s",
            low=0,
        ),
        PanelSpec(
            "Throughput",
            "Output tokens a second. One engine far below the others: its responses are the tail of each batch.",
            (engine_gauge("generation_tokens_per_second"),),
            unit="suffix: tokens/s",
            low=0,
        ),
        PanelSpec(
            "Looks",
            "Looks a second at each engine, those without an answer, and canary sequences. Looks stop: the probe has "
            "stopped. Failed ones come and go: an engine near its end.",
            (
                engine_rate("looks", "{{engine}} looks"),
                engine_rate("failed_looks", "{{engine}} failed"),
                engine_rate("canary_requests", "{{engine}} canary sequences"),
            ),
            unit="cps",
            width=16,
            low=0,
            runbook="EngineUnknown",
        ),
        PanelSpec(
            "Engines left out",
            "Statuses a second dropped because there were too many engines. Rising: raise max_engines.",
            (sidecar_rate("engine_statuses_dropped", "dropped"),),
            unit="cps",
            low=0,
        ),
    ),
)
