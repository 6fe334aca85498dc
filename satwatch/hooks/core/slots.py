"""Values lent to an object's attributes for as long as a loss runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lent(owner: object, **values: object) -> Iterator[None]:
    """Set attributes, and put back what was there, whatever the block raises.

    Args:
        owner: a module, a configuration or anything else with these attributes.
        values: what they are to be, by name.

    Raises:
        AttributeError: the owner has no such attribute: a slot that is not there would silently do nothing; or one
            that can't be set. What had been set by then is put back.

    >>> import types
    >>> loss = types.SimpleNamespace(eps=0.2)
    >>> with lent(loss, eps=0.1):
    ...     print(loss.eps)
    0.1
    >>> loss.eps
    0.2
    """
    lendings = [(name, getattr(owner, name), _is_own(owner, name)) for name in values]
    # Noted before they are set, and struck off after they are put back: an interrupt may come between any two lines.
    begun: list[tuple[str, object, bool]] = []
    try:
        try:
            for lending, value in zip(lendings, values.values(), strict=True):
                begun.append(lending)
                setattr(owner, lending[0], value)
            yield
        finally:
            _put_back(owner, begun)
    finally:
        _put_back(owner, begun)  # what an interrupt of the first has left


def _is_own(owner: object, name: str) -> bool:
    return name in getattr(owner, "__dict__", ())


def _put_back(owner: object, begun: list[tuple[str, object, bool]]) -> None:
    """Put back the last ones first; one that can't be does not keep the others from it."""
    while begun:
        name, value, was_own = begun[-1]
        try:
            # What came from the class, or from an object behind this one, comes from there again.
            if _is_own(owner, name) and not was_own:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        except Exception:
            begun.pop()
            _put_back(owner, begun)
            raise
        begun.pop()
