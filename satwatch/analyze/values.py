"""One recorded value, from whatever its file format holds, to a tensor or a Python scalar.

A format gives JSON lists, numpy arrays or torch tensors. Nothing is guessed: a null, a string that's no number or an
integer array where log-ratios belong is refused, with the field's name and the place of the value.
"""

from __future__ import annotations

import json
import math
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import torch

from satwatch.errors import InvalidBatchError, required
from satwatch.sat.packed import DTYPES
from satwatch.types import DTypeName

# JSON has no non-finite numbers; recorded batches spell them so.
NON_FINITE: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
FLOAT_NAMES: Final = ", ".join(DTYPES)


def floats(name: str, raw: object, *, integers: bool = False) -> torch.Tensor:
    """Return an array of floats in its stored dtype; JSON numbers are float64.

    Args:
        name: the field, for messages.
        raw: a list, a numpy array or a tensor.
        integers: take integer arrays too, as float64: right for rewards of -1 and 1, wrong for token ids.

    Raises:
        InvalidBatchError: not an array, ragged rows, an element that's no number, or another dtype.
    """
    if isinstance(raw, list):
        return _floats_of_list(name, raw)
    values = _tensor(name, raw)
    if integers and not values.dtype.is_floating_point and values.dtype != torch.bool:
        return values.double()
    if values.dtype not in DTYPES.values():
        raise InvalidBatchError(required(name, f"an array of {_dtype(values)}", f"one of {FLOAT_NAMES}"))
    return values


def flags(name: str, raw: object) -> torch.Tensor:
    """Return an array of zeros and ones as booleans.

    Raises:
        InvalidBatchError: not an array, ragged rows, or an element that's neither 0 nor 1.
    """
    values = (_floats_of_list(name, raw, allow=(bool,)) if isinstance(raw, list) else _tensor(name, raw)).double()
    odd = (values != 0) & (values != 1)
    if odd.any():
        index = int(odd.reshape(-1).nonzero()[0])
        raise InvalidBatchError(required(f"{name}[{index}]", values.reshape(-1)[index].item(), "0 or 1"))
    return values != 0


def whole_numbers(name: str, raw: object) -> tuple[int, ...]:
    """Return a flat array of integers.

    Raises:
        InvalidBatchError: not a flat array of integers.
    """
    values = raw.tolist() if isinstance(raw, np.ndarray | torch.Tensor) else raw
    if not isinstance(values, list):
        raise InvalidBatchError(required(name, described(raw), "an array of whole numbers"))
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidBatchError(required(f"{name}[{index}]", described(value), "a whole number"))
    return tuple(values)


def scalar(raw: object) -> object:
    """Unwrap an array that holds one element; everything else stays as it is."""
    if isinstance(raw, np.ndarray | np.generic | torch.Tensor):
        elements = raw.numel() if isinstance(raw, torch.Tensor) else raw.size
        return raw.item() if elements == 1 else raw
    return raw


def dtype_name(raw: object) -> DTypeName:
    """Return the name of a float dtype.

    Raises:
        InvalidBatchError: an unknown dtype.
    """
    value = scalar(raw)
    if value not in DTYPES:
        raise InvalidBatchError(required("dtype", described(value), f"one of {FLOAT_NAMES}"))
    return value


def described(value: object) -> str:
    """Say what a value is in a few words, whatever its size.

    >>> described([1, 2, 3]), described({}), described(None), described(True), described("0.5x")
    ('a list', 'an object', 'null', 'true', '"0.5x"')
    """
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, np.ndarray | torch.Tensor):
        return f"an array of shape {list(value.shape)}"
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _floats_of_list(name: str, raw: list[object], allow: tuple[type, ...] = ()) -> torch.Tensor:
    flat, shape = _flatten(name, raw)
    if not {*map(type, flat)} <= {float, int, *allow}:
        flat = [_number(f"{name}[{index}]", value, allow) for index, value in enumerate(flat)]
    try:
        values = np.array(flat, dtype=np.float64)
    except OverflowError as error:
        raise InvalidBatchError(required(name, "an integer beyond float64", "numbers of at most 1.8e308")) from error
    return torch.from_numpy(values).reshape(shape)


def _flatten(name: str, rows: list[object]) -> tuple[list[object], tuple[int, ...]]:
    """Return the elements of nested lists in row-major order, and their shape."""
    shape: tuple[int, ...] = (len(rows),)
    while rows and all(isinstance(row, list) for row in rows):
        inner = cast(list[list[object]], rows)
        lengths = [len(row) for row in inner]
        if len({*lengths}) > 1:
            came = f"rows of {min(lengths)} to {max(lengths)} values"
            raise InvalidBatchError(required(name, came, "rows of one length, or flat values with sequence_lengths"))
        shape = (*shape, lengths[0])
        rows = [value for row in inner for value in row]
    return rows, shape


def _number(where: str, value: object, allow: tuple[type, ...]) -> float:
    if isinstance(value, str) and value in NON_FINITE:
        return NON_FINITE[value]
    if isinstance(value, int | float) and (not isinstance(value, bool) or bool in allow):
        return value
    raise InvalidBatchError(required(where, described(value), 'a number, "nan", "inf" or "-inf"'))


def _tensor(name: str, raw: object) -> torch.Tensor:
    if isinstance(raw, torch.Tensor):
        return raw.detach()
    if not isinstance(raw, np.ndarray):
        raise InvalidBatchError(required(name, described(raw), "an array of numbers"))
    if raw.dtype.kind not in "fiub" or raw.dtype.itemsize > 8:
        raise InvalidBatchError(required(name, f"an array of {raw.dtype}", f"one of {FLOAT_NAMES}"))
    return torch.from_numpy(_native(raw))


def _native(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    # A copy: torch refuses foreign byte orders and negative strides, and warns of read-only memory.
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")


def _dtype(values: torch.Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")
