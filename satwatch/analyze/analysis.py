"""What SAT says of a recorded batch, and of many taken together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from satwatch.analyze.batch import RecordedBatch
from satwatch.analyze.histogram import Histogram
from satwatch.client.versions import read_behavior_versions, read_version
from satwatch.sat import BatchSummary, ClipBounds, Scores, VersionLag, score_batch, summarize, version_lag
from satwatch.sat.layout import lay_out
from satwatch.types import Rule, VersionRun


@dataclass(frozen=True, slots=True)
class Analysis:
    """One batch under a rule.

    Attributes:
        rule: the rule applied.
        quantile_reference: q, nats; NaN when no token had a score.
        bounds: the interval of every token, in the batch's shape.
        summary: counts and sums behind the diagnostics; summaries merge.
        histogram: of abs(d) over the active tokens.
        version_lag: tokens by version lag, or None: the batch records no behavior version.
        labels: where the batch comes from, as recorded.
    """

    rule: Rule
    quantile_reference: float
    bounds: ClipBounds
    summary: BatchSummary
    histogram: Histogram
    version_lag: VersionLag | None
    labels: Mapping[str, object]

    @property
    def diagnostics(self) -> Mapping[str, float]:
        """The diagnostics by name; what has no value is absent."""
        return self.summary.diagnostics()


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
    return Analysis(
        rule=rule,
        quantile_reference=q,
        bounds=scores.bounds(q),
        summary=summarize(scores, q, batch.advantage),
        histogram=Histogram.of(scores.tokens),
        version_lag=_version_lag(batch, scores),
        labels=batch.labels,
    )


def _version_lag(batch: RecordedBatch, scores: Scores) -> VersionLag | None:
    if batch.behavior_version is None:
        return None
    frame = lay_out(batch.log_ratio, None, batch.sequence_lengths)
    # Read as the client reads a trainer's; what isn't a version is refused there.
    versions = read_behavior_versions("behavior_version", batch.behavior_version, frame)  # type: ignore[arg-type]
    runs = () if versions is None else versions.runs(scores.layout)
    lengths = () if scores.layout.lengths is None else scores.layout.lengths.tolist()
    policy_version = read_version("policy_version", batch.policy_version)
    return version_lag(policy_version, runs or [VersionRun(scores.layout.tokens, None)], lengths)


def lag_diagnostics(lag: VersionLag | None) -> dict[str, float]:
    """Return a version lag by the names of its metrics; what is unknown is absent."""
    if lag is None or not lag.tokens:
        return {}
    known = {"version_lag_mean": lag.mean, "version_lag_max": lag.oldest, "version_coverage_ratio": lag.coverage}
    return {
        **{name: value for name, value in known.items() if value is not None},
        "negative_lag_tokens": lag.negative_tokens,
    }
