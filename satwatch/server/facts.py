"""What a run's trainer has told that a probe needs: versions published, and canaries scored. Pure, and bounded."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from satwatch.types import CanaryScores, PublishedVersion, TrainerFacts

# An engine further behind than this has more wrong with it than when its version was published.
PUBLISHED_VERSIONS: Final = 64
CANARY_VERSIONS: Final = 32


def with_published(facts: TrainerFacts, version: int, now: float) -> TrainerFacts:
    """Return the facts after a version was published.

    Said again, it is as old as it was: several ranks may say it, and a retry does. One below the last is a trainer
    that started again from a checkpoint: what a version meant before is another's, and is forgotten.

    >>> with_published(with_published(TrainerFacts("r"), 4, 10.0), 4, 11.0).published
    (PublishedVersion(version=4, at=10.0),)
    """
    latest = facts.version_published
    if latest == version:
        return facts
    if latest is not None and version < latest:
        facts = TrainerFacts(facts.run)
    published = (*facts.published, PublishedVersion(version, now))
    return replace(facts, published=published[-PUBLISHED_VERSIONS:])


def with_canary(facts: TrainerFacts, scores: CanaryScores) -> TrainerFacts:
    """Return the facts after the trainer scored its canary at a version.

    The same version again replaces its scores. Scores of other tokens replace the book: a run has one canary.
    """
    same = [kept for kept in facts.canaries if kept.canary == scores.canary and kept.version != scores.version]
    # The oldest go; but not what has just come, which is of a trainer that started again from a checkpoint.
    room = sorted(same, key=_version)[-(CANARY_VERSIONS - 1) :]
    return replace(facts, canaries=tuple(sorted((*room, scores), key=_version)))


def _version(scores: CanaryScores) -> int:
    return scores.version
