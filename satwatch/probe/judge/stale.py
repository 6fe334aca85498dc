"""Weights that do not follow their label: whose they were proven to be, and since when they have stood still.

A trainer's history is short. An engine that keeps old weights outlives the scores that they were known by: what proved
them, and what the engine itself has scored since, is remembered with the engine. Two things, however long it lasts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from satwatch.probe.judge.book import Page
from satwatch.probe.judge.canary import UNCHANGED, compare, distance, floats, is_decisive, nearest_row
from satwatch.types import CanaryScores

# An engine's scores count as unchanged within this many times what they differ by without any change.
NOISE_TIMES: Final = 3.0
# Labels over the same scores before a temperature stops explaining them: a label may come before its weights.
LEAST_VERSIONS: Final = 3


@dataclass(frozen=True, slots=True)
class Proof:
    """That an engine has another version's weights than it claimed.

    Attributes:
        scores: the trainer's, of the version that it has.
        claimed: the version that it claimed.
        apart: what the trainer's scores of the two differ by, mean nats.
        left: what the engine's differed by from ``scores``, mean nats.
        logprobs: the engine's.
    """

    scores: CanaryScores
    claimed: int
    apart: float
    left: float
    logprobs: tuple[float, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Standstill:
    """Scores of one engine that stayed the same.

    Attributes:
        logprobs: the first of them.
        versions: how many labels they had, one after another.
        trainer: the trainer's scores of the earliest of these that it told, at an engine's own settings.
    """

    logprobs: tuple[float, ...] = field(repr=False)
    versions: int = 1
    trainer: CanaryScores | None = None


def still(noise: float) -> float:
    """Return what scores may differ by and count as unchanged, mean nats."""
    return max(UNCHANGED, NOISE_TIMES * noise)


def apart(a: CanaryScores, b: CanaryScores) -> float | None:
    """Return what two versions' scores differ by, mean nats; None: no token has both."""
    found = distance(list(floats(a.logprobs)), list(floats(b.logprobs)))
    return None if found is None else found.abs_mean


def prove(page: Page, claimed: CanaryScores, logprobs: tuple[float, ...]) -> Proof | None:
    """Prove whose weights an engine has; None: those that it claims, or the tokens decide nothing."""
    match = nearest_row(page.comparable, page.values, np.asarray(logprobs, dtype=np.float64), prefer=claimed.version)
    if match is None or match.scores.version == claimed.version or not is_decisive(claimed, match.scores, logprobs):
        return None
    between = apart(claimed, match.scores) or 0.0
    return Proof(match.scores, claimed.version, between, match.comparison.abs_mean, logprobs)


def keep(proof: Proof | None, logprobs: tuple[float, ...]) -> Proof | None:
    """Keep a proof while the scores are as near to its version's as they were; None: they are others now."""
    found = None if proof is None else compare(proof.scores, logprobs)
    return proof if proof and found and found.abs_mean <= NOISE_TIMES * max(proof.left, UNCHANGED) else None


def is_still_proven(proof: Proof, logprobs: tuple[float, ...], noise: float) -> bool:
    """Tell whether scores are the very ones that proved an older version, be the one claimed now scored or not.

    Noise must not hide a step as large as that between the two versions. A newer version is no such case: its label
    may only be late.
    """
    moved = distance(logprobs, proof.logprobs)
    if moved is None or proof.scores.version >= proof.claimed:
        return False
    limit = still(noise)
    return moved.abs_max <= UNCHANGED or (moved.abs_mean <= limit and proof.apart > NOISE_TIMES * limit)


def stand(was: Standstill | None, logprobs: tuple[float, ...], noise: float, *, is_new_label: bool) -> Standstill:
    """Take in an answer: it is as the first was, or begins anew."""
    moved = None if was is None else distance(logprobs, was.logprobs)
    if was is None or moved is None or moved.abs_mean > still(noise):
        return Standstill(logprobs)
    return replace(was, versions=was.versions + is_new_label)


def is_frozen(was: Standstill | None, claimed: CanaryScores, temperature: float, limit: float, noise: float) -> bool:
    """Tell whether scores stood still over several labels while the trainer's moved: no temperature does that.

    At temperature T the trainer's move by about 1 / T of what the engine's have to. They have to have moved by more
    than two sides of the same weights may differ by (``limit``, nats), which no noise of the trainer's does, and than
    the engine's own noise could hide.
    """
    if was is None or was.trainer is None or was.versions < LEAST_VERSIONS:
        return False
    due = apart(was.trainer, claimed)
    return due is not None and min(1.0, temperature) * due > max(limit, NOISE_TIMES * still(noise))
