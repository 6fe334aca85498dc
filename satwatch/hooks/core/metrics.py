"""What a hook tells the trainer's own logger: ``satwatch/...``, of the microbatches since it was last read.

Sums and counts are kept where the tensors live and read once, so a microbatch costs no synchronisation of its own.
"""

from __future__ import annotations

import math
from typing import Final

import torch

from satwatch.client import Microbatch
from satwatch.client.versions import BehaviorVersions
from satwatch.sat import ClipBounds, routing_diagnostics
from satwatch.sat.routing import merge_known
from satwatch.types import Routing

PREFIX: Final = "satwatch/"

# For trainers to which every microbatch and rank has to return the same names, whatever has a value: shares, means and
# states, and the counts of tokens. No largest value is among them, since such trainers average.
TOKEN_COUNTS: Final = ("tokens", "nan_tokens", "inf_tokens")
ALWAYS_RETURNED: Final = (
    "log_ratio_mean",
    "log_ratio_abs_mean",
    "quantile_reference",
    "gate_rate",
    "clip_radius_low_mean",
    "clip_radius_high_mean",
    "hook_faults",
    "client_fallbacks",
    "breaker_open",
    "decoupled",
)


class MicrobatchMetrics:
    """Counts and sums over microbatches; they merge as the batches' tokens would. Of a constant size."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.clear()

    def clear(self) -> None:
        """Start over."""
        self._tokens: torch.Tensor | None = None
        self._intervals: torch.Tensor | None = None
        self._lag: torch.Tensor | None = None
        # The largest of the microbatches' own, NaN where none has one.
        self._oldest: torch.Tensor | None = None
        self._reference: torch.Tensor | None = None
        self._routing: Routing | None = None

    def add_batch(self, batch: Microbatch) -> None:
        """Count a microbatch's tokens, log-ratios and version lag."""
        self._tokens = _plus(self._tokens, _token_sums(batch))
        if batch.behavior_versions is not None:
            sums, oldest = _lag_sums(batch, batch.behavior_versions)
            self._lag, self._oldest = _plus(self._lag, sums), _larger(self._oldest, oldest)
        self._routing = merge_known(self._routing, batch.routing)

    def add_bounds(self, batch: Microbatch, bounds: ClipBounds) -> None:
        """Count a microbatch's interval, when it has arrived."""
        self._intervals = _plus(self._intervals, _interval_sums(batch, bounds))
        self._reference = _larger(self._reference, bounds.quantile_reference.to(torch.float64).reshape(1))

    def read(self) -> dict[str, float]:
        """Return the metrics by name; what has no value is absent. Waits for the tensors' device, once."""
        kept = (self._tokens, self._intervals, self._lag, self._oldest, self._reference)
        there = [values for values in kept if values is not None]
        if not there:
            return {}
        numbers = iter(torch.cat([values.to(there[0].device) for values in there]).tolist())
        tokens, intervals, lag, oldest, reference = (
            [] if values is None else [next(numbers) for _ in values] for values in kept
        )
        out: dict[str, float] = {}
        if tokens:
            out |= _read_tokens(*tokens)
        if intervals:
            out |= _read_intervals(*intervals)
        if tokens and lag:
            out |= _read_lag(tokens[0], *lag)
        for name, largest in (("version_lag_max", oldest), ("quantile_reference", reference)):
            if largest and not math.isnan(largest[0]):
                out[name] = largest[0]
        if self._routing is not None:
            out |= routing_diagnostics(self._routing)
        return {PREFIX + name: value for name, value in out.items()}


def _active(batch: Microbatch) -> torch.Tensor:
    return torch.ones_like(batch.log_ratio, dtype=torch.bool) if batch.mask is None else batch.mask


def _token_sums(batch: Microbatch) -> torch.Tensor:
    d, active = batch.log_ratio, _active(batch)
    finite = d.isfinite() & active
    kept = torch.where(finite, d, 0.0)
    exact = torch.float64
    sums = [active.sum(), finite.sum(), (d.isnan() & active).sum(), kept.sum(dtype=exact), kept.abs().sum(dtype=exact)]
    return torch.stack([value.to(exact) for value in sums])


def _interval_sums(batch: Microbatch, bounds: ClipBounds) -> torch.Tensor:
    active = _active(batch)
    low, high = (torch.where(active, bound, 0.0).sum(dtype=torch.float64) for bound in (bounds.low, bounds.high))
    return torch.stack([active.sum().to(low.dtype), (bounds.gate & active).sum().to(low.dtype), low, high])


def _lag_sums(batch: Microbatch, given: BehaviorVersions) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens of known and of negative lag with the sum of the known ones, and the largest."""
    device, active = batch.log_ratio.device, _active(batch)
    versions = given.values.to(device, torch.float64, non_blocking=True).reshape(-1)
    # A version stands for a token, or for several with one lag: then these are counted first.
    tokens = active.reshape(-1)
    if given.unit == "batch":
        tokens = active.sum().reshape(1)
    elif given.unit == "sequence" and batch.sequence_lengths is None:
        tokens = active.sum(1)
    elif given.unit == "sequence":
        lengths = torch.from_numpy(batch.sequence_lengths).to(device, non_blocking=True)
        versions = versions.repeat_interleave(lengths, output_size=len(tokens))
    policy = math.nan if batch.policy_version is None else float(batch.policy_version)
    lag = torch.where(versions < 0, math.nan, policy - versions)
    known = torch.where(lag >= 0, tokens, 0).to(torch.float64)
    negative = torch.where(lag < 0, tokens, 0).sum().to(torch.float64)
    ages = torch.where(known > 0, lag, -1.0)
    sums = torch.stack([known.sum(), negative, (ages * known).sum()])
    # A row before the others: of no tokens at all there is no largest.
    oldest = torch.cat([ages.new_full((1,), -1.0), ages]).amax().reshape(1)
    return sums, torch.where(oldest < 0, math.nan, oldest)


def _plus(kept: torch.Tensor | None, sums: torch.Tensor) -> torch.Tensor:
    return sums if kept is None else kept + sums.to(kept.device)


def _larger(kept: torch.Tensor | None, largest: torch.Tensor) -> torch.Tensor:
    # fmax leaves out NaN: what a microbatch does not have takes nothing from what another has.
    return largest if kept is None else torch.fmax(kept, largest.to(kept.device))


def _read_tokens(tokens: float, finite: float, nan: float, d: float, magnitude: float) -> dict[str, float]:
    out = {"tokens": tokens, "nan_tokens": nan, "inf_tokens": tokens - finite - nan}
    if finite:
        out.update(log_ratio_mean=d / finite, log_ratio_abs_mean=magnitude / finite)
    return out


def _read_intervals(tokens: float, gated: float, low: float, high: float) -> dict[str, float]:
    if not tokens:
        return {}
    means = {"clip_radius_low_mean": 1 - low / tokens, "clip_radius_high_mean": high / tokens - 1}
    return {"gate_rate": gated / tokens, **means}


def _read_lag(tokens: float, known: float, negative: float, total: float) -> dict[str, float]:
    out: dict[str, float] = {}
    if tokens:
        out["version_coverage"] = (known + negative) / tokens
    if known:
        out["version_lag_mean"] = total / known
    if negative:
        out["negative_lag_tokens"] = negative
    return out
