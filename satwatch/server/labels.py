"""Which names get a label value of their own: at most so many, so that no fleet outgrows the Prometheus beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

# Shared by the names beyond the bound. Whoever is called so himself is one of them.
OTHER: Final = "_other"

Named = TypeVar("Named")


def divide(items: Iterable[Named], name: Callable[[Named], str], most: int) -> tuple[list[Named], list[Named]]:
    """Divide what has names into what keeps its own and what shares ``OTHER``.

    Args:
        items: in the order of their claim.
        name: an item's name.
        most: the most that keep their own, 0 or more.

    >>> divide(["a", "_other", "b", "c"], str, 2)
    (['a', 'b'], ['_other', 'c'])
    """
    own: list[Named] = []
    rest: list[Named] = []
    for item in items:
        (own if len(own) < most and name(item) != OTHER else rest).append(item)
    return own, rest
