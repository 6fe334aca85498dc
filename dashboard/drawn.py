"""Figures that were drawn already: a refresh that brings nothing new need not draw them again."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, ParamSpec

import plotly.graph_objects as go

P = ParamSpec("P")

# Of each kind of figure so many: as many visitors who look at different things are served at once.
KEPT_FIGURES: Final = 4


@dataclass(frozen=True, slots=True)
class _Drawn:
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    figure: go.Figure


_kept: dict[Callable[..., go.Figure], deque[_Drawn]] = {}
_lock = threading.Lock()


def drawn(draw: Callable[P, go.Figure], *args: P.args, **kwargs: P.kwargs) -> go.Figure:
    """Return the figure that a function draws, or drew before of the same; it is not to be changed.

    What has not changed in the history is the same object from refresh to refresh, and comparing costs a look at each.
    What is equal without being the same is drawn once too.

    Args:
        draw: a function of its arguments alone.
        args: its arguments, which can be compared as a whole.
        kwargs: likewise.
    """
    with _lock:
        before = list(_kept.get(draw, ()))
    for each in before:
        if each.args == args and each.kwargs == kwargs:
            return each.figure
    figure = draw(*args, **kwargs)
    with _lock:
        _kept.setdefault(draw, deque(maxlen=KEPT_FIGURES)).append(_Drawn(args, kwargs, figure))
    return figure
