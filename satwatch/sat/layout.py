"""Which tokens of a trainer's tensors count, and which sequence each belongs to.

Trainers hold a batch as (B, T) with a mask, as one flat row of tokens, or ragged with ``sequence_lengths``. All
three become the same thing here: the active tokens, in order, with the active length of each sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from satwatch.errors import InvalidBatchError, required

Ints: TypeAlias = npt.NDArray[np.int64]
Lengths: TypeAlias = Sequence[int] | torch.Tensor | npt.NDArray[np.integer]

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Layout:
    """The active tokens of a batch.

    Attributes:
        shape: the shape of the trainer's tensors, (B, T) or (N,).
        positions: flat positions of the active tokens, ascending, int64 (n,); None: every position is active.
        lengths: active tokens of each sequence, int64 (S,), adds up to n; None: unknown.
    """

    shape: torch.Size
    positions: Ints | None
    lengths: Ints | None

    @property
    def tokens(self) -> int:
        """The number of active tokens, n."""
        return self.shape.numel() if self.positions is None else len(self.positions)

    def take(self, name: str, values: torch.Tensor) -> torch.Tensor:
        """Return the active elements of a tensor, (n,), on the CPU, in the tensor's dtype.

        Raises:
            InvalidBatchError: no float tensor of the batch's shape.
        """
        require_floats(name, values)
        if values.shape != self.shape:
            raise InvalidBatchError(required(name, f"shape {tuple(values.shape)}", f"{tuple(self.shape)}, log_ratio's"))
        flat = values.detach().reshape(-1).cpu()
        return flat if self.positions is None else flat[torch.from_numpy(self.positions)]

    def is_per_sequence(self, values: torch.Tensor) -> bool:
        """Tell whether a tensor holds one value a sequence: (S,) or (S, 1), and not one a token."""
        if self.lengths is None or values.shape == self.shape:
            return False
        return tuple(values.shape) in {(len(self.lengths),), (len(self.lengths), 1)}

    def spread(self, name: str, values: torch.Tensor) -> torch.Tensor:
        """Return one element an active token, (n,), from a value a token or a value a sequence.

        Raises:
            InvalidBatchError: neither shape.
        """
        if not self.is_per_sequence(values):
            return self.take(name, values)
        require_floats(name, values)
        return values.detach().reshape(-1).cpu().repeat_interleave(torch.from_numpy(self.lengths))


def require_floats(name: str, values: object) -> None:
    """Refuse what is no float tensor.

    Raises:
        InvalidBatchError: not a tensor, or of another dtype than float64, float32, bfloat16 and float16.
    """
    if not isinstance(values, torch.Tensor):
        raise InvalidBatchError(required(name, type(values).__name__, "a torch.Tensor"))
    if values.dtype not in FLOATS:
        raise InvalidBatchError(required(f"{name}.dtype", values.dtype, "float64, float32, bfloat16 or float16"))
    if values.layout != torch.strided:
        raise InvalidBatchError(required(f"{name}.layout", values.layout, "a dense tensor"))


def lay_out(
    log_ratio: torch.Tensor, mask: torch.Tensor | None = None, sequence_lengths: Lengths | None = None
) -> Layout:
    """Find the active tokens of a batch.

    Args:
        log_ratio: (B, T), where a row is a sequence, or (N,).
        mask: the active tokens, in log_ratio's shape, any dtype, non-zero is active; None: all.
        sequence_lengths: for (N,) only: the tokens of each sequence, masked ones included; adds up to N.

    Raises:
        InvalidBatchError: a shape, dtype or sum that does not fit.

    Synchronises with the mask's device, once.
    """
    require_floats("log_ratio", log_ratio)
    if log_ratio.dim() not in (1, 2):
        raise InvalidBatchError(required("log_ratio", f"shape {tuple(log_ratio.shape)}", "(B, T) or (N,)"))
    active = None if mask is None else check_mask(mask, log_ratio.shape).cpu().numpy()
    positions = None if active is None or active.all() else np.flatnonzero(active)
    return Layout(log_ratio.shape, positions, _active_lengths(log_ratio.shape, active, sequence_lengths))


def check_mask(mask: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Return the mask as booleans.

    Raises:
        InvalidBatchError: not a tensor of that shape.
    """
    if not isinstance(mask, torch.Tensor):
        raise InvalidBatchError(required("mask", type(mask).__name__, "a torch.Tensor"))
    if mask.shape != shape:
        raise InvalidBatchError(required("mask", f"shape {tuple(mask.shape)}", f"{tuple(shape)}, log_ratio's"))
    return mask.detach() if mask.dtype == torch.bool else mask.detach() != 0


def check_lengths(sequence_lengths: Lengths, shape: torch.Size) -> Ints:
    """Return the sequence lengths as int64.

    Raises:
        InvalidBatchError: not whole numbers of 0 or more that add up to N, or given for (B, T).
    """
    if len(shape) == 2:
        raise InvalidBatchError(
            required("sequence_lengths", "lengths beside (B, T)", "none: a row is a sequence; use mask")
        )
    given = _whole_numbers(sequence_lengths)
    # Each one first: a sum of huge ones could wrap around to the right one.
    for wrong, requirement in (
        (given < 0, "0 or more"),
        (given > shape[0], f"at most {shape[0]}, the tokens of log_ratio"),
    ):
        if wrong.any():
            raise InvalidBatchError(required("sequence_lengths", f"a length of {given[wrong][0]}", requirement))
    lengths: Ints = given.astype(np.int64)
    if lengths.sum() != shape[0]:
        came = f"{len(lengths)} lengths that sum to {lengths.sum()}"
        raise InvalidBatchError(required("sequence_lengths", came, f"a sum of {shape[0]}, the tokens of log_ratio"))
    return lengths


def _whole_numbers(values: Lengths) -> npt.NDArray[np.integer]:
    requirement = "whole numbers in one dimension"
    if isinstance(values, torch.Tensor):
        if values.dtype.is_floating_point or values.dtype.is_complex or values.layout != torch.strided:
            raise InvalidBatchError(required("sequence_lengths", f"{values.dtype}, {values.layout}", requirement))
        values = values.cpu().numpy()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidBatchError(required("sequence_lengths", f"{values!r:.80}", requirement)) from error
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        came = f"{array.dtype} of shape {array.shape}"
        raise InvalidBatchError(required("sequence_lengths", came, requirement))
    return array


def _active_lengths(
    shape: torch.Size, active: npt.NDArray[np.bool_] | None, sequence_lengths: Lengths | None
) -> Ints | None:
    if sequence_lengths is None:
        if len(shape) == 1:
            return None
        rows: Ints = np.full(shape[0], shape[1]) if active is None else np.count_nonzero(active, axis=1)
        return rows.astype(np.int64, copy=False)
    lengths = check_lengths(sequence_lengths, shape)
    if active is None:
        return lengths
    before = np.concatenate([[0], np.cumsum(active)])
    ends = np.cumsum(lengths)
    kept: Ints = before[ends] - before[ends - lengths]
    return kept
