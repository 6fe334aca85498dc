"""What engines say of each other: who is left behind, and who disagrees with those that serve the same version."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from satwatch.probe.judge.canary import abs_means, subtract
from satwatch.probe.judge.evidence import Evidence
from satwatch.probe.judge.limits import JudgeConfig
from satwatch.probe.judge.memory import Answer, EngineMemory
from satwatch.probe.judge.versions import LOOKS_TO_ACCUSE, passed_at
from satwatch.types import Canary, Finding

Found: TypeAlias = Mapping[str, Sequence[Finding]]
_NAMED: Final = 3
_NO_VERSION: Final = -1


def compare_fleet(
    memories: Sequence[EngineMemory], evidence: Mapping[str, Evidence], config: JudgeConfig
) -> dict[str, list[Finding]]:
    """Compare engines that can be looked at; returns the findings of each engine's name that has any."""
    found: dict[str, list[Finding]] = defaultdict(list)
    known = sorted((memory for memory in memories if memory.is_known), key=lambda memory: memory.engine)
    for findings in (_left_behind(known), _checksums(known), _scores(known, evidence, config)):
        for engine, finding in findings:
            found[engine].append(finding)
    return found


def _left_behind(known: Sequence[EngineMemory]) -> Iterable[tuple[str, Finding]]:
    """Name an engine whose last two looks came after another was seen with a newer version.

    A label that is no version is older than any: so an engine looks that restarted and was not updated since. One whose
    version fell follows a trainer that went back: the others have yet to, and it is behind what they take after that.
    """
    served = [(memory, version) for memory in known if (version := _rank(memory)) is not None]
    newest = max((version for _, version in served), default=_NO_VERSION)
    passed: dict[tuple[int, float | None], tuple[float, str]] = {}
    for memory, version in served:
        looks = memory.versions.looks
        if version == newest or len(looks) < LOOKS_TO_ACCUSE:
            continue
        key = version, memory.versions.fell_at
        if key not in passed:
            newer = [(other, theirs) for other, theirs in served if theirs > version]
            passed[key] = min(passed_at(other.versions, *key) for other, _ in newer), _count(newer)
        at, others = passed[key]
        if looks[0] >= at:
            own = f"version {version}" if version > _NO_VERSION else f"weights labelled {memory.versions.label}"
            yield memory.engine, Finding("left_behind", f"left behind: it serves {own}, {others}")


def _rank(memory: EngineMemory) -> int | None:
    version = memory.versions.version_served
    return _NO_VERSION if version is None and memory.versions.is_said else version


def _count(newer: Sequence[tuple[EngineMemory, int]]) -> str:
    versions = {version for _, version in newer}
    which = f"version {max(versions)}" if len(versions) == 1 else f"newer ones, up to version {max(versions)}"
    return f"another engine serves {which}" if len(newer) == 1 else f"{len(newer)} other engines serve {which}"


def _checksums(known: Sequence[EngineMemory]) -> Iterable[tuple[str, Finding]]:
    by_version: dict[int, list[EngineMemory]] = defaultdict(list)
    for memory in known:
        version, checksum = memory.versions.version_served, memory.checksum
        if version is not None and checksum.is_settled and checksum.value and checksum.label == memory.versions.served:
            by_version[version].append(memory)
    for version, memories in by_version.items():
        groups: dict[str | None, list[EngineMemory]] = defaultdict(list)
        for memory in memories:
            groups[memory.checksum.value].append(memory)
        for memory, own, others in _minority(tuple(groups.values())):
            message = (
                f"its weights' checksum differs from those of other engines that serve version {version} ({own} "
                f"against {others}); engines split over other numbers of devices may differ so without a fault"
            )
            yield memory.engine, Finding("checksum_differs", message)


def _scores(
    known: Sequence[EngineMemory], evidence: Mapping[str, Evidence], config: JudgeConfig
) -> Iterable[tuple[str, Finding]]:
    """Compare scores of one version where the trainer has none that would say who is right."""
    alike: dict[tuple[int, Canary | None], list[tuple[EngineMemory, Answer]]] = defaultdict(list)
    for memory in known:
        version, answer = memory.versions.version_served, memory.answer
        is_judged = evidence[memory.engine].floor is not None
        if version is not None and answer and not is_judged and any(map(math.isfinite, answer.logprobs)):
            alike[version, memory.canary.canary].append((memory, answer))
    for (version, _), scored in alike.items():
        for memory, own, others in _minority(_group(scored, config.canary_limit)):
            message = f"engines that serve version {version} score the canary differently: {own} against {others}"
            yield memory.engine, Finding("engines_disagree", message)


def _group(scored: Sequence[tuple[EngineMemory, Answer]], limit: float) -> list[list[EngineMemory]]:
    """Put each engine with the first group whose first engine's scores are alike; no token of both tells nothing."""
    groups: list[list[EngineMemory]] = []
    mu, left = np.array([answer.logprobs for _, answer in scored]), np.arange(len(scored))
    while left.size:
        far = abs_means(subtract(mu[left], mu[left[0]]))
        is_alike = ~np.isfinite(far) | (far <= limit)
        is_alike[0] = True
        groups.append([scored[i][0] for i in left[is_alike]])
        left = left[~is_alike]
    return groups


def _minority(groups: Sequence[Sequence[EngineMemory]]) -> Iterable[tuple[EngineMemory, str, str]]:
    """Yield who stands against the majority, with both sides' names; without a majority, everyone."""
    if len(groups) < 2:
        return
    everyone = sum(map(len, groups))
    for group in groups:
        if 2 * len(group) > everyone:
            continue
        others = [memory for other in groups if other is not group for memory in other]
        own, against = _names(group), _names(others)
        for memory in group:
            yield memory, own, against


def _names(memories: Sequence[EngineMemory]) -> str:
    shown = [memory.engine for memory in memories[:_NAMED]]
    more = f" and {len(memories) - _NAMED} more" if len(memories) > _NAMED else ""
    return ", ".join(shown) + more
