"""Where bounds are computed: the device, and the CPU when the device refuses."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from satwatch.errors import ConfigError, required
from satwatch.sat.packed import unpack
from satwatch.sat.scores import Scores, score_batch
from satwatch.types import Rule, TokenBatch

logger = logging.getLogger(__name__)

# How long a device that refused is left alone: a trainer's peak of memory lasts for a part of a step.
RETRY_SECONDS: Final = 30.0

_CPU: Final = torch.device("cpu")


def choose_device(wanted: str, visible: Callable[[], int] = torch.cuda.device_count) -> torch.device:
    """Return the device that a setting means.

    Args:
        wanted: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``; auto takes the first CUDA device, if one is visible.
        visible: counts the CUDA devices.

    Raises:
        ConfigError: a CUDA device that is not visible.
    """
    if wanted == "cpu" or (wanted == "auto" and visible() == 0):
        return _CPU
    index = int(wanted.partition(":")[2] or 0)
    if index >= visible():
        came = f"{wanted!r} with {visible()} CUDA devices visible"
        raise ConfigError(required("device", came, "a visible device; auto and cpu work anywhere"))
    return torch.device("cuda", index)


def score(batch: TokenBatch, rule: Rule) -> Scores:
    """Score a batch as it came over the wire.

    Raises:
        InvalidBatchError: no sequence_lengths at sequence level.
    """
    known = batch.sequence_lengths or not batch.tokens
    return score_batch(unpack(batch.log_ratio), rule, sequence_lengths=batch.sequence_lengths if known else None)


@dataclass(frozen=True, slots=True)
class Selection:
    """A batch's q, and what it took.

    Attributes:
        quantile_reference: q in float64; NaN when no token had a score.
        device: the kind of device that found it, ``cpu`` or ``cuda``.
        refused: True when a device was to find it and refused.
    """

    quantile_reference: float
    device: str
    refused: bool


class Selector:
    """Selects q on a device, and on the CPU when the device refuses; for one thread at a time."""

    def __init__(
        self,
        device: torch.device,
        memory_bytes: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        select: Callable[[Scores, torch.device], float] | None = None,
    ) -> None:
        """Touch nothing yet: a device may refuse from the first batch on.

        Args:
            device: where to select.
            memory_bytes: the most device memory to take.
            clock: seconds from anywhere, upwards.
            select: selects q on the device; None: as SAT does, on CUDA.
        """
        self.device = device
        self._memory_bytes = memory_bytes
        self._clock = clock
        self._select = select
        self._refused_until: float | None = None

    def select(self, scores: Scores) -> Selection:
        """Return q of a batch, wherever it could be found."""
        if self.device.type == "cpu":
            return Selection(scores.reference(), "cpu", refused=False)
        if self._refused_until is not None and self._clock() < self._refused_until:
            return Selection(scores.reference(), "cpu", refused=True)
        try:
            if self._select is None:
                self._select = _select_on_cuda(self.device, self._memory_bytes)
            q = self._select(scores, self.device)
        except RuntimeError as error:  # of this class are all of torch's errors of memory and devices
            self._note_refusal(error)
            return Selection(scores.reference(), "cpu", refused=True)
        self._note_success()
        return Selection(q, self.device.type, refused=False)

    def _note_refusal(self, error: RuntimeError) -> None:
        if self._refused_until is None:
            reason = str(error).partition("\n")[0].rstrip(".")
            logger.warning("%s refuses: %s. Bounds come from the CPU, the same to the bit.", self.device, reason)
        self._refused_until = self._clock() + RETRY_SECONDS

    def _note_success(self) -> None:
        if self._refused_until is not None:
            logger.info("%s takes work again.", self.device)
            self._refused_until = None


def _select_on_cuda(device: torch.device, memory_bytes: int) -> Callable[[Scores, torch.device], float]:
    """Return a selection that keeps to a share of the device's memory and to the least urgent stream."""
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, memory_bytes / total), device)
    stream = torch.cuda.Stream(device, priority=0)  # 0 is the lowest there is; urgent ones are negative

    def select(scores: Scores, where: torch.device) -> float:
        with torch.cuda.stream(stream):
            return scores.reference(where)

    return select
