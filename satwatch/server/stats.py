"""What is kept of a run's batches: totals of the latest step, and counters. Pure; one thread writes.

A step's batches, of all ranks and microbatches, are merged as counts and sums; a mean of means appears nowhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import torch

from satwatch.sat import (
    TAIL_EDGES,
    BatchSummary,
    Deltas,
    Scores,
    StepTotals,
    VersionLag,
    lag_0_tokens,
    lag_by_length,
    split_deltas,
    summarize,
    tail_counts,
    unpack,
    version_lag,
    worst_tokens,
)
from satwatch.sat.quantile import Floats
from satwatch.server.arrivals import Arrivals
from satwatch.types import BoundsRequest, PackedFloats, TokenBatch, VersionRun, WorstToken

# Versions: one by one where trainers set their limits, then coarser.
LAG_EDGES: Final = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
LAG_KINDS: Final = ("total", "generation", "queue")


@dataclass(frozen=True)
class Account:
    """An answered batch, to be accounted for.

    Attributes:
        request: the batch and where it belongs.
        batch: its tokens.
        scores: its scores under the rule applied.
        quantile_reference: q of the answer.
        window: the run's window when the batch came; see :class:`satwatch.server.runs.Run`.
        client_fallbacks: batches answered without the sidecar that this message was the first to tell of.
    """

    request: BoundsRequest
    batch: TokenBatch
    scores: Scores
    quantile_reference: float
    window: int
    client_fallbacks: int = 0

    @cached_property
    def summary(self) -> BatchSummary:
        """The batch's diagnostics, computed on first use."""
        return summarize(self.scores, self.quantile_reference, _token_advantage(self.batch))

    @cached_property
    def lag(self) -> VersionLag:
        """The batch's version lag; a version that was not sent is unknown, and shows as coverage."""
        versions = self.batch.behavior_versions or (VersionRun(self.batch.tokens, None),)
        by_sequence = self.batch.versions_by_sequence
        return version_lag(self.request.policy_version, versions, self.batch.sequence_lengths, by_sequence=by_sequence)

    @cached_property
    def totals(self) -> StepTotals:
        """All that is kept of the batch and merges."""
        request, batch = self.request, self.batch
        return StepTotals(
            summary=self.summary,
            lag=self.lag,
            routing=request.routing,
            deltas=self._deltas(),
            lengths=lag_by_length(
                request.policy_version,
                batch.behavior_versions,
                batch.sequence_lengths,
                by_sequence=batch.versions_by_sequence,
            ),
            batches=1,
            client_fallbacks=self.client_fallbacks,
        )

    def _deltas(self) -> Deltas:
        batch = self.batch
        behavior, reference = batch.behavior_logprob, batch.reference_logprob
        fresh = lag_0_tokens(self.request.policy_version, batch.behavior_versions)
        if behavior is None or reference is None:  # one alone tells nothing, and is not worth unpacking
            return split_deltas(self.scores.tokens, lag_0=fresh)
        return split_deltas(self.scores.tokens, _floats(behavior), _floats(reference), fresh)

    @cached_property
    def tail(self) -> tuple[int, ...]:
        """The batch's tokens by abs(d), by ``TAIL_EDGES``."""
        return tail_counts(self.scores.tokens)

    @cached_property
    def worst(self) -> tuple[WorstToken, ...]:
        """The batch's worst tokens, worst first."""
        return worst_tokens(self.batch)


def _floats(packed: PackedFloats) -> Floats:
    """Unpack to float64, or to float32 from anything narrower."""
    values = unpack(packed)
    numbers: Floats = values.to(torch.promote_types(values.dtype, torch.float32)).numpy()
    return numbers


def _token_advantage(batch: TokenBatch) -> torch.Tensor | None:
    """Return one advantage a token: the message says which of the two it has, and a shape alone would not."""
    if batch.sequence_advantage is not None:
        lengths = torch.tensor(batch.sequence_lengths, dtype=torch.int64)
        return unpack(batch.sequence_advantage).repeat_interleave(lengths)
    return None if batch.advantage is None else unpack(batch.advantage)


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram of tokens since the run opened.

    Attributes:
        counts: tokens up to each edge and above the one before, then those above all edges.
        total: the sum of what was counted, infinite values left out.
    """

    counts: tuple[int, ...]
    total: float = 0.0

    def add(self, counts: tuple[int, ...], total: float) -> Buckets:
        """Return both together."""
        return Buckets(tuple(map(sum, zip(self.counts, counts, strict=True))), self.total + total)


NO_TAIL: Final = Buckets((0,) * (len(TAIL_EDGES) + 1))
NO_LAGS: Final = Buckets((0,) * (len(LAG_EDGES) + 1))


def _lag_counts(tokens_by_lag: Mapping[int, int]) -> tuple[int, ...]:
    counts = [0] * (len(LAG_EDGES) + 1)
    for lag, tokens in tokens_by_lag.items():
        counts[bisect_left(LAG_EDGES, lag)] += tokens
    return tuple(counts)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run's accounts at one moment.

    Attributes:
        counters: nan_tokens, inf_tokens, extreme_tokens and negative_lag_tokens since the start.
        step: the latest step's number; None when its batches had none.
        totals: the latest step's, with the measures reported last; None before the first batch and report.
        diagnostics: what the totals say, by name; what has no value is absent.
        tail: tokens by abs(d), nats, by ``TAIL_EDGES``.
        lags: tokens by version lag, by ``LAG_EDGES``, a histogram for each of ``LAG_KINDS``.
        arrivals: when the batches of its present life came.
    """

    counters: Mapping[str, int]
    step: int | None
    totals: StepTotals | None
    diagnostics: Mapping[str, float]
    tail: Buckets
    lags: Mapping[str, Buckets]
    arrivals: Arrivals


@dataclass(slots=True)
class RunStats:
    """The accounts of one run.

    Attributes:
        window: the run's window that the latest step belongs to.
        step: the latest step's number, or None.
        totals: what its batches add up to so far; None before the first one.
        steps_closed: steps that have closed since the run opened.
        arrivals: when the batches of its present life came.
        nan_tokens: active tokens with a NaN d since then.
        inf_tokens: with an infinite one.
        extreme_tokens: with abs(d) > 20.
        negative_lag_tokens: younger than the policy that consumed them.
        tail: tokens by abs(d) since then.
        lags: tokens by version lag since then, by kind.
    """

    window: int = 0
    step: int | None = None
    totals: StepTotals | None = None
    steps_closed: int = 0
    arrivals: Arrivals = field(default_factory=Arrivals)
    nan_tokens: int = 0
    inf_tokens: int = 0
    extreme_tokens: int = 0
    negative_lag_tokens: int = 0
    tail: Buckets = NO_TAIL
    lags: dict[str, Buckets] = field(default_factory=lambda: dict.fromkeys(LAG_KINDS, NO_LAGS))
    _reported: tuple[int, StepTotals] | None = field(default=None, repr=False)
    _snapshot: Snapshot | None = field(default=None, repr=False)

    def add(self, account: Account) -> None:
        """Account for one batch.

        The gauges are the latest step's: a batch of an earlier one only counts. A batch without a step stands alone.
        """
        self._count(account)
        self._snapshot = None
        if account.window < self.window:
            return
        number = account.request.step
        if account.window > self.window:
            self.window, self._reported = account.window, None
            self.step, self.totals = number, account.totals
        elif self.totals is None or number is None or self.step is None or number > self.step:
            self.step, self.totals = number, account.totals
        elif number == self.step:
            self.totals = self.totals.merge(account.totals)

    def report(self, totals: StepTotals, step: int, window: int | None = None) -> None:
        """Take what one rank reported of a step beside its batches.

        The measures shown are those of the latest step reported, which may be another than the latest with a batch: a
        reward is often known only when the next step has begun.

        Args:
            totals: measures, and no batch.
            step: the optimizer step.
            window: the run's window when the report came; None: the present one.
        """
        if window is not None and window != self.window:
            if window < self.window:
                return
            self.window, self.step, self.totals, self._reported = window, None, None, None
        known = self._reported
        if known is None or step >= known[0]:
            self._reported = (step, known[1].merge(totals) if known is not None and known[0] == step else totals)
            self._snapshot = None

    def came(self, arrivals: Arrivals) -> None:
        """Take note of when the batches came."""
        if arrivals is not self.arrivals:
            self.arrivals, self._snapshot = arrivals, None

    def _count(self, account: Account) -> None:
        moments, lag = account.summary.sketch.moments, account.lag
        self.nan_tokens += moments.nan_tokens
        self.inf_tokens += moments.inf_tokens
        self.extreme_tokens += moments.extreme_tokens
        self.negative_lag_tokens += lag.negative_tokens
        self.tail = self.tail.add(account.tail, moments.absolute)
        for kind, tokens in zip(LAG_KINDS, (lag.lags, lag.generation_lags, lag.queue_lags), strict=True):
            self.lags[kind] = self.lags[kind].add(_lag_counts(tokens), sum(n * count for n, count in tokens.items()))

    def snapshot(self) -> Snapshot:
        """Return the accounts as they are."""
        if self._snapshot is None:
            counters = ("nan_tokens", "inf_tokens", "extreme_tokens", "negative_lag_tokens")
            totals = self._shown()
            self._snapshot = Snapshot(
                counters={name: getattr(self, name) for name in counters},
                step=self.step,
                totals=totals,
                diagnostics={} if totals is None else totals.values(),
                tail=self.tail,
                lags=dict(self.lags),
                arrivals=self.arrivals,
            )
        return self._snapshot

    def _shown(self) -> StepTotals | None:
        """Return the latest step with the measures reported last."""
        if self._reported is None:
            return self.totals
        reported = self._reported[1]
        return reported if self.totals is None else self.totals.merge(reported)
