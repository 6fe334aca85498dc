"""TRL: its own trainers, clipping inside satwatch's bounds.

>>> from satwatch.hooks.trl import SatGRPOTrainer
>>> SatGRPOTrainer.__mro__[2].__name__
'GRPOTrainer'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satwatch.hooks.trl.grpo import SatGRPOTrainer

if TYPE_CHECKING:
    from satwatch.hooks.trl.async_grpo import SatAsyncGRPOTrainer

__all__ = ["SatAsyncGRPOTrainer", "SatGRPOTrainer"]


def __getattr__(name: str) -> type[SatAsyncGRPOTrainer]:
    # Of TRL's experimental part: who does not use it does not load it.
    if name == "SatAsyncGRPOTrainer":
        from satwatch.hooks.trl.async_grpo import SatAsyncGRPOTrainer

        return SatAsyncGRPOTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")  # noqa: TRY003 - Python's own words
