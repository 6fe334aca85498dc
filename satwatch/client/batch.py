"""A microbatch as a trainer hands it over: read, checked, and made ready for the wire."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
import torch

from satwatch.client.origins import BehaviorEngines, Engines, read_behavior_engines
from satwatch.client.tensors import Floats, read_lengths, read_tensor
from satwatch.client.versions import BehaviorVersions, Version, Versions, read_behavior_versions, read_version
from satwatch.errors import InvalidBatchError, required
from satwatch.sat.layout import Ints, Layout, Lengths, check_lengths, check_mask, lay_out, require_floats
from satwatch.sat.packed import pack
from satwatch.sat.scores import Scores
from satwatch.types import MAX_STEP, UINT32_MAX, Level, PackedFloats, Routing, TokenBatch


class BatchContext(TypedDict, total=False):
    """What may be known of a batch; :meth:`satwatch.client.Client.clip_bounds` says what each is."""

    mask: Floats | None
    advantage: Floats | None
    sequence_lengths: Lengths | None
    reference_logprob: Floats | None
    policy_version: Version
    behavior_version: Versions
    behavior_engine: Engines
    step: int | None
    microbatch: int | None
    routing: Routing | None


class BatchFields(BatchContext, total=False):
    """What may stand beside ``log_ratio``."""

    behavior_logprob: Floats | None


@dataclass(frozen=True, slots=True)
class Microbatch:
    """A microbatch whose shapes fit each other; its numbers have not been looked at.

    Attributes:
        log_ratio: d, nats, (B, T) or (N,), detached.
        mask: booleans in the same shape, or None: all tokens are active.
        sequence_lengths: for (N,): the tokens of each sequence, padding included, or None.
        advantage: one a token, in log_ratio's shape, or one a sequence, or None.
        behavior_logprob: log mu, in log_ratio's shape, or None.
        reference_logprob: log pi(l), in log_ratio's shape, or None.
        behavior_versions: the versions that generated the tokens, or None.
        behavior_engines: the engines that generated them, or None.
        policy_version: the version that consumes them, or None.
        step: the optimizer step, or None.
        microbatch: its number within rank and step, or None.
        routing: agreement counts, or None.
    """

    log_ratio: torch.Tensor
    mask: torch.Tensor | None = None
    sequence_lengths: Ints | None = None
    advantage: torch.Tensor | None = None
    behavior_logprob: torch.Tensor | None = None
    reference_logprob: torch.Tensor | None = None
    behavior_versions: BehaviorVersions | None = None
    behavior_engines: BehaviorEngines | None = None
    policy_version: int | None = None
    step: int | None = None
    microbatch: int | None = None
    routing: Routing | None = None

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors it holds."""
        versions = None if self.behavior_versions is None else self.behavior_versions.values
        held = (self.log_ratio, self.mask, self.advantage, self.behavior_logprob, self.reference_logprob, versions)
        return [tensor for tensor in held if tensor is not None]

    def snapshot(self) -> Microbatch:
        """Copy the tensors, so that the trainer may overwrite its own."""

        def copy(tensor: torch.Tensor | None) -> torch.Tensor | None:
            return None if tensor is None else tensor.clone()

        return replace(
            self,
            log_ratio=self.log_ratio.clone(),
            mask=copy(self.mask),
            advantage=copy(self.advantage),
            behavior_logprob=copy(self.behavior_logprob),
            reference_logprob=copy(self.reference_logprob),
            behavior_versions=None if self.behavior_versions is None else self.behavior_versions.snapshot(),
        )

    def pack(self, scores: Scores) -> TokenBatch:
        """Take the active tokens, in each tensor's own dtype.

        Args:
            scores: of this batch, where its log-ratios have been taken already.

        Synchronises with the tensors' devices.
        """
        layout = scores.layout
        advantage = self.advantage
        by_sequence = advantage if advantage is not None and layout.is_per_sequence(advantage) else None

        def active(name: str, values: torch.Tensor | None) -> PackedFloats | None:
            return None if values is None else pack(layout.take(name, values), name)

        return TokenBatch(
            log_ratio=pack(scores.given, "log_ratio"),
            sequence_lengths=() if layout.lengths is None else tuple(layout.lengths.tolist()),
            advantage=active("advantage", advantage if by_sequence is None else None),
            sequence_advantage=None if by_sequence is None else pack(by_sequence, "advantage"),
            behavior_logprob=active("behavior_logprob", self.behavior_logprob),
            reference_logprob=active("reference_logprob", self.reference_logprob),
            behavior_versions=() if self.behavior_versions is None else self.behavior_versions.runs(layout),
            behavior_engines=() if self.behavior_engines is None else self.behavior_engines.runs(layout),
            versions_by_sequence=self.behavior_versions is not None and self.behavior_versions.by_sequence,
        )


def read_microbatch(
    log_ratio: Floats,
    level: Level,
    *,
    mask: Floats | None = None,
    advantage: Floats | None = None,
    sequence_lengths: Lengths | None = None,
    behavior_logprob: Floats | None = None,
    reference_logprob: Floats | None = None,
    policy_version: Version = None,
    behavior_version: Versions = None,
    behavior_engine: Engines = None,
    step: int | None = None,
    microbatch: int | None = None,
    routing: Routing | None = None,
) -> Microbatch:
    """Read what a trainer hands over; :meth:`satwatch.client.Client.clip_bounds` says what each field may be.

    Raises:
        InvalidBatchError: a field that does not fit; its name comes first.

    Reads no number of a tensor, so it waits for no device.
    """
    ratios, rows = read_tensor("log_ratio", log_ratio)
    frame = lay_out(ratios, None, _lengths(rows, sequence_lengths))
    if level == "sequence" and frame.lengths is None:
        requirement = 'the tokens of each sequence: level is "sequence"'
        raise InvalidBatchError(required("sequence_lengths", "None", requirement))
    return Microbatch(
        log_ratio=ratios,
        mask=None if mask is None else _mask(mask, frame, rows, ratios.device),
        sequence_lengths=frame.lengths if ratios.dim() == 1 else None,
        advantage=_floats("advantage", advantage, frame, rows, per_sequence=True),
        behavior_logprob=_floats("behavior_logprob", behavior_logprob, frame, rows),
        reference_logprob=_floats("reference_logprob", reference_logprob, frame, rows),
        behavior_versions=read_behavior_versions("behavior_version", behavior_version, frame),
        behavior_engines=read_behavior_engines("behavior_engine", behavior_engine, frame),
        policy_version=read_version("policy_version", policy_version),
        step=_whole("step", step, 0, MAX_STEP),
        microbatch=_whole("microbatch", microbatch, 0, UINT32_MAX),
        routing=_routing(routing),
    )


def require_step(value: object) -> int:
    """Read a step that has to be known.

    Raises:
        InvalidBatchError: not a whole number from 0 to 2^53.
    """
    step = _whole("step", value, 0, MAX_STEP)
    if step is None:
        raise InvalidBatchError(required("step", "None", f"a whole number from 0 to {MAX_STEP}"))
    return step


def _lengths(rows: list[int] | None, given: Lengths | None) -> Lengths | None:
    if given is None:
        return rows
    lengths = read_lengths("sequence_lengths", given)
    if rows is not None and check_lengths(lengths, torch.Size((sum(rows),))).tolist() != rows:
        raise InvalidBatchError(required("sequence_lengths", "others", f"{rows}, the rows of log_ratio, or None"))
    return lengths


def _aligned(name: str, value: Floats, frame: Layout, frame_rows: list[int] | None) -> torch.Tensor:
    """Read a field; if it came in rows, they are those of the batch."""
    tensor, rows = read_tensor(name, value)
    lengths = None if frame.lengths is None else frame.lengths.tolist()
    if rows is not None and rows != lengths:
        raise InvalidBatchError(required(name, f"rows of {rows}", f"{lengths or tuple(frame.shape)}, as log_ratio"))
    if rows is not None and frame_rows is None:
        return tensor.reshape(frame.shape)
    return tensor


def _mask(value: Floats, frame: Layout, rows: list[int] | None, device: torch.device) -> torch.Tensor:
    # Where the log-ratios are: a fallback on the device computes with both.
    mask = _aligned("mask", value, frame, rows)
    try:
        return check_mask(mask, frame.shape).to(device, non_blocking=True)
    except RuntimeError as error:
        came = f"{mask.dtype} on {mask.device} ({error})"
        raise InvalidBatchError(required("mask", came, "a tensor that can be compared with 0 and be moved")) from error


def _floats(
    name: str, value: Floats | None, frame: Layout, rows: list[int] | None, *, per_sequence: bool = False
) -> torch.Tensor | None:
    if value is None:
        return None
    tensor = _aligned(name, value, frame, rows)
    require_floats(name, tensor)
    if tensor.shape == frame.shape or (per_sequence and frame.is_per_sequence(tensor)):
        return tensor
    requirement = f"{tuple(frame.shape)}, log_ratio's"
    if per_sequence:
        requirement += ", or one a sequence" + (" (with sequence_lengths)" if frame.lengths is None else "")
    raise InvalidBatchError(required(name, f"shape {tuple(tensor.shape)}", requirement))


def _whole(name: str, value: object, low: int, high: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidBatchError(required(name, repr(value), f"a whole number from {low} to {high}, or None"))
    return int(value)


def _routing(value: object) -> Routing | None:
    if value is None or isinstance(value, Routing):
        return value
    raise InvalidBatchError(required("routing", type(value).__name__, "a satwatch.types.Routing or None"))
