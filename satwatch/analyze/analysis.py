"""What SAT says of a recorded batch or of an exported step, and of many taken together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from satwatch.analyze.batch import RecordedBatch
from satwatch.analyze.histogram import Histogram
from satwatch.client.versions import read_behavior_versions, read_version
from satwatch.sat import BatchSummary, ClipBounds, Scores, StepTotals, VersionLag, score_batch, summarize, version_lag
from satwatch.sat.layout import lay_out
from satwatch.types import Rule, VersionRun


@dataclass(frozen=True, slots=True)
class Analysis:
    """One batch under a rule, or one step of a history.

    Attributes:
        rule: the rule applied; None: an exported step without it.
        bounds: the interval of every token, in the batch's shape; None: an exported step, of which no token is left.
        totals: counts and sums behind the diagnostics; totals merge.
        diagnostics: by name; what has no value is absent. Of a step: all that the history shows of it.
        histogram: of abs(d) over the active tokens.
        labels: where it comes from, as recorded.
    """

    rule: Rule | None
    bounds: ClipBounds | None
    totals: StepTotals
    diagnostics: Mapping[str, float]
    histogram: Histogram
    labels: Mapping[str, object]

    @property
    def summary(self) -> BatchSummary:
        """Counts and sums of d, and what the rule did."""
        return self.totals.summary

    @property
    def quantile_reference(self) -> float:
        """q, nats; NaN when no token had a score."""
        return self.summary.quantile_reference

    @property
    def version_lag(self) -> VersionLag | None:
        """Tokens by version lag, or None: no behavior version is recorded."""
        return self.totals.lag if self.totals.lag.tokens else None


def analyze_batch(batch: RecordedBatch, overrides: Mapping[str, Any] | None = None) -> Analysis:
    """Compute bounds and diagnostics of a recorded batch, with the code that the sidecar and the trainer run.

    Args:
        batch: the batch.
        overrides: fields of the rule that beat what the batch says.

    Raises:
        ConfigError: a rule that can't be meant.
        InvalidBatchError: shapes or lengths that contradict each other.
    """
    rule = batch.rule(overrides or {})
    scores = score_batch(batch.log_ratio, rule, batch.mask, batch.sequence_lengths)
    q = scores.reference()
    summary = summarize(scores, q, batch.advantage)
    return Analysis(
        rule=rule,
        bounds=scores.bounds(q),
        totals=StepTotals(summary, _version_lag(batch, scores), batches=1),
        diagnostics=summary.diagnostics(),
        histogram=Histogram.of(scores.tokens),
        labels=batch.labels,
    )


def _version_lag(batch: RecordedBatch, scores: Scores) -> VersionLag:
    if batch.behavior_version is None:
        return VersionLag()
    frame = lay_out(batch.log_ratio, None, batch.sequence_lengths)
    # Read as the client reads a trainer's; what isn't a version is refused there.
    versions = read_behavior_versions("behavior_version", batch.behavior_version, frame)  # type: ignore[arg-type]
    runs = () if versions is None else versions.runs(scores.layout)
    lengths = () if scores.layout.lengths is None else scores.layout.lengths.tolist()
    policy_version = read_version("policy_version", batch.policy_version)
    by_sequence = versions is not None and versions.by_sequence
    unknown = [VersionRun(scores.layout.tokens, None)]
    return version_lag(policy_version, runs or unknown, lengths, by_sequence=by_sequence)


def lag_diagnostics(lag: VersionLag | None) -> dict[str, float]:
    """Return a version lag by the names of its metrics; what is unknown is absent."""
    if lag is None or not lag.tokens:
        return {}
    known = {"version_lag_mean": lag.mean, "version_lag_max": lag.oldest, "version_coverage_ratio": lag.coverage}
    return {
        **{name: value for name, value in known.items() if value is not None},
        "negative_lag_tokens": lag.negative_tokens,
    }
