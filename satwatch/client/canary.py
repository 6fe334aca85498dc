"""The canary's scores as trainers hold them, read as the wire wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from satwatch.client.tensors import Array, Floats, read_tensor, require_dense
from satwatch.client.versions import require_version
from satwatch.errors import InvalidBatchError, required
from satwatch.sat.layout import require_floats
from satwatch.sat.packed import pack
from satwatch.types import MAX_CANARY_TOKENS, Canary, CanaryScores

Tokens: TypeAlias = Canary | Array | Sequence[Sequence[int]] | Sequence[Array]


def read_canary_scores(
    version: object, tokens: Tokens, logprobs: Floats, temperature: float = 1.0, top_p: float = 1.0
) -> CanaryScores:
    """Read what a trainer hands over; :meth:`satwatch.client.Client.report_canary` says what each field may be.

    Raises:
        InvalidBatchError: a field that does not fit; its name comes first.

    Synchronises with the tensors' devices.
    """
    number, canary = require_version(version), _read_canary(tokens)
    lengths = [len(sequence) for sequence in canary.sequences]
    scored = [_without_first(i, row, lengths[i]) for i, row in enumerate(_read_rows(logprobs, lengths))]
    return CanaryScores(canary, number, pack(torch.cat(scored), "logprobs"), temperature, top_p)


def _read_canary(value: Tokens) -> Canary:
    if isinstance(value, Canary):
        return value
    if isinstance(value, torch.Tensor | np.ndarray):
        rows = list(_whole_numbers("tokens", value, 2))
    elif isinstance(value, list | tuple):
        rows = [_read_row(f"tokens[{i}]", row) for i, row in enumerate(value)]
    else:
        raise InvalidBatchError(required("tokens", type(value).__name__, "a list with one row a sequence, or (S, T)"))
    try:
        return Canary.of(rows)
    except InvalidBatchError as error:
        raise InvalidBatchError(f"tokens{str(error).removeprefix('canary')}") from error


def _read_row(name: str, value: object) -> Sequence[int]:
    if isinstance(value, torch.Tensor | np.ndarray):
        return _whole_numbers(name, value, 1)
    if not isinstance(value, list | tuple):
        raise InvalidBatchError(required(name, type(value).__name__, "a list of token ids"))
    for token in value:
        if not isinstance(token, int | np.integer) or isinstance(token, bool):
            raise InvalidBatchError(required(name, repr(token)[:80], "token ids, whole numbers"))
    return value


def _whole_numbers(name: str, value: Array, dimensions: int) -> list[Any]:
    if value.ndim != dimensions:
        came, wanted = f"shape {tuple(value.shape)}", "(S, T)" if dimensions == 2 else "(T,), a sequence's token ids"
        raise InvalidBatchError(required(name, came, wanted))
    if not _is_whole(value):
        raise InvalidBatchError(required(f"{name}.dtype", value.dtype, "an integer dtype"))
    size = value.numel() if isinstance(value, torch.Tensor) else value.size
    if size > MAX_CANARY_TOKENS:  # before they become Python's
        raise InvalidBatchError(required(name, f"{size} tokens", f"at most {MAX_CANARY_TOKENS}"))
    numbers: list[Any] = value.tolist()
    return numbers


def _is_whole(value: torch.Tensor | npt.NDArray[Any]) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iu"
    kind = require_dense("tokens", value).dtype
    return not (kind.is_floating_point or kind.is_complex or kind == torch.bool)


def _read_rows(logprobs: Floats, lengths: list[int]) -> list[torch.Tensor]:
    """Return a row a sequence, on the CPU, in one dtype."""
    values, rows = read_tensor("logprobs", logprobs)
    require_floats("logprobs", values)
    if rows is None and values.ndim != 2:
        raise InvalidBatchError(required("logprobs", f"shape {tuple(values.shape)}", "a row a sequence, or (S, T)"))
    read = list(values.cpu().split(rows)) if rows is not None else list(values.cpu())
    if len(read) != len(lengths):
        raise InvalidBatchError(required("logprobs", f"{len(read)} rows", f"{len(lengths)}, one a sequence of tokens"))
    return read


def _without_first(i: int, row: torch.Tensor, tokens: int) -> torch.Tensor:
    if len(row) == tokens:
        return row[1:]
    if len(row) != tokens - 1:
        wanted = f"{tokens - 1}, one a token but the first, or {tokens}"
        raise InvalidBatchError(required(f"logprobs[{i}]", f"{len(row)} values", wanted))
    return row
