"""What a step adds up to: all that is kept of its batches, merged by addition over ranks, microbatches and steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from satwatch.sat.deltas import Deltas
from satwatch.sat.lag import VersionLag
from satwatch.sat.lengths import merge_lengths
from satwatch.sat.routing import layer_flip_rates, merge_known, routing_diagnostics
from satwatch.sat.sketch import MAGNITUDE, Sketch
from satwatch.sat.summary import BatchSummary, GateSums
from satwatch.types import HEAT_BUCKETS, HEAT_EDGES, LengthLag, Routing, Total

# A bucket is a half octave: the exponent and the first mantissa bit of a sketch's code.
_HEAT_SHIFT: Final = 6
_HEAT_FIRST: Final = (127 - 25) << 1  # of HEAT_EDGES[0], 2**-25


@dataclass(frozen=True, slots=True)
class StepTotals:
    """The batches of one step so far, or of several steps, merged.

    Attributes:
        summary: counts and sums of d, and what the rule did.
        lag: tokens by version lag.
        routing: agreement counts, or None.
        deltas: where the mismatch comes from.
        lengths: version lag by response length, by ``LengthLag.longest``.
        measures: what the trainer reported, by name.
        batches: batches merged; a report alone is none.
        client_fallbacks: batches that clients said, in this step's messages, they had answered without the sidecar.
    """

    summary: BatchSummary
    lag: VersionLag = field(default_factory=VersionLag)
    routing: Routing | None = None
    deltas: Deltas = field(default_factory=Deltas)
    lengths: Mapping[int, LengthLag] = field(default_factory=dict)
    measures: Mapping[str, Total] = field(default_factory=dict)
    batches: int = 0
    client_fallbacks: int = 0

    @classmethod
    def empty(cls) -> StepTotals:
        """Return the totals of no batch, the unit of :meth:`merge`."""
        return cls(BatchSummary(Sketch.empty(), GateSums(), float("nan"), has_advantage=False, abs_quantiles=None))

    def merge(self, newer: StepTotals) -> StepTotals:
        """Return the totals of both together."""
        if not self.batches or not newer.batches:
            # Nothing but reports on one side: the quantiles of a single batch stay exact.
            with_batches = newer if newer.batches else self
            summary, routing = with_batches.summary, with_batches.routing
        else:
            summary, routing = self.summary.merge(newer.summary), merge_known(self.routing, newer.routing)
        return StepTotals(
            summary=summary,
            lag=self.lag.merge(newer.lag),
            routing=routing,
            deltas=self.deltas.merge(newer.deltas),
            lengths=merge_lengths(self.lengths, newer.lengths),
            measures=_merged_measures(self.measures, newer.measures),
            batches=self.batches + newer.batches,
            client_fallbacks=self.client_fallbacks + newer.client_fallbacks,
        )

    def values(self) -> dict[str, float]:
        """Return what the sums say, by the names of docs/diagnostics.md; what has no value is absent."""
        known = {
            **_lag_values(self.lag),
            **_delta_values(self.deltas, self.summary.sketch.moments.tokens),
            "response_length_mean": _mean_length(self.lengths),
            "client_fallbacks": self.client_fallbacks,
            **{f"{name}_mean": total.mean for name, total in self.measures.items() if total.count},
        }
        return {
            **(self.summary.diagnostics() if self.batches else {}),
            **{name: value for name, value in known.items() if value is not None},
            **({} if self.routing is None else routing_diagnostics(self.routing)),
        }

    def layer_flip_rates(self) -> dict[int, float]:
        """Return the router flip rate by layer."""
        return {} if self.routing is None else layer_flip_rates(self.routing)

    def heat(self) -> tuple[int, ...]:
        """Return the tokens by ``HEAT_EDGES`` of abs(d), infinite ones included, NaN not."""
        sketch = self.summary.sketch
        buckets = ((sketch.codes & MAGNITUDE).astype(np.int64) >> _HEAT_SHIFT) - _HEAT_FIRST + 1
        counts = np.zeros(HEAT_BUCKETS, np.int64)
        np.add.at(counts, np.clip(buckets, 0, len(HEAT_EDGES)), sketch.counts)
        return tuple(counts.tolist())


def _lag_values(lag: VersionLag) -> dict[str, float | None]:
    return {
        "version_lag_mean": lag.mean,
        "version_lag_max": lag.oldest,
        "version_lag_generation_mean": _mean(lag.generation_lags),
        "version_lag_queue_mean": _mean(lag.queue_lags),
        "version_coverage_ratio": lag.coverage,
        "behavior_versions": len(lag.versions) or None,
        "negative_lag_tokens": lag.negative_tokens if lag.tokens else None,
    }


def _mean(tokens_by_lag: Mapping[int, int]) -> float | None:
    tokens = sum(tokens_by_lag.values())
    return sum(lag * count for lag, count in tokens_by_lag.items()) / tokens if tokens else None


def _delta_values(deltas: Deltas, tokens: int) -> dict[str, float | None]:
    return {
        "delta_policy_mean": deltas.policy.mean,
        "delta_policy_abs_mean": deltas.policy.absolute_mean,
        "delta_impl_mean": deltas.impl.mean,
        "delta_impl_abs_mean": deltas.impl.absolute_mean,
        "log_ratio_abs_mean_lag0": deltas.lag_0.absolute_mean,
        "reference_coverage_ratio": deltas.impl.tokens / tokens if tokens else None,
    }


def _mean_length(lengths: Mapping[int, LengthLag]) -> float | None:
    responses = sum(bucket.responses for bucket in lengths.values())
    return sum(bucket.length for bucket in lengths.values()) / responses if responses else None


def _merged_measures(a: Mapping[str, Total], b: Mapping[str, Total]) -> dict[str, Total]:
    return {name: a.get(name, Total()).merge(b.get(name, Total())) for name in {**a, **b}}
