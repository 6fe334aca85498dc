"""What torch.compile leaves alone: locks, futures and calls to a sidecar are no part of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

F = TypeVar("F", bound=Callable[..., Any])


def not_compiled(function: F) -> F:
    """Make a function that a compiled caller calls as it is; such a caller can't be of ``fullgraph=True``."""
    return cast(F, torch.compiler.disable(function))
