"""A recorded batch: its fields, checked, as tensors."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

import torch

from satwatch.analyze.sources import Fields
from satwatch.analyze.values import dtype_name, flags, floats, scalar, whole_numbers
from satwatch.errors import InvalidBatchError, required
from satwatch.sat.packed import DTYPES
from satwatch.types import Rule

RULE_NAMES: Final = ("level", "quantile", "eps_low", "eps_high", "exponent", "min_reference", "enabled")
ARRAY_NAMES: Final = (
    "log_ratio",
    "policy_logprob",
    "behavior_logprob",
    "shape",
    "mask",
    "advantage",
    "sequence_lengths",
)
VERSION_NAMES: Final = ("policy_version", "behavior_version")
# Where a batch comes from; carried through to the output.
LABEL_NAMES: Final = ("name", "run", "rank", "step", "microbatch")
FIELD_NAMES: Final = (*ARRAY_NAMES, "dtype", *RULE_NAMES, *VERSION_NAMES, *LABEL_NAMES)


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """One batch as a file tells it.

    Attributes:
        log_ratio: d = log pi_train - log mu_rollout, nats, (B, T) or (N,), any float dtype.
        mask: the active tokens, in the same shape, or None: all.
        advantage: one value a token or a sequence, or None.
        sequence_lengths: for (N,): the tokens of each sequence, or None.
        rule_fields: the rule's fields that the file sets.
        policy_version: the version that consumes the tokens, as recorded; None: unknown.
        behavior_version: what generated them: one version, one a sequence or one a token, as recorded; None: unknown.
        labels: where the batch comes from: run, rank, step and the like, as recorded.
    """

    log_ratio: torch.Tensor
    mask: torch.Tensor | None
    advantage: torch.Tensor | None
    sequence_lengths: tuple[int, ...] | None
    rule_fields: Mapping[str, Any]
    policy_version: object
    behavior_version: object
    labels: Mapping[str, object]

    def rule(self, overrides: Mapping[str, Any]) -> Rule:
        """Return the rule that judges this batch: the overrides, then what the file sets, then the defaults.

        Raises:
            ConfigError: a value outside its range.
        """
        return Rule(**{**self.rule_fields, **overrides})


def recorded_batch(fields: Fields, *, ignore_unknown: bool = False) -> RecordedBatch:
    """Check the fields of a recorded batch.

    Args:
        fields: by name, values as a reader gives them; null is the same as absent.
        ignore_unknown: leave out unknown fields instead of refusing them.

    Raises:
        InvalidBatchError: an unknown or missing field, or values that can't be meant.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if not ignore_unknown:
        _refuse_unknown(given.keys())
    log_ratio = _shaped(_log_ratio(given), given.get("shape"))
    mask, advantage, lengths = (given.get(name) for name in ("mask", "advantage", "sequence_lengths"))
    return RecordedBatch(
        log_ratio=log_ratio,
        mask=_beside(log_ratio, flags("mask", mask)) if mask is not None else None,
        advantage=_beside(log_ratio, floats("advantage", advantage, integers=True)) if advantage is not None else None,
        sequence_lengths=None if lengths is None else whole_numbers("sequence_lengths", lengths),
        rule_fields={name: scalar(given[name]) for name in RULE_NAMES if name in given},
        policy_version=scalar(given.get("policy_version")),
        behavior_version=given.get("behavior_version"),
        labels={name: scalar(given[name]) for name in LABEL_NAMES if name in given},
    )


def _refuse_unknown(names: Set[str]) -> None:
    for name in sorted(names - {*FIELD_NAMES}):
        near = difflib.get_close_matches(name, FIELD_NAMES, n=1)
        meant = f"did you mean {near[0]}?" if near else f"known are {', '.join(FIELD_NAMES)}"
        unknown = f"{name}: no such field; {meant}"
        raise InvalidBatchError(unknown)


def _log_ratio(given: Fields) -> torch.Tensor:
    values = floats("log_ratio", given["log_ratio"]) if "log_ratio" in given else _difference(given)
    if "log_ratio" in given and "policy_logprob" in given:
        raise InvalidBatchError(required("log_ratio", "policy_logprob beside it", "one of the two"))
    return values.to(DTYPES[dtype_name(given["dtype"])]) if "dtype" in given else values


def _difference(given: Fields) -> torch.Tensor:
    """Return policy_logprob - behavior_logprob, in float64 if either is, else in float32."""
    if not {"policy_logprob", "behavior_logprob"} <= given.keys():
        missing = "log_ratio: missing; a batch has log_ratio, or policy_logprob and behavior_logprob"
        raise InvalidBatchError(missing)
    policy, behavior = (floats(name, given[name]) for name in ("policy_logprob", "behavior_logprob"))
    if policy.shape != behavior.shape:
        came = f"shape {tuple(behavior.shape)}"
        raise InvalidBatchError(required("behavior_logprob", came, f"{tuple(policy.shape)}, policy_logprob's"))
    dtype = torch.float64 if torch.float64 in (policy.dtype, behavior.dtype) else torch.float32
    return policy.to(dtype) - behavior.to(dtype)


def _shaped(values: torch.Tensor, shape: object) -> torch.Tensor:
    if shape is None:
        return values
    dims = whole_numbers("shape", list(shape) if isinstance(shape, tuple) else shape)
    if values.dim() > 1 and tuple(values.shape) != dims:
        raise InvalidBatchError(required("shape", list(dims), f"{list(values.shape)}, log_ratio's"))
    if math.prod(dims) != values.numel() or any(dim < 0 for dim in dims):
        raise InvalidBatchError(
            required("shape", list(dims), f"a product of {values.numel()}, the values of log_ratio")
        )
    return values.reshape(dims)


def _beside(log_ratio: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Give flat values log_ratio's shape; another shape, such as one value a sequence, stays for SAT to judge."""
    same_size = values.dim() == 1 and values.numel() == log_ratio.numel()
    return values.reshape(log_ratio.shape) if same_size else values
