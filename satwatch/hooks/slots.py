"""Values lent to an object's attributes for as long as a loss runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


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
    before = {name: getattr(owner, name) for name in values}
    with ExitStack() as stack:
        for name, value in values.items():
            was_own = _is_own(owner, name)
            setattr(owner, name, value)
            stack.callback(_put_back, owner, name, before[name], was_own=was_own)
        yield


def _is_own(owner: object, name: str) -> bool:
    return name in getattr(owner, "__dict__", ())


def _put_back(owner: object, name: str, value: object, *, was_own: bool) -> None:
    # What came from the class, or from an object behind this one, comes from there again.
    if _is_own(owner, name) and not was_own:
        delattr(owner, name)
    else:
        setattr(owner, name, value)
