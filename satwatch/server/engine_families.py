"""The metrics of the engines: what each is, and what a bad value means."""

from __future__ import annotations

from typing import Final

from satwatch.server.families import Family, counter, gauge

UP: Final = gauge(
    "engine_up",
    "Whether the engine answers the probe.",
    "engine",
    unit="0 or 1",
    formula="state is not `unknown`",
    bad="0: it is gone, slow, refuses the key or answers garbage, or its probe is gone; the probe's table and the "
    "sidecar's log say which",
)
STATE: Final = gauge(
    "engine_state",
    "Whether the engine is in a state.",
    "engine",
    "kind",
    unit="0 or 1",
    bad="`wrong_weights` 1: stop using its rollouts; `lagging` 1 for longer than a sync takes; `paused` 1 for longer "
    "than an update takes",
)
# Each is the field of EngineStatus whose name it has.
MEASURES: Final = (
    gauge(
        "engine_version_served",
        "Version that generated the latest response, or else the label's.",
        "engine",
        unit="version",
        bad="stands still while `satwatch_engine_version_published` rises",
    ),
    gauge(
        "engine_version_labelled",
        "Version that the engine names.",
        "engine",
        unit="version",
        bad="is not `satwatch_engine_version_served`: the label is wrong, and the response is right",
    ),
    gauge(
        "engine_version_published",
        "Version that the trainer published last.",
        "engine",
        unit="version",
        bad="does not change: the trainer has stopped; no sample: the probe does not know the trainer's run",
    ),
    gauge(
        "engine_version_canary",
        "Version whose trainer scores the canary equals.",
        "engine",
        unit="version",
        bad="is not `satwatch_engine_version_served`: the weights are not those of the label",
    ),
    gauge(
        "engine_version_lag",
        "Versions published since the version served.",
        "engine",
        unit="versions",
        formula="`satwatch_engine_version_published` - `satwatch_engine_version_served`, 0 or more",
        bad="above what the trainer was set to; one engine above the others: it was left behind",
    ),
    gauge(
        "engine_weight_age_seconds",
        "Time since the weights served were published.",
        "engine",
        unit="seconds",
        formula="now - publishing of the version served, or, where that is not known, - its first sight",
        bad="above a few times the trainer's step: no new weights reach the engine",
    ),
    gauge(
        "engine_sync_seconds",
        "Time from a version's publishing to its first sight.",
        "engine",
        unit="seconds",
        formula="first sight of the version served - its publishing",
        bad="rising towards the time of a step: rollouts are old before they begin; it is right within one period of "
        "the probe",
    ),
    gauge(
        "engine_requests_running",
        "Requests that are being generated.",
        "engine",
        unit="requests",
        bad="0 on one engine while others are full: the router or the engine has a fault",
    ),
    gauge(
        "engine_requests_waiting",
        "Requests that wait.",
        "engine",
        unit="requests",
        bad="rising: more concurrency than the engine runs at once; the wait is lag",
    ),
    gauge(
        "engine_queue_seconds",
        "Mean time in the queue of the requests that left it last.",
        "engine",
        unit="seconds",
        formula="waiting time / requests, between the last two looks",
        bad="near the time of a step: a response is one version old before its first token",
    ),
    gauge(
        "engine_drain_seconds",
        "Time to finish what runs and waits, at the present throughput.",
        "engine",
        unit="seconds",
        bad="above the time of a step: an update that waits for requests in flight is that late",
    ),
    gauge(
        "engine_generation_tokens_per_second",
        "Tokens generated a second, at present.",
        "engine",
        unit="tokens per second",
        bad="one engine far below the others: its requests are the tail of the batch",
    ),
    gauge(
        "engine_version_lag_generation_expected",
        "Versions to expect between a token and the end of its response, mean over tokens.",
        "engine",
        unit="versions",
        formula="N_PQS from present speed, response lengths and the trainer's pace",
        bad="at or above 1: responses outlast a step, and their lag is no fault "
        "([forecast.md](forecast.md#live-engines)); `satwatch_version_lag_mean` far above it: the lag lies in a "
        "queue, or an engine is behind",
    ),
    gauge(
        "engine_canary_log_ratio_abs_mean",
        "Mean absolute log-ratio of the canary, in nats.",
        "engine",
        unit="nats",
        formula="mean(abs(log pi - log mu)) over the canary's tokens, at equal versions",
        bad="above 0.1: other weights; below it this is the floor that kernels and precision leave, see "
        "`satwatch_log_ratio_abs_mean`",
    ),
    gauge(
        "engine_canary_log_ratio_abs_max",
        "Largest absolute log-ratio of the canary, in nats.",
        "engine",
        unit="nats",
        formula="max(abs(log pi - log mu)), likewise",
        bad="far above the mean: single tokens differ, as with a wrong kernel or a quantized layer",
    ),
    gauge(
        "engine_canary_version",
        "Version that engine and trainer scored the canary at.",
        "engine",
        unit="version",
        bad="behind `satwatch_engine_version_served`: the trainer has not scored the version served yet",
    ),
)
FINDINGS: Final = gauge(
    "engine_findings",
    "What is amiss with an engine, 1 while it lasts.",
    "engine",
    "kind",
    unit="0 or 1",
    bad="any sample; `kind` says what",
)
COUNTERS: Final = (
    counter(
        "engine_looks",
        "Times that the engine was looked at.",
        "engine",
        unit="looks",
        bad="not rising: the probe has stopped",
    ),
    counter(
        "engine_failed_looks",
        "Looks that found no usable answer.",
        "engine",
        unit="looks",
        bad="rising: as `satwatch_engine_up` 0, but also what comes and goes between two scrapes",
    ),
    counter(
        "engine_canary_requests",
        "Canary sequences that the engine was asked to score.",
        "engine",
        unit="sequences",
        bad="not rising while versions do: the engine refuses them, or is too busy for the probe's share of its load",
    ),
    counter(
        "engine_version_changes",
        "Changes seen of the version served.",
        "engine",
        unit="changes",
        bad="rising slower than versions are published: updates are skipped",
    ),
)
DROPPED: Final = counter(
    "engine_statuses_dropped",
    "Statuses left out because there were too many engines.",
    unit="statuses",
    bad="rising: some engines are not shown; raise `max_engines`",
)

ENGINE_FAMILIES: Final[tuple[Family, ...]] = (UP, STATE, *MEASURES, FINDINGS, *COUNTERS, DROPPED)
