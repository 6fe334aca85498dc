"""The alerts of an engine, worst first, and those of the sidecar itself."""

from __future__ import annotations

from typing import Final

from satwatch.alerts.rule import AlertRule
from satwatch.alerts.thresholds import ENGINE_LAG, SYNC_CHANGES, SYNC_SECONDS, SYNC_SHARE
from satwatch.types import FindingKind

# What an engine is accused of beside its state. `left_behind` is EngineBehind's, and a restart is no fault.
SUSPECT_FINDINGS: Final[tuple[FindingKind, ...]] = (
    "checksum_differs",
    "engines_disagree",
    "label_differs",
    "label_only",
    "version_ahead",
)
# Nobody is accused: trainer and engine score at settings that differ, and while they do, wrong weights don't show.
BLIND_FINDING: Final[FindingKind] = "canary_not_comparable"

_SYNC: Final = "satwatch_engine_sync_seconds"
_PUBLISHED: Final = "changes(satwatch_engine_version_published[1h])"

ENGINE_RULES: Final = (
    AlertRule(
        name="EngineWrongWeights",
        severity="critical",
        scope="engine",
        summary="Fed by an engine that serves other weights than it says",
        look_at="The probe's finding and the Engines page: which version its canary equals. Stop using its rollouts, "
        "then update or restart it.",
        expr='satwatch_engine_state{kind="wrong_weights"} == 1',
        reading="state {}",
    ),
    AlertRule(
        name="EngineBehind",
        severity="warning",
        scope="engine",
        summary="Lagging: new weights do not reach an engine",
        look_at="The engine's log of the last weight update, and whether the other engines took it.",
        expr='max without (kind) (satwatch_engine_findings{kind="left_behind"}) == 1 '
        f"or satwatch_engine_version_lag > {ENGINE_LAG}",
        reading="{} (1: left behind by the others; above: versions)",
        hold_seconds=120,
        clear_seconds=60,
    ),
    AlertRule(
        name="EngineUnknown",
        severity="warning",
        scope="engine",
        summary="An engine is gone, or its probe is",
        look_at="Whether the engine's process runs and its port answers; then the probe's log. Nothing is known of its "
        "weights meanwhile.",
        expr="satwatch_engine_up == 0",
        reading="up {}",
        hold_seconds=60,
        clear_seconds=30,
    ),
    AlertRule(
        name="EngineSuspect",
        severity="warning",
        scope="engine",
        summary="An engine contradicts itself or the others",
        look_at="Which finding it is (the kind of satwatch_engine_findings), and what the trainer's last update of "
        "this engine answered.",
        expr=f'max without (kind) (satwatch_engine_findings{{kind=~"{"|".join(SUSPECT_FINDINGS)}"}}) == 1',
        reading="finding {}",
        hold_seconds=120,
        clear_seconds=60,
    ),
    AlertRule(
        name="SyncSlow",
        severity="warning",
        scope="engine",
        summary="Weights take more than half the time between two versions to arrive",
        look_at="How weights travel (disk, network, device), whether the update waits for requests in flight "
        "(satwatch_engine_drain_seconds), and whether one engine is slower than the others.",
        expr=f"{_SYNC} >= {SYNC_SECONDS:g} and {_SYNC} > {SYNC_SHARE:g} * 3600 / ({_PUBLISHED} >= {SYNC_CHANGES})",
        reading="sync {} seconds",
        hold_seconds=300,
        clear_seconds=300,
    ),
    AlertRule(
        name="CanaryNotComparable",
        severity="info",
        scope="engine",
        summary="Trainer and engine score the canary at different settings: wrong weights would not show",
        look_at="The finding names both settings. If FloorRaised is active too, the engine samples at another "
        "temperature than the trainer takes it to; if not, have the trainer score its canary at temperature 1 and "
        "top-p 1.",
        expr=f'max without (kind) (satwatch_engine_findings{{kind="{BLIND_FINDING}"}}) == 1',
        reading="finding {}",
        clear_seconds=60,
    ),
)

SIDECAR_RULES: Final = (
    AlertRule(
        name="SidecarDown",
        severity="warning",
        scope="sidecar",
        summary="No metrics come from a sidecar",
        look_at="Whether `satwatch serve` runs. Trainers go on with bounds of their own meanwhile, and nothing watches "
        "them.",
        expr='up{job="satwatch"} == 0',
        reading="up {}",
        hold_seconds=120,
        clear_seconds=60,
    ),
    AlertRule(
        name="HistoryDown",
        severity="warning",
        scope="sidecar",
        summary="The sidecar can't write its history",
        look_at="The sidecar's log, the disk or the database, and satwatch_history_dropped_records_total. Bounds are "
        "answered all the same.",
        expr="satwatch_history_up == 0",
        reading="up {}",
        hold_seconds=300,
        clear_seconds=60,
    ),
)
