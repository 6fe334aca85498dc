"""The judge: from what is remembered of all engines to what is said of each; pure, and askable at any time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from satwatch.probe.judge.book import open_book
from satwatch.probe.judge.evidence import Evidence, weigh
from satwatch.probe.judge.expectation import expect_lag
from satwatch.probe.judge.fleet import compare_fleet
from satwatch.probe.judge.limits import JudgeConfig
from satwatch.probe.judge.memory import EngineMemory
from satwatch.probe.judge.queue import measure_queue
from satwatch.probe.judge.versions import ahead_since, sync_seconds, version_lag, weight_age_seconds
from satwatch.probe.snapshot import EngineSnapshot
from satwatch.types import EngineState, EngineStatus, Finding, TrainerFacts


def conclude(
    now: float, memories: Mapping[str, EngineMemory], facts: TrainerFacts, config: JudgeConfig, wall: float = 0.0
) -> tuple[EngineStatus, ...]:
    """Say what is known of every engine, in the order given.

    Args:
        now: the time on the probe's clock, seconds; ages grow with it.
        memories: all engines of the run: they are compared with each other.
        facts: what the trainer has said, on the same clock.
        config: the limits.
        wall: Unix time minus the probe's clock, seconds.
    """
    book = open_book(facts.canaries)
    weighed = {memory.engine: weigh(memory, book, config) for memory in memories.values() if memory.is_known}
    fleet = compare_fleet(tuple(memories.values()), weighed, config)
    return tuple(
        _conclude(now, memory, weighed[memory.engine], fleet.get(memory.engine, ()), facts, config, wall)
        if memory.is_known
        else _unknown(memory, facts, wall)
        for memory in memories.values()
    )


def _unknown(memory: EngineMemory, facts: TrainerFacts, wall: float) -> EngineStatus:
    """Say of an engine that can't be looked at only that, and what was counted."""
    last, problem = memory.last, memory.problem
    return EngineStatus(
        memory.engine,
        state="unknown",
        reason="not looked at yet" if problem is None else f"{problem.kind}: {problem.message}",
        seen_at=None if last is None else last.at + wall,
        version_published=facts.version_published,
        looks=memory.looks,
        failed_looks=memory.failed_looks,
        canary_requests=memory.canary_requests,
        version_changes=memory.past_changes + memory.versions.changes,
    )


def _conclude(
    now: float,
    memory: EngineMemory,
    evidence: Evidence,
    fleet: Sequence[Finding],
    facts: TrainerFacts,
    config: JudgeConfig,
    wall: float,
) -> EngineStatus:
    last, versions = memory.last or EngineSnapshot(memory.engine, now), memory.versions
    queue, floor, checksum = measure_queue(memory.before, last), evidence.floor, memory.checksum
    state, reason = _state(memory, evidence, fleet, facts)
    own = [*_restarted(now, memory, config), *_label_differs(memory), *_version_ahead(now, memory, facts, config)]
    return EngineStatus(
        memory.engine,
        state=state,
        reason=reason,
        kind=last.kind,
        release=last.release,
        seen_at=last.at + wall,
        version_label=versions.label if versions.is_said else None,
        version_labelled=versions.version_labelled,
        version_served=versions.version_served,
        version_published=facts.version_published,
        version_canary=evidence.version_canary,
        version_lag=version_lag(versions, facts),
        weight_age_seconds=weight_age_seconds(versions, now, facts),
        sync_seconds=sync_seconds(versions, facts),
        requests_running=queue.running,
        requests_waiting=queue.waiting,
        queue_seconds=queue.queue_seconds,
        drain_seconds=queue.drain_seconds,
        generation_tokens_per_second=queue.tokens_per_second,
        version_lag_generation_expected=expect_lag(memory.before, last, facts),
        canary_log_ratio_abs_mean=None if floor is None else floor.abs_mean,
        canary_log_ratio_abs_max=None if floor is None else floor.abs_max,
        canary_version=evidence.floor_version,
        checksum=checksum.value if checksum.label == versions.served else None,
        findings=(*evidence.findings, *fleet, *own),
        looks=memory.looks,
        failed_looks=memory.failed_looks,
        canary_requests=memory.canary_requests,
        version_changes=memory.past_changes + versions.changes,
    )


def _state(
    memory: EngineMemory, evidence: Evidence, fleet: Sequence[Finding], facts: TrainerFacts
) -> tuple[EngineState, str]:
    versions, lag = memory.versions, version_lag(memory.versions, facts)
    if evidence.wrong:
        return "wrong_weights", evidence.wrong
    if memory.last is not None and memory.last.is_paused:
        return "paused", "paused: it takes requests and generates nothing"
    if lag:
        behind = [finding.message for finding in fleet if finding.kind == "left_behind"]
        reason = f"serves version {versions.version_served}, the trainer has published {facts.version_published}"
        return "lagging", "; ".join([reason, *behind])
    return "serving", ""


def _restarted(now: float, memory: EngineMemory, config: JudgeConfig) -> list[Finding]:
    at = memory.restarted_at
    if at is None or now - at > config.restarted_seconds:
        return []
    return [Finding("restarted", f"it has restarted: {memory.restarted_why}; its history begins again")]


def _label_differs(memory: EngineMemory) -> list[Finding]:
    versions = memory.versions
    last = memory.last
    # A label that was asked for before the response was made may have followed since.
    if not versions.is_label_stale or last is None or last.at - last.took < versions.served_at:
        return []
    message = f"its responses name version {versions.response}, its label {versions.label}: the responses count"
    return [Finding("label_differs", message)]


def _version_ahead(now: float, memory: EngineMemory, facts: TrainerFacts, config: JudgeConfig) -> list[Finding]:
    """Find a version that nobody published; a trainer may say so only when all its engines are updated."""
    versions, since = memory.versions, ahead_since(memory.versions, facts)
    if since is None or now - since < config.ahead_seconds:
        return []
    message = (
        f"it serves version {versions.version_served}, and the latest published is {facts.version_published}: "
        "another run's engine, or a trainer that does not say what it publishes"
    )
    return [Finding("version_ahead", message)]
