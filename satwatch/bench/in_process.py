"""What SAT costs inside the trainer, without a sidecar."""

from __future__ import annotations

from collections.abc import Callable

import torch

from satwatch.bench.timing import Timing, take_turns
from satwatch.bench.workload import MICROBATCH, log_ratios
from satwatch.sat import clip_bounds, diagnostics

RESPONSE_TOKENS = 256


def measure_in_process(*, quick: bool) -> dict[str, Timing]:
    """Measure bounds and diagnostics of one 32k microbatch, by name of the computation."""
    flat = log_ratios(MICROBATCH)
    rows = flat.reshape(-1, RESPONSE_TOKENS)
    half = flat.to(torch.bfloat16)
    calls: dict[str, Callable[[], object]] = {
        "clip_bounds": lambda: clip_bounds(flat),
        "clip_bounds, sequence level": lambda: clip_bounds(rows, level="sequence"),
        "clip_bounds, bfloat16": lambda: clip_bounds(half),
        "diagnostics": lambda: diagnostics(flat),
        "diagnostics with advantages": lambda: diagnostics(flat, advantage=flat),
    }
    return take_turns(calls, repeats=10 if quick else 300)
