"""The tokens of a batch that are farthest off, with all that is known of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from satwatch.sat.layout import Ints
from satwatch.sat.packed import unpack
from satwatch.sat.quantile import Floats, infinity_bits, magnitude_bits
from satwatch.types import ITEM_BYTES, EngineRun, PackedFloats, TokenBatch, VersionRun, WorstToken

Run = TypeVar("Run", VersionRun, EngineRun)


def worst_tokens(batch: TokenBatch, limit: int = 10) -> tuple[WorstToken, ...]:
    """Return the tokens with the largest abs(d), worst first: NaN, then infinity; of equals the first come first.

    Args:
        batch: the batch.
        limit: the most tokens returned, 0 or more.

    Costs a partition of the batch, and no sort.
    """
    packed = unpack(batch.log_ratio)
    d = packed.to(torch.float64 if packed.dtype == torch.float64 else torch.float32).numpy()
    index = _farthest(d, limit)
    sequences, positions = _place(index, batch.sequence_lengths)
    behavior = _pick(batch.behavior_logprob, index)
    reference = _pick(batch.reference_logprob, index)
    advantage = _advantages(batch, index, sequences)
    versions = _value_at(batch.behavior_versions, index)
    engines = _value_at(batch.behavior_engines, index)
    return tuple(
        WorstToken(
            log_ratio=(log_ratio := float(d[index[i]])),
            position=positions[i],
            sequence=sequences[i],
            behavior_logprob=behavior[i],
            policy_logprob=_policy_logprob(behavior[i], log_ratio),
            reference_logprob=reference[i],
            advantage=advantage[i],
            version=None if (run := versions[i]) is None else run.version,
            engine=None if (of := engines[i]) is None else of.engine or None,
        )
        for i in range(len(index))
    )


def _policy_logprob(mu: float | None, log_ratio: float) -> float | None:
    """Return log pi(j) = log mu + d; None where log mu is unknown or no number, which leaves d to say nothing of pi."""
    return None if mu is None or not math.isfinite(mu) else mu + log_ratio


def _farthest(d: Floats, limit: int) -> Ints:
    """Return the positions of the ``limit`` values of largest magnitude, NaN above all."""
    limit = min(limit, len(d))
    if limit < 1:
        return np.empty(0, np.int64)
    # NaN has many bit patterns; here it has one.
    bits = np.minimum(magnitude_bits(d), infinity_bits(d.dtype) + 1)
    least = np.partition(bits, len(bits) - limit)[len(bits) - limit]
    above, equal = np.flatnonzero(bits > least), np.flatnonzero(bits == least)
    chosen = np.concatenate([above, equal[: limit - len(above)]])
    return chosen[np.argsort(-bits[chosen], kind="stable")]


def _place(index: Ints, lengths: Sequence[int]) -> tuple[list[int | None], list[int]]:
    """Return the sequence of each token, None where unknown, and its position there."""
    if not lengths:
        return [None] * len(index), index.tolist()
    ends = np.cumsum(lengths)
    sequences = np.searchsorted(ends, index, side="right")
    return sequences.tolist(), (index - (ends[sequences] - np.array(lengths)[sequences])).tolist()


def _pick(values: PackedFloats | None, index: Ints) -> Sequence[float | None]:
    """Return some of the values, unpacking no others."""
    if values is None:
        return [None] * len(index)
    rows: npt.NDArray[np.uint8] = np.frombuffer(values.data, np.uint8).reshape(-1, ITEM_BYTES[values.dtype])
    picked: list[float] = unpack(PackedFloats(values.dtype, rows[index].tobytes())).tolist()
    return picked


def _advantages(batch: TokenBatch, index: Ints, sequences: Sequence[int | None]) -> Sequence[float | None]:
    if batch.sequence_advantage is None:
        return _pick(batch.advantage, index)
    return _pick(batch.sequence_advantage, np.array(sequences, dtype=np.int64))


def _value_at(runs: Sequence[Run], index: Ints) -> Sequence[Run | None]:
    """Return the run that holds each token; None where there are no runs."""
    if not runs:
        return [None] * len(index)
    holding = np.searchsorted(np.cumsum([run.tokens for run in runs]), index, side="right")
    return [runs[position] for position in holding]
