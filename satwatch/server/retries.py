"""Which batches have been counted, so that a retry counts once. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Literal, TypeAlias

from satwatch.types import BoundsRequest

# A retry follows its original within the client's deadline; this holds minutes of the largest runs, in 80 MB at most.
RETRY_KEYS: Final = 1 << 18

Found: TypeAlias = Literal["new", "same", "different"]


class Retries:
    """The places of the batches counted last, and a hash of each one's content."""

    def __init__(self, limit: int = RETRY_KEYS) -> None:
        """Remember none; ``limit`` is the most that are remembered."""
        self._limit = limit
        self._counted: OrderedDict[tuple[object, ...], int] = OrderedDict()

    def look(self, request: BoundsRequest, life: Hashable, content: Hashable) -> Found:
        """Tell whether a batch has been counted, and remember it.

        Args:
            request: the batch and where it belongs; without a step or a microbatch it is always new.
            life: what its steps belong to within the run; they may start over in another.
            content: what a retry has in common with its original.

        Returns:
            ``same``: a retry. ``different``: at the place of an earlier batch, with another content.
        """
        if request.step is None or request.microbatch is None:
            return "new"
        key, code = (request.run, life, request.rank, request.step, request.microbatch), hash(content)
        counted = self._counted.get(key)
        if counted is not None:
            return "same" if counted == code else "different"
        self._counted[key] = code
        if len(self._counted) > self._limit:
            self._counted.popitem(last=False)
        return "new"
