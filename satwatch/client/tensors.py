"""Tensors, arrays and lists as trainers hold them, read as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from satwatch.errors import InvalidBatchError, required

Array: TypeAlias = torch.Tensor | npt.NDArray[Any]
Floats: TypeAlias = Array | Sequence[float] | Sequence[Array] | Sequence[Sequence[float]]


def read_tensor(name: str, value: object) -> tuple[torch.Tensor, list[int] | None]:
    """Return a field as one tensor, detached, and the lengths of its rows if it came as a list of them.

    Raises:
        InvalidBatchError: not a dense tensor, an array that torch knows, a list of numbers or a list of rows.
    """
    if isinstance(value, torch.Tensor):
        return require_dense(name, value).detach(), None
    if isinstance(value, np.ndarray):
        return _from_numpy(name, value), None
    if not isinstance(value, list | tuple):
        raise InvalidBatchError(required(name, type(value).__name__, "a tensor, an array or a list"))
    if not any(isinstance(row, torch.Tensor | np.ndarray | list | tuple) for row in value):
        return _from_numbers(name, value), None
    rows = [_read_row(f"{name}[{i}]", row) for i, row in enumerate(value)]
    try:
        return torch.cat(rows), [len(row) for row in rows]
    except RuntimeError as error:
        raise InvalidBatchError(required(name, f"rows that do not join ({error})", "rows on one device")) from error


def require_dense(name: str, value: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose elements are one block of plain numbers.

    Raises:
        InvalidBatchError: it is sparse, nested or quantized.
    """
    if value.layout != torch.strided or value.is_nested or value.is_quantized:
        kind = "nested" if value.is_nested else "quantized" if value.is_quantized else f"{value.layout}"
        raise InvalidBatchError(required(name, f"a tensor that is {kind}", "a dense one"))
    return value


def read_lengths(name: str, value: object) -> npt.NDArray[Any]:
    """Return lengths as an array; whether they are whole numbers that fit the batch is seen where they are used.

    Raises:
        InvalidBatchError: no array can be made of them.
    """
    try:
        if isinstance(value, torch.Tensor):
            return require_dense(name, value).detach().cpu().numpy()
        return np.asarray(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        if isinstance(error, InvalidBatchError):
            raise
        came = f"{type(value).__name__} ({error})"
        raise InvalidBatchError(required(name, came, "whole numbers in one dimension")) from error


def _read_row(name: str, value: object) -> torch.Tensor:
    row, inner = read_tensor(name, value)
    if inner is not None or row.dim() != 1:
        came = "rows of its own" if inner is not None else f"shape {tuple(row.shape)}"
        raise InvalidBatchError(required(name, came, "one dimension, the tokens of a sequence"))
    return row


def _from_numpy(name: str, value: npt.NDArray[Any]) -> torch.Tensor:
    try:
        # torch takes no negative stride, and warns of memory that it could not write to.
        return torch.from_numpy(np.require(value, requirements=["C", "W"]))
    except (TypeError, ValueError) as error:
        raise InvalidBatchError(required(f"{name}.dtype", value.dtype, "one that torch has")) from error


def _from_numbers(name: str, value: Sequence[object]) -> torch.Tensor:
    try:
        # Here, whatever the trainer's default device is.
        return torch.tensor(value, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise InvalidBatchError(required(name, f"a list ({error})", "numbers, or one row a sequence")) from error
