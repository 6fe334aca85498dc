"""Steps that the sidecar was never told of, between steps that it was, and a life that goes on in another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low
from typing import Final

from satwatch._dashboard.wording import plural
from satwatch.types import RunRecord, StepPoint

# Where fewer distances than this share are the usual one, the trainer numbers its steps by a rule of its own.
_REGULAR: Final = 0.75
_TOLD: Final = 3


@dataclass(frozen=True, slots=True)
class Missed:
    """Steps in a row that are missing.

    Attributes:
        first: the first of them.
        last: the last of them.
        by_trainer: the step after them was the first to tell of batches that the trainer bounded by itself.
    """

    first: int
    last: int
    by_trainer: bool

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"


def missed_steps(points: Sequence[StepPoint]) -> list[Missed]:
    """Return what is missing between steps, ascending.

    Steps are missing where one fits between two, by how far apart the steps of this run are. What is kept no longer
    comes before the first step, and so never between two.

    Args:
        points: steps of one life, ascending; of merged neighbours only what is between them is seen.
    """
    pairs = list(pairwise(points))
    apart = [after.first_step - before.last_step for before, after in pairs]
    usual = max(1, median_low(apart)) if apart else 1
    if apart.count(usual) < _REGULAR * len(apart):
        return []
    return [_between(*pair, usual) for pair, distance in zip(pairs, apart, strict=True) if distance >= 2 * usual]


def _between(before: StepPoint, after: StepPoint, usual: int) -> Missed:
    return Missed(before.last_step + usual, after.first_step - usual, after.values.get("client_fallbacks", 0.0) > 0)


def life_before(record: RunRecord, lives: Sequence[RunRecord]) -> str:
    """Say in which life a run's earlier steps are, where this one seems to go on with it; empty where none does.

    Args:
        record: the life looked at.
        lives: all lives kept.
    """
    mine = [kept for kept in lives if (kept.run, kept.incarnation) == (record.run, "") and kept.life < record.life]
    before = max(mine, key=lambda kept: kept.life, default=None)
    if before is None or record.incarnation or before.ended_at is not None:
        return ""  # none before it, named ones, or one that its trainer has closed
    first, last = record.first_step, before.last_step
    if first is None or last is None or first <= last:
        return ""  # the steps start over
    gap = first - last - 1
    # Not seen, or, of a life that is longer than what is kept, removed.
    between = f", and the {plural(gap, 'step')} after it {'is' if gap == 1 else 'are'} not kept" if gap else ""
    return (
        f"Life {before.life} of this run goes up to step {last}{between}: a sidecar that starts again goes on with a "
        "life only if `satwatch.connect(incarnation=...)` names it."
    )


def sentences(missed: Sequence[Missed]) -> list[str]:
    """Say which steps are missing, and why where that is known; of many stretches the latest.

    >>> sentences([Missed(7, 7, False), Missed(121, 133, True)])
    ['Step 7 was not seen.', 'Steps 121 to 133 were not seen: the trainer bounded them without the sidecar.']
    """
    said = []
    for by_trainer in (False, True):
        stretches = [each for each in missed if each.by_trainer is by_trainer]
        if stretches:
            why = ": the trainer bounded them without the sidecar." if by_trainer else "."
            said.append(_named(stretches) + (why if _is_plural(stretches) else why.replace("them", "it")))
    return said


def _named(stretches: Sequence[Missed]) -> str:
    latest = [str(each) for each in stretches[-_TOLD:]]
    earlier = len(stretches) - len(latest)
    names = ", ".join(latest[:-1]) + " and " + latest[-1] if len(latest) > 1 else latest[0]
    before = (
        f", and of {earlier} stretches before," if earlier > 1 else ", and of one stretch before," if earlier else ""
    )
    return f"Steps {names}{before} were not seen" if _is_plural(stretches) else f"Step {names} was not seen"


def _is_plural(stretches: Sequence[Missed]) -> bool:
    return len(stretches) > 1 or stretches[0].first != stretches[0].last
