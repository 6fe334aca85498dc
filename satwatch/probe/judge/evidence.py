"""What an engine's own scores and checksums say of its weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from satwatch.probe.judge.book import Book
from satwatch.probe.judge.canary import (
    UNCHANGED,
    Comparison,
    Match,
    compare,
    distance,
    floats,
    is_decisive,
    nearest_row,
    stretch,
)
from satwatch.probe.judge.limits import JudgeConfig
from satwatch.probe.judge.memory import Answer, CanaryMemory, EngineMemory
from satwatch.probe.judge.stale import NOISE_TIMES, apart, is_frozen, is_still_proven, still
from satwatch.probe.judge.versions import has_fallen, version_of
from satwatch.types import CanaryScores, Finding


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the canary and the checksum of one engine say.

    Attributes:
        findings: what is amiss.
        wrong: why the weights are wrong; empty: nothing says so.
        version_canary: the version whose scores the engine's equal.
        floor: what is left of d at equal versions; None: not compared.
        floor_version: that version.
    """

    findings: tuple[Finding, ...] = ()
    wrong: str = ""
    version_canary: int | None = None
    floor: Comparison | None = None
    floor_version: int | None = None


def weigh(memory: EngineMemory, book: Book, config: JudgeConfig) -> Evidence:
    """Weigh what the version served was scored and summed to."""
    answer = memory.answer
    evidence = Evidence() if answer is None else _recall(memory, answer, book, config)
    unchanged = _checksum_stood_still(memory)
    return replace(evidence, findings=(*evidence.findings, *unchanged)) if unchanged else evidence


def _recall(memory: EngineMemory, answer: Answer, book: Book, config: JudgeConfig) -> Evidence:
    """Weigh the scores anew only where they, the trainer's, the version served or the limits are others.

    A round comes every few seconds, and a sidecar has better to do: nearly always all of that is as it was.
    """
    kept, others = memory.canary.weighed, (answer.label, memory.versions.version_served, config)
    found = kept.find(book, others)
    if found is not None:
        return found
    evidence = _weigh_canary(memory, answer, book, config)
    findings = (*evidence.findings, *_scores_stood_still(memory, answer, book))
    return kept.keep(book, others, replace(evidence, findings=findings))


def _weigh_canary(memory: EngineMemory, answer: Answer, book: Book, config: JudgeConfig) -> Evidence:
    version, kept, proof = memory.versions.version_served, memory.canary.trainer, memory.canary.proof
    is_of_it = kept is not None and kept.canary == memory.canary.canary
    page = book.page(memory.canary.canary).with_kept(kept if is_of_it else None)
    page = page.with_kept(None if proof is None else proof.scores)
    claimed = None if version is None else page.scores_of(version)
    if claimed is None or not claimed.is_comparable:
        proven = _as_proven(memory.canary, answer, config)
        if proven is not None:
            return proven
    if claimed is not None and not claimed.is_comparable:
        return _not_comparable(_at_other_settings(claimed))
    mu = np.asarray(answer.logprobs, dtype=np.float64)
    if claimed is not None and not np.isfinite(mu).any() and np.isfinite(floats(claimed.logprobs)).any():
        return _is_no_number(claimed)
    match = nearest_row(page.comparable, page.values, mu, prefer=version)
    if match is None:
        return Evidence()
    if version is None:
        return _unlabelled(match, config)
    return Evidence() if claimed is None else _against_claim(memory.canary, claimed, match, answer, config)


def _as_proven(canary: CanaryMemory, answer: Answer, config: JudgeConfig) -> Evidence | None:
    """Judge scores that the trainer's of the version claimed can't be compared with by what they proved before."""
    proof = canary.proof
    if proof is None or proof.left > config.canary_limit or not is_still_proven(proof, answer.logprobs, canary.noise):
        return None
    message = (
        f"canary: labelled {answer.label}, its log-probs are still those that equalled the trainer's version "
        f"{proof.scores.version} under the label {proof.claimed}"
    )
    return Evidence((Finding("canary_older_version", message),), message, proof.scores.version)


def _against_claim(
    canary: CanaryMemory, claimed: CanaryScores, match: Match, answer: Answer, config: JudgeConfig
) -> Evidence:
    """Judge scores of an engine that says which version made them."""
    found = compare(claimed, answer.logprobs)
    is_other = (
        match.scores.version != claimed.version
        and match.comparison.abs_mean <= config.canary_limit
        and is_decisive(claimed, match.scores, answer.logprobs)
    )
    is_mismatch = found is None or found.abs_mean > config.canary_limit or is_other
    stretched = stretch(claimed, answer.logprobs) if is_mismatch else None
    if stretched and is_frozen(canary.standstill, claimed, stretched[0], config.canary_limit, canary.noise):
        stretched = None
    # Two explanations of one mismatch: the one that leaves less unexplained is told.
    if stretched and not (is_other and match.comparison.abs_mean < stretched[1]):
        return _not_comparable(_like_another_temperature(claimed, stretched[0]))
    if is_other:
        return _is_other_version(claimed, match, found)
    if found is None:
        return Evidence()
    if is_mismatch:
        return _is_no_version(claimed, match, found, config)
    return Evidence(version_canary=claimed.version, floor=found, floor_version=claimed.version)


def _unlabelled(match: Match, config: JudgeConfig) -> Evidence:
    """Judge scores of an engine that names no version: they can name one, and accuse nobody."""
    if match.comparison.abs_mean > config.canary_limit or match.also:
        return Evidence()
    version = match.scores.version
    return Evidence(version_canary=version, floor=match.comparison, floor_version=version)


def _is_other_version(claimed: CanaryScores, match: Match, found: Comparison | None) -> Evidence:
    label, other = claimed.version, match.scores.version
    apart = "" if found is None else f", {found.abs_mean:.3g} to version {label}"
    also = [str(version) for version in match.also if version != label]
    alike = f"; version {' and '.join(also)} can't be told from it" if also else ""
    message = (
        f"canary: labelled {label}, equals the trainer's version {other} "
        f"(mean difference {match.comparison.abs_mean:.3g} nats{apart}){alike}"
    )
    kind = Finding("canary_older_version" if other < label else "canary_differs", message)
    return Evidence((kind,), message, other, found, None if found is None else label)


def _is_no_version(claimed: CanaryScores, match: Match, found: Comparison, config: JudgeConfig) -> Evidence:
    message = (
        f"canary: labelled {claimed.version}, but its log-probs differ from the trainer's version {claimed.version} by "
        f"{found.abs_mean:.3g} nats on average (limit {config.canary_limit:g})"
    )
    if match.scores.version != claimed.version:
        message += f"; the nearest, version {match.scores.version}, by {match.comparison.abs_mean:.3g}"
    return Evidence((Finding("canary_differs", message),), message, None, found, claimed.version)


def _is_no_number(claimed: CanaryScores) -> Evidence:
    message = f"canary: labelled {claimed.version}, but none of its log-probs is a number"
    return Evidence((Finding("canary_differs", message),), message)


def _not_comparable(why: str) -> Evidence:
    message = f"canary: the trainer's scores can't be compared with an engine's: {why}"
    return Evidence((Finding("canary_not_comparable", message),))


def _at_other_settings(claimed: CanaryScores) -> str:
    return (
        f"those of version {claimed.version} are at temperature {claimed.temperature:g} and top_p {claimed.top_p:g}, "
        "an engine's prompt log-probs always at 1 and 1"
    )


def _like_another_temperature(claimed: CanaryScores, temperature: float) -> str:
    return f"those of version {claimed.version} look like another temperature, about {temperature:.2g} instead of 1"


def _scores_stood_still(memory: EngineMemory, answer: Answer, book: Book) -> list[Finding]:
    """Find a label that changed over scores that did not.

    Without the trainer's scores of both versions only scores that stood still to the last digit are told, and that as
    what they are: an update that changed nothing looks the same. A label that is no version claims nothing: from
    ``default`` to 0 is no update.
    """
    before = memory.canary.before
    moved = None if before is None else distance(answer.logprobs, before.logprobs)
    if before is None or moved is None or version_of(before.label) is None or version_of(answer.label) is None:
        return []
    is_exact, noise = moved.abs_max <= UNCHANGED, memory.canary.noise
    what = f"the label changed from {before.label} to {answer.label} and its scores of the canary did not change"
    due = _due(before, answer, book)
    if due is None:
        is_told = is_exact and not has_fallen(before.label, answer.label)
        return [Finding("label_only", f"{what} at all")] if is_told else []
    limit = still(noise)
    stood = (is_exact and due > NOISE_TIMES * UNCHANGED) or (moved.abs_mean <= limit and due > NOISE_TIMES * limit)
    if not stood:
        return []
    figures = f"they moved by {moved.abs_mean:.3g} nats on average, the trainer's by {due:.3g}"
    return [Finding("label_only", f"{what}: {figures}")]


def _due(before: Answer, answer: Answer, book: Book) -> float | None:
    """Return by how much the trainer's scores of the two labels differ; None: it did not tell both alike."""
    versions = version_of(before.label), version_of(answer.label)
    told = [None if version is None else book.scores_of(version) for version in versions]
    was, now = told
    if was is None or now is None or (was.temperature, was.top_p) != (now.temperature, now.top_p):
        return None
    return apart(was, now)


def _checksum_stood_still(memory: EngineMemory) -> list[Finding]:
    checksum = memory.checksum
    if not checksum.is_settled or checksum.before is None or checksum.label != memory.versions.served:
        return []
    label, value = checksum.before
    if value != checksum.value or version_of(label) is None or version_of(checksum.label) is None:
        return []
    if has_fallen(label, checksum.label):
        return []
    what = f"the label changed from {label} to {checksum.label} and the checksum of its weights did not"
    return [Finding("label_only", what)]
