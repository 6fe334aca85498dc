"""Behavior versions as trainers hold them, and as the wire wants them: run lengths over the active tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from satwatch.client.tensors import require_dense
from satwatch.errors import InvalidBatchError, required
from satwatch.sat.layout import Ints, Layout
from satwatch.types import VersionRun

Version: TypeAlias = int | str | None
Versions: TypeAlias = Version | torch.Tensor | npt.NDArray[Any] | Sequence[Version] | Sequence[Sequence[Version]]

# No trainer counts versions from below 0, and arrays, which hold no None, say -1 where there is none.
UNKNOWN: Final = -1

_DECIMAL: Final = re.compile(r"[+-]?[0-9]+")
_INT64: Final = np.iinfo(np.int64)


def read_version(name: str, value: object) -> int | None:
    """Read one version: an int, or a decimal string; None, another string and a negative number are unknown.

    Raises:
        InvalidBatchError: not a version, or not within int64.

    >>> [read_version("policy_version", v) for v in (7, "7", "step-7", None, -1)]
    [7, 7, None, None, None]
    """
    if isinstance(value, str):
        value = int(value) if len(value) < 32 and _DECIMAL.fullmatch(value) else UNKNOWN
    elif isinstance(value, torch.Tensor | np.ndarray) and value.ndim == 0:
        value = _item(name, value)
    if value is None:
        return None
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise InvalidBatchError(required(name, f"{value!r} ({type(value).__name__})", "an int, a string or None"))
    if value > _INT64.max:
        raise InvalidBatchError(required(name, value, f"at most {_INT64.max}"))
    return int(value) if value >= 0 else None


def require_version(value: object) -> int:
    """Read a version that has to be known.

    Raises:
        InvalidBatchError: not a version, or an unknown one.
    """
    number = read_version("version", value)
    if number is None:
        raise InvalidBatchError(required("version", repr(value), "a whole number, 0 or more"))
    return number


def _item(name: str, value: torch.Tensor | npt.NDArray[Any]) -> object:
    try:
        return value.item()
    except RuntimeError as error:
        raise InvalidBatchError(required(name, f"a tensor without a value ({error})", "an int")) from error


@dataclass(frozen=True, slots=True)
class BehaviorVersions:
    """The versions that generated a batch's tokens; negative is unknown.

    Attributes:
        values: integers: 0-d for the batch, (S,) a sequence, or the batch's shape flattened.
        unit: what one value stands for.
    """

    values: torch.Tensor
    unit: Literal["batch", "sequence", "token"]

    @property
    def by_sequence(self) -> bool:
        """Whether a sequence has one version at most: which ones passed while it was generated is then unknown."""
        return self.unit != "token"

    def snapshot(self) -> BehaviorVersions:
        """Copy what a trainer may overwrite."""
        return BehaviorVersions(self.values.clone(), self.unit)

    def runs(self, layout: Layout) -> tuple[VersionRun, ...]:
        """Encode them over the active tokens; empty if all are unknown.

        Args:
            layout: which tokens are active, with the lengths of the sequences if ``unit`` is ``sequence``.
        """
        values = np.maximum(self.values.cpu().to(torch.int64).numpy(), UNKNOWN)
        if self.unit == "batch":
            return _run_lengths(values.reshape(1), np.array([layout.tokens]))
        if self.unit == "sequence":
            lengths = np.empty(0, np.int64) if layout.lengths is None else layout.lengths
            return _run_lengths(values, lengths)
        active = values if layout.positions is None else values[layout.positions]
        return _run_lengths(active, np.ones(len(active), np.int64))


def _run_lengths(values: Ints, tokens: Ints) -> tuple[VersionRun, ...]:
    """Join equal neighbours; ``tokens`` is how many tokens each value stands for."""
    values, tokens = values[tokens > 0], tokens[tokens > 0]
    if not (values >= 0).any():
        return ()
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    lengths = np.add.reduceat(tokens, starts)
    pairs = zip(lengths.tolist(), values[starts].tolist(), strict=True)
    return tuple(VersionRun(length, None if version < 0 else version) for length, version in pairs)


def read_behavior_versions(name: str, value: Versions, frame: Layout) -> BehaviorVersions | None:
    """Read behavior versions in any of their forms; None is unknown for all.

    Args:
        name: the field, for the message.
        value: one version for the batch; or one a sequence, (S,) or (S, 1); or one a token, in the batch's shape or as
            one list a sequence. Where both fit, it is one a token.
        frame: the batch's shape and its sequences, padding included.

    Raises:
        InvalidBatchError: not versions, or of another shape.
    """
    if value is None:
        return None
    if isinstance(value, torch.Tensor | np.ndarray) and value.ndim > 0:
        return _read_array(name, value, frame)
    if isinstance(value, list | tuple):
        return _read_list(name, value, frame)
    return BehaviorVersions(_to_tensor(name, [value]).reshape(()), "batch")


def _to_tensor(name: str, values: Sequence[object]) -> torch.Tensor:
    read = (read_version(name, value) for value in values)
    return torch.tensor([UNKNOWN if version is None else version for version in read], dtype=torch.int64, device="cpu")


def _read_array(name: str, value: torch.Tensor | npt.NDArray[Any], frame: Layout) -> BehaviorVersions:
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "iu":
            return _read_list(name, value.tolist(), frame)
        value = torch.from_numpy(value.astype(np.int64))
    require_dense(name, value)
    if value.dtype == torch.bool or value.dtype.is_floating_point or value.dtype.is_complex:
        raise InvalidBatchError(required(f"{name}.dtype", value.dtype, "an integer dtype"))
    if value.shape == frame.shape:
        return BehaviorVersions(value.detach().reshape(-1), "token")
    if frame.is_per_sequence(value):
        return BehaviorVersions(value.detach().reshape(-1), "sequence")
    raise _misfit(name, f"shape {tuple(value.shape)}", frame)


def _read_list(name: str, value: Sequence[Any], frame: Layout) -> BehaviorVersions:
    if value and all(_is_row(row) for row in value):
        rows = [row.tolist() if isinstance(row, torch.Tensor | np.ndarray) else list(row) for row in value]
        came = [len(row) for row in rows]
        if frame.lengths is None or came != frame.lengths.tolist():
            raise _misfit(name, f"{len(rows)} lists of {sum(came)} versions", frame)
        return BehaviorVersions(_to_tensor(name, [version for row in rows for version in row]), "token")
    values = _to_tensor(name, value)
    if values.shape == frame.shape:
        return BehaviorVersions(values, "token")
    if frame.is_per_sequence(values):
        return BehaviorVersions(values, "sequence")
    raise _misfit(name, f"{len(value)} versions", frame)


def _is_row(value: object) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, torch.Tensor | np.ndarray) and value.ndim == 1)


def _misfit(name: str, came: str, frame: Layout) -> InvalidBatchError:
    requirement = f"one version, or one a token in log_ratio's shape {tuple(frame.shape)}"
    if frame.lengths is not None:
        requirement += f", or one for each of {len(frame.lengths)} sequences"
    return InvalidBatchError(required(name, came, requirement))
