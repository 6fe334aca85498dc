"""What a trainer reports of a step, read as sums: means of ranks can't be merged."""

from __future__ import annotations

from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from satwatch.client.tensors import Floats, require_dense
from satwatch.errors import InvalidBatchError, required
from satwatch.types import Total

Numbers: TypeAlias = float | Floats

_ROWS = (torch.Tensor, np.ndarray, list, tuple)


def read_measures(
    reward: Numbers | None = None, loss: Numbers | None = None, response_lengths: Numbers | None = None
) -> dict[str, Total]:
    """Read what a trainer hands over; :meth:`satwatch.client.Client.report` says what each field may be.

    Returns:
        Sums by the measures' names; what is None, or holds no number, is absent.

    Raises:
        InvalidBatchError: a field that holds no numbers; its name comes first.

    Synchronises with the tensors' devices.
    """
    given = {"reward": reward, "loss": loss}
    totals = {name: _total(_read(name, value)) for name, value in given.items() if value is not None}
    if response_lengths is not None:
        totals["response_length"] = _total(_read_lengths("response_lengths", response_lengths))
    return {name: total for name, total in totals.items() if total.count or total.nan_count}


def _total(numbers: npt.NDArray[np.float64]) -> Total:
    known = numbers[~np.isnan(numbers)]
    with np.errstate(invalid="ignore"):  # infinite ones of both signs sum to NaN, and that is what they sum to
        return Total(float(known.sum()), len(known), len(numbers) - len(known))


def _read_lengths(name: str, value: object) -> npt.NDArray[np.float64]:
    lengths = _read(name, value)
    if (lengths < 0).any():
        raise InvalidBatchError(required(name, f"{lengths[lengths < 0][0]:g}", "numbers of tokens, 0 or more"))
    return lengths


def _read(name: str, value: object) -> npt.NDArray[np.float64]:
    """Return all numbers of a field, (n,)."""
    if isinstance(value, torch.Tensor):
        return _from_tensor(name, value)
    if isinstance(value, np.ndarray):
        return _from_array(name, value)
    if not isinstance(value, list | tuple):
        return np.array([_number(name, value)])
    if not any(isinstance(entry, _ROWS) for entry in value):
        return np.array([_number(f"{name}[{i}]", entry) for i, entry in enumerate(value)], dtype=np.float64)
    return np.concatenate([_read(f"{name}[{i}]", entry) for i, entry in enumerate(value)])


def _from_tensor(name: str, value: torch.Tensor) -> npt.NDArray[np.float64]:
    dense = require_dense(name, value).detach()
    if dense.is_complex():
        raise InvalidBatchError(required(f"{name}.dtype", dense.dtype, "one of real numbers"))
    try:
        # On the CPU first: not every device has float64.
        numbers: npt.NDArray[np.float64] = dense.cpu().to(torch.float64).reshape(-1).numpy()
    except RuntimeError as error:
        raise InvalidBatchError(required(name, f"a tensor without values ({error})", "numbers")) from error
    return numbers


def _from_array(name: str, value: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if value.dtype.kind == "O":
        return _read(name, value.tolist())
    if value.dtype.kind not in "fiub":
        raise InvalidBatchError(required(f"{name}.dtype", value.dtype, "one of real numbers"))
    return value.astype(np.float64).reshape(-1)


def _number(name: str, value: object) -> float:
    try:
        if isinstance(value, Real | np.bool_):
            return float(value)
    except OverflowError:
        pass
    raise InvalidBatchError(required(name, f"{value!r:.80} ({type(value).__name__})", "a number that a double holds"))
