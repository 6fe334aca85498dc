"""A worker thread's order on a CUDA device: after what the caller has queued, before what the caller does with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from satwatch.sat import ClipBounds


@dataclass(frozen=True, slots=True)
class CallerStream:
    """Where the caller stood when it handed its tensors over.

    Attributes:
        stream: the caller's current stream.
        ready: an event recorded on it, after the snapshot.
    """

    stream: Any
    ready: Any

    @classmethod
    def of(cls, tensor: torch.Tensor) -> CallerStream | None:
        """Record the caller's position; None on a CPU, where there is nothing to order."""
        if tensor.device.type != "cuda":
            return None
        stream = torch.cuda.current_stream(tensor.device)
        return cls(stream, stream.record_event())

    def run_aside(self, tensors: Iterable[torch.Tensor], work: Callable[[], ClipBounds]) -> ClipBounds:
        """Work on a stream that waits for the snapshot only, so that it overlaps what the caller queues next.

        Args:
            tensors: what the work reads; their memory is kept until it is done.
            work: computes bounds, in the calling thread.

        The wait for the device is the worker's; the caller's thread and stream wait for nothing.
        """
        side = torch.cuda.Stream(self.stream.device)
        side.wait_event(self.ready)
        for tensor in tensors:
            if tensor.device.type == "cuda":
                tensor.record_stream(side)
        with torch.cuda.stream(side):
            bounds = work()
        side.synchronize()
        for tensor in (bounds.low, bounds.high, bounds.gate, bounds.quantile_reference):
            tensor.record_stream(self.stream)
        return bounds
