"""How often an engine is asked: seldom enough that it never notices.

A look costs an engine time, and a canary requests: each is held to a share ``max_load`` of the engine's own.
"""

from __future__ import annotations

from typing import Final

from satwatch.probe.judge.book import open_book
from satwatch.probe.judge.evidence import weigh
from satwatch.probe.judge.limits import JudgeConfig
from satwatch.probe.judge.memory import CanaryMemory, EngineMemory
from satwatch.probe.judge.versions import version_lag
from satwatch.types import Canary, TrainerFacts

BACKOFF_SECONDS: Final = 30.0
# An engine that takes long to answer a look is waiting, not working: beyond this the pause helps nobody.
LONGEST_PAUSE_SECONDS: Final = 60.0
CANARY_GAP_SECONDS: Final = 1.0
CHECKSUM_RETRY_SECONDS: Final = 600.0
_MOST_DOUBLINGS: Final = 16


def next_look(now: float, memory: EngineMemory, period: float, config: JudgeConfig, jitter: float = 0.0) -> float:
    """Return when the engine is to be looked at next, on the clock.

    A period after the last look; later where looks would take more than ``max_load`` of the time, by the quickest of
    the last three (up to a minute); and later yet after each failed look, twice as late up to 30 seconds.

    Args:
        now: the time, for an engine that was never looked at.
        memory: what is remembered of it.
        period: seconds.
        config: the limits.
        jitter: added to the pause, as a share of it: -0.1 to 0.1, say.
    """
    if memory.looked_at is None:
        return now
    pause = period
    if memory.failures:
        doubled = period * 2.0 ** min(memory.failures - 1, _MOST_DOUBLINGS)
        pause = max(period, min(doubled, BACKOFF_SECONDS))
    elif memory.took:
        pause = max(period, min(min(memory.took) / config.max_load, LONGEST_PAUSE_SECONDS))
    return memory.looked_at + pause * (1 + jitter)


def wants_canary(now: float, memory: EngineMemory, canary: Canary, facts: TrainerFacts, config: JudgeConfig) -> bool:
    """Tell whether the engine is to score the canary now.

    It is for a version (or canary) that it did not score yet, at a slow pulse, and once for each version published that
    its label did not follow to: then its responses know better. Never while it is paused or can't be looked at; not
    within a second of the last one; later after each failure; and only with capacity to spare: while it is idle, or
    while the sequences asked so far are at most ``max_load`` of its other requests. A new version that has waited
    ``canary_wait`` for that is scored all the same, once; what it cost is owed by the pulse.

    New scores of the trainer need no request: they are compared with what the engine answered before.
    """
    if not _may_be_asked(memory, config) or now < _canary_allowed_at(memory.canary, config):
        return False
    if memory.answer is None or memory.canary.canary != canary:
        return _has_capacity(memory, canary, config) or now - _unscored_since(memory) >= config.canary_wait
    is_due = _is_pulse_due(now, memory, facts, config) or _is_left_unsaid(now, memory, facts, config)
    return is_due and _has_capacity(memory, canary, config)


def _may_be_asked(memory: EngineMemory, config: JudgeConfig) -> bool:
    """Tell whether the engine may be asked for something that reads its weights.

    Between rollouts a trainer that shares the engine's GPU takes their memory away. Nothing that can be asked says
    when, and a request in that moment, or in flight as it begins, ends the engine.
    """
    last = memory.last
    if last is None or not memory.is_known or last.is_paused:
        return False
    return config.scores_sleepers or not last.may_sleep


def _unscored_since(memory: EngineMemory) -> float:
    """Return since when a canary is due; versions that follow each other quickly are one wait, not one each."""
    asked_at, versions = _time(memory.canary.asked_at), memory.versions
    first = min((at for _, at in versions.sights if at > asked_at), default=versions.served_at)
    return max(first, asked_at, _first_at(memory))


def _canary_allowed_at(canary: CanaryMemory, config: JudgeConfig) -> float:
    if canary.asked_at is None:
        return -float("inf")
    backoff = CANARY_GAP_SECONDS * 2.0 ** min(canary.failures, _MOST_DOUBLINGS)
    return canary.asked_at + min(backoff, max(CANARY_GAP_SECONDS, config.canary_pulse_seconds))


def _is_pulse_due(now: float, memory: EngineMemory, facts: TrainerFacts, config: JudgeConfig) -> bool:
    pulse = config.canary_pulse_seconds
    # Only responses tell the version of a stale label; and what was repaired under its old label must not stay accused.
    if memory.versions.is_label_stale or weigh(memory, open_book(facts.canaries), config).wrong:
        pulse = min(pulse, config.canary_wait)
    if now - _time(memory.canary.asked_at) < pulse:
        return False
    # While an update may be under way, half of it may be in the weights: that would look like wrong ones.
    lag, published = version_lag(memory.versions, facts), facts.published
    return not lag or not published or now - published[-1].at >= config.canary_wait


def _is_left_unsaid(now: float, memory: EngineMemory, facts: TrainerFacts, config: JudgeConfig) -> bool:
    if not version_lag(memory.versions, facts):
        return False
    due = facts.published[-1].at + config.canary_lag_seconds
    return _time(memory.canary.asked_at) < due <= now


def _has_capacity(memory: EngineMemory, canary: Canary, config: JudgeConfig) -> bool:
    last, first = memory.last, memory.first
    if last is None or first is None:
        return False
    if last.load.running == 0 and last.load.waiting == 0:
        return True
    requests, at_first, ours = last.counters.requests, first.counters.requests, memory.canary.sequences
    if requests is None or at_first is None:
        return False
    return ours + len(canary.sequences) <= config.max_load * max(0.0, requests - at_first - ours)


def wants_checksum(now: float, memory: EngineMemory, config: JudgeConfig) -> bool:
    """Tell whether the engine is to be asked for its weights' checksum now: once a version, never while it is paused.

    What the last one took must be at most ``max_load`` of the time since. Where it is not granted it is asked again
    with the next version, and no sooner than ten minutes later. One that a label changed over is asked for again at the
    pulse: the weights may have come after their label.
    """
    was = memory.checksum
    if not _may_be_asked(memory, config) or memory.versions.served is None:
        return False
    if was.at is None:
        return True
    if was.took > config.max_load * (now - was.at):
        return False
    if was.value is None and was.label is not None:
        return was.label != memory.versions.served and now - was.at >= CHECKSUM_RETRY_SECONDS
    if was.before is not None and was.before[1] == was.value and now - was.at >= config.canary_pulse_seconds:
        return True
    return was.label != memory.versions.served


def _time(at: float | None) -> float:
    return -float("inf") if at is None else at


def _first_at(memory: EngineMemory) -> float:
    return -float("inf") if memory.first is None else memory.first.at
