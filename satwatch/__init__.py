"""satwatch: the sidecar that watches and guards asynchronous LLM reinforcement learning.

>>> import satwatch
>>> satwatch.__version__.count(".")
2
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from satwatch.client import connect as connect

__version__ = "0.1.0"
__all__ = ["__version__", "connect"]


def __getattr__(name: str) -> object:
    # Loaded on first use, so that the generated messages import without torch.
    if name in {"client", "errors", "sat", "types"}:
        return import_module(f"satwatch.{name}")
    if name == "connect":
        from satwatch.client import connect

        return connect
    raise AttributeError(f"module 'satwatch' has no attribute {name!r}")  # noqa: TRY003 (Python's own words)
