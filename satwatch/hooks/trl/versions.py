"""Which weights generated a completion, as a rollout_func reports it."""

from __future__ import annotations

from typing import Any

import torch

from satwatch.client.versions import UNKNOWN, read_version
from satwatch.errors import InvalidBatchError, required

__all__ = ["UNKNOWN", "read_reported"]


def read_reported(reported: Any, shape: torch.Size) -> torch.Tensor:  # noqa: ANN401 - whatever a user returns
    """Read the versions of a generation: (B,), or (B, T) where a completion has one for each of its tokens.

    Args:
        reported: one version for all, or a list with one a completion: an int, a string or None, or a list with one for
            each of its tokens.
        shape: the padded completions', (B, T).

    Raises:
        InvalidBatchError: not versions, or not as many.

    >>> read_reported([3, "4", None], torch.Size((3, 5))).tolist()
    [3, 4, -1]
    >>> read_reported([3, [3, 3, 4]], torch.Size((2, 4))).tolist()
    [[3, 3, 3, 3], [3, 3, 4, -1]]
    """
    try:
        return _read(reported, shape)
    except InvalidBatchError:
        raise
    except Exception as error:  # a user's object raises what it likes, and is no version then
        came = f"{type(reported).__name__} ({type(error).__name__}: {error})"
        raise InvalidBatchError(required("weight_version", came, "versions")) from error


def _read(reported: Any, shape: torch.Size) -> torch.Tensor:  # noqa: ANN401 - whatever a user returns
    rows, width = shape
    each = _listed(reported)
    if not isinstance(each, list):
        each = [each] * rows
    if len(each) != rows:
        raise InvalidBatchError(required("weight_version", f"{len(each)} versions", f"{rows}, one a completion"))
    each = [_listed(one) for one in each]
    if any(isinstance(one, list) for one in each):
        return torch.tensor([_row(one, width) for one in each])
    return torch.tensor([_number(one) for one in each])


def _listed(value: Any) -> Any:  # noqa: ANN401 - whatever a user returns
    """Return tuples, arrays and tensors as lists, and scalars as they are."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _row(version: Any, width: int) -> list[int]:  # noqa: ANN401 - as above
    """Return the versions of a completion's tokens and of its padding, which nobody looks at."""
    if not isinstance(version, list):
        return [_number(version)] * width
    if len(version) > width:
        came = f"{len(version)} versions of a completion"
        raise InvalidBatchError(required("weight_version", came, f"at most {width}, one a token"))
    return [_number(one) for one in version] + [UNKNOWN] * (width - len(version))


def _number(version: object) -> int:
    number = read_version("weight_version", version)
    return UNKNOWN if number is None else number
