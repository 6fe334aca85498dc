"""A canary's answer, read alike for every engine: one part a sequence, and one version for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from satwatch.probe.http.fetch import FetchError
from satwatch.probe.snapshot import Problem
from satwatch.types import Canary


@dataclass(frozen=True, slots=True)
class Scores:
    """What an engine said of a canary.

    Attributes:
        version_label: the version that scored all of it; None: unknown, or several.
        logprobs: of every token but each sequence's first, nats; NaN where it has none.
    """

    version_label: str | None
    logprobs: tuple[float, ...] = field(repr=False)


def one_each(page: str, found: object, canary: Canary) -> list[Mapping[str, Any]]:
    """Return an answer's parts, one a sequence.

    Raises:
        FetchError: no list of objects, or another number of them.
    """
    parts = found if isinstance(found, list) else [found]
    objects: list[Mapping[str, Any]] = [part for part in parts if isinstance(part, dict)]
    if len(objects) != len(parts) or len(parts) != len(canary.sequences):
        wanted = f"{len(canary.sequences)} answers, one a sequence of the canary"
        raise FetchError(Problem("garbage", f"{page}: got {len(objects)}, required {wanted}"))
    return objects


def agreed(labels: Iterable[str | None]) -> str | None:
    """Return the label that all have in common.

    >>> agreed(["7", "7"]), agreed(["7", "8"]), agreed(["7", None])
    ('7', None, None)
    """
    distinct = set(labels)
    return distinct.pop() if len(distinct) == 1 else None
