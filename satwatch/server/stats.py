"""What is kept of a run's batches: sums of the latest step, and counters. Pure; one thread writes.

A step's batches, of all ranks and microbatches, are merged as counts and sums; a mean of means appears nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch

from satwatch.sat import (
    BatchSummary,
    Scores,
    VersionLag,
    layer_flip_rates,
    routing_diagnostics,
    summarize,
    unpack,
    version_lag,
)
from satwatch.sat.routing import merge_known
from satwatch.types import BoundsRequest, Routing, TokenBatch, VersionRun


@dataclass(frozen=True)
class Account:
    """An answered batch, to be accounted for.

    Attributes:
        request: the batch and where it belongs.
        batch: its tokens.
        scores: its scores under the rule applied.
        quantile_reference: q of the answer.
        window: the run's window when the batch came; see :class:`satwatch.server.runs.Run`.
    """

    request: BoundsRequest
    batch: TokenBatch
    scores: Scores
    quantile_reference: float
    window: int

    @cached_property
    def summary(self) -> BatchSummary:
        """The batch's diagnostics, computed on first use."""
        return summarize(self.scores, self.quantile_reference, _token_advantage(self.batch))

    @cached_property
    def lag(self) -> VersionLag:
        """The batch's version lag; a version that was not sent is unknown, and shows as coverage."""
        versions = self.batch.behavior_versions or (VersionRun(self.batch.tokens, None),)
        return version_lag(self.request.policy_version, versions, self.batch.sequence_lengths)


def _token_advantage(batch: TokenBatch) -> torch.Tensor | None:
    """Return one advantage a token: the message says which of the two it has, and a shape alone would not."""
    if batch.sequence_advantage is not None:
        lengths = torch.tensor(batch.sequence_lengths, dtype=torch.int64)
        return unpack(batch.sequence_advantage).repeat_interleave(lengths)
    return None if batch.advantage is None else unpack(batch.advantage)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run's accounts at one moment.

    Attributes:
        counters: nan_tokens, inf_tokens, extreme_tokens and negative_lag_tokens since the start.
        diagnostics: the latest step's, by name; what has no value is absent.
        layer_flip_rates: the latest step's router flip rate by layer.
    """

    counters: Mapping[str, int]
    diagnostics: Mapping[str, float]
    layer_flip_rates: Mapping[int, float]


@dataclass(slots=True)
class Step:
    """The batches of one step so far, merged."""

    number: int | None
    summary: BatchSummary
    lag: VersionLag
    routing: Routing | None

    @classmethod
    def of(cls, account: Account) -> Step:
        """Start a step with its first batch."""
        return cls(account.request.step, account.summary, account.lag, account.request.routing)

    def add(self, account: Account) -> None:
        """Merge one more batch."""
        self.summary = self.summary.merge(account.summary)
        self.lag = self.lag.merge(account.lag)
        self.routing = merge_known(self.routing, account.request.routing)

    def diagnostics(self) -> dict[str, float]:
        """Return what the step's sums say, by name."""
        lag = self.lag
        known = {
            "version_lag_mean": lag.mean,
            "version_lag_max": lag.oldest,
            "version_lag_generation_mean": _mean(lag.generation_lags),
            "version_lag_queue_mean": _mean(lag.queue_lags),
            "version_coverage_ratio": lag.coverage,
            "behavior_versions": len(lag.versions) or None,
        }
        return {
            **self.summary.diagnostics(),
            **{name: value for name, value in known.items() if value is not None},
            **({} if self.routing is None else routing_diagnostics(self.routing)),
        }


def _mean(tokens_by_lag: Mapping[int, int]) -> float | None:
    tokens = sum(tokens_by_lag.values())
    return sum(lag * count for lag, count in tokens_by_lag.items()) / tokens if tokens else None


@dataclass(slots=True)
class RunStats:
    """The accounts of one run."""

    window: int = 0
    step: Step | None = None
    nan_tokens: int = 0
    inf_tokens: int = 0
    extreme_tokens: int = 0
    negative_lag_tokens: int = 0
    _snapshot: Snapshot | None = field(default=None, repr=False)

    def add(self, account: Account) -> None:
        """Account for one batch.

        The gauges are the latest step's: a batch of an earlier one only counts. A batch without a step stands alone.
        """
        moments = account.summary.sketch.moments
        self.nan_tokens += moments.nan_tokens
        self.inf_tokens += moments.inf_tokens
        self.extreme_tokens += moments.extreme_tokens
        self.negative_lag_tokens += account.lag.negative_tokens
        self._snapshot = None
        if account.window < self.window:
            return
        number, current = account.request.step, self.step
        if current is None or account.window > self.window or number is None or current.number is None:
            self.window, self.step = account.window, Step.of(account)
        elif number > current.number:
            self.step = Step.of(account)
        elif number == current.number:
            current.add(account)

    def snapshot(self) -> Snapshot:
        """Return the accounts as they are."""
        if self._snapshot is None:
            step = self.step
            counters = ("nan_tokens", "inf_tokens", "extreme_tokens", "negative_lag_tokens")
            self._snapshot = Snapshot(
                counters={name: getattr(self, name) for name in counters},
                diagnostics={} if step is None else step.diagnostics(),
                layer_flip_rates={} if step is None or step.routing is None else layer_flip_rates(step.routing),
            )
        return self._snapshot
