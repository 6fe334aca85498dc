"""The metrics of the engines, made of their statuses. What is unknown has no sample, and is never 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, get_args

from satwatch.server.families import Family, Samples, counter, gauge
from satwatch.types import EngineState, EngineStatus

# Each is the field of EngineStatus whose name it has.
_MEASURES: Final = (
    gauge("engine_version_served", "Version that generated the latest response, or else the label's.", "engine"),
    gauge("engine_version_labelled", "Version that the engine names.", "engine"),
    gauge("engine_version_published", "Version that the trainer published last.", "engine"),
    gauge("engine_version_canary", "Version whose trainer scores the canary equals.", "engine"),
    gauge("engine_version_lag", "Versions published since the version served.", "engine"),
    gauge("engine_weight_age_seconds", "Time since the weights served were published.", "engine"),
    gauge("engine_sync_seconds", "Time from a version's publishing to its first sight.", "engine"),
    gauge("engine_requests_running", "Requests that are being generated.", "engine"),
    gauge("engine_requests_waiting", "Requests that wait.", "engine"),
    gauge("engine_queue_seconds", "Mean time in the queue of the requests that left it last.", "engine"),
    gauge("engine_drain_seconds", "Time to finish what runs and waits, at the present throughput.", "engine"),
    gauge("engine_generation_tokens_per_second", "Tokens generated a second, at present.", "engine"),
    gauge(
        "engine_version_lag_generation_expected",
        "Versions to expect between a token and the end of its response, mean over tokens.",
        "engine",
    ),
    gauge("engine_canary_log_ratio_abs_mean", "Mean absolute log-ratio of the canary, in nats.", "engine"),
    gauge("engine_canary_log_ratio_abs_max", "Largest absolute log-ratio of the canary, in nats.", "engine"),
    gauge("engine_canary_version", "Version that engine and trainer scored the canary at.", "engine"),
)
_COUNTERS: Final = (
    counter("engine_looks", "Times that the engine was looked at.", "engine"),
    counter("engine_failed_looks", "Looks that found no usable answer.", "engine"),
    counter("engine_canary_requests", "Canary sequences that the engine was asked to score.", "engine"),
    counter("engine_version_changes", "Changes seen of the version served.", "engine"),
)
UP: Final = gauge("engine_up", "Whether the engine answers the probe.", "engine")
STATE: Final = gauge("engine_state", "Whether the engine is in a state.", "engine", "kind")
FINDINGS: Final = gauge("engine_findings", "What is amiss with an engine, 1 while it lasts.", "engine", "kind")
DROPPED: Final = counter("engine_statuses_dropped", "Statuses left out because there were too many engines.")

ENGINE_FAMILIES: Final[tuple[Family, ...]] = (UP, STATE, *_MEASURES, FINDINGS, *_COUNTERS, DROPPED)


def add_engines(samples: Samples, statuses: Sequence[EngineStatus], dropped: int) -> None:
    """Add the samples of all engines.

    Args:
        samples: by metric; added to.
        statuses: what is known of each engine.
        dropped: statuses left out, ever.
    """
    samples[DROPPED.name].append(((), dropped))
    for status in statuses:
        _add_engine(samples, status)


def _add_engine(samples: Samples, status: EngineStatus) -> None:
    engine = status.engine
    samples[UP.name].append(((engine,), status.state != "unknown"))
    for state in get_args(EngineState):
        samples[STATE.name].append(((engine, state), status.state == state))
    for family in (*_MEASURES, *_COUNTERS):
        value = getattr(status, family.name.removeprefix("satwatch_engine_").removesuffix("_total"))
        if value is not None:
            samples[family.name].append(((engine,), value))
    for kind in dict.fromkeys(finding.kind for finding in status.findings):
        samples[FINDINGS.name].append(((engine, kind), 1))
