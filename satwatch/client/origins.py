"""The engines that generated a batch, as trainers name them, and as the wire wants them: runs of active tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from satwatch.errors import InvalidBatchError, required
from satwatch.sat.layout import Layout
from satwatch.types import EngineRun, check_engine_name

Engines: TypeAlias = str | Sequence[str | None] | npt.NDArray[Any] | None


@dataclass(frozen=True, slots=True)
class BehaviorEngines:
    """The engines that generated a batch's tokens.

    Attributes:
        names: one for the batch, or one a sequence; empty is unknown.
        unit: what one name stands for.
    """

    names: tuple[str, ...]
    unit: Literal["batch", "sequence"]

    def runs(self, layout: Layout) -> tuple[EngineRun, ...]:
        """Encode them over the active tokens; empty if all are unknown.

        Args:
            layout: which tokens are active, with the lengths of the sequences if ``unit`` is ``sequence``.
        """
        lengths = [] if layout.lengths is None else layout.lengths.tolist()
        tokens = [layout.tokens] if self.unit == "batch" else lengths
        pairs = [(name, count) for name, count in zip(self.names, tokens, strict=True) if count]
        if not any(name for name, _ in pairs):
            return ()
        joined = groupby(pairs, key=lambda pair: pair[0])
        return tuple(EngineRun(sum(count for _, count in group), name) for name, group in joined)


def read_behavior_engines(name: str, value: Engines, frame: Layout) -> BehaviorEngines | None:
    """Read the engines of a batch; None is unknown for all.

    Args:
        name: the field, for the message.
        value: one name for the batch, or one a sequence; None and an empty name are unknown.
        frame: the batch's shape and its sequences, padding included.

    Raises:
        InvalidBatchError: no names, or not one a sequence.
    """
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        return BehaviorEngines((_read_name(name, value),), "batch")
    sequences = None if frame.lengths is None else len(frame.lengths)
    if len(value) != sequences:
        wanted = "one name" if sequences is None else f"one name, or one for each of {sequences} sequences"
        raise InvalidBatchError(required(name, f"{len(value)} names", wanted))
    return BehaviorEngines(tuple(_read_name(f"{name}[{i}]", entry) for i, entry in enumerate(value)), "sequence")


def _read_name(name: str, value: object) -> str:
    if value is None or value == "":
        return ""
    try:
        check_engine_name(value)
    except InvalidBatchError as error:
        raise InvalidBatchError(f"{name}{str(error).removeprefix('engine')}") from error
    return str(value)
