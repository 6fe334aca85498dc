"""The metrics of the runs, made of their accounts. What is unknown has no sample, and is never 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Final

from satwatch.sat import TAIL_EDGES, StepTotals
from satwatch.sat.summary import QUANTILES
from satwatch.server.arrivals import Arrivals
from satwatch.server.families import Samples, cumulative
from satwatch.server.labels import OTHER, divide
from satwatch.server.run_families import RUN_FAMILIES
from satwatch.server.runs import Run
from satwatch.server.stats import LAG_EDGES, LAG_KINDS, Buckets, Snapshot
from satwatch.server.step_families import STEP_FAMILIES

# The diagnostics whose name says in a label what the metric's name leaves out.
_LABELLED: Final = {
    "clip_radius_low_mean": ("satwatch_clip_radius_mean", "low"),
    "clip_radius_high_mean": ("satwatch_clip_radius_mean", "high"),
    **{f"log_ratio_abs_q{alpha}": ("satwatch_log_ratio_abs", str(alpha)) for alpha in QUANTILES},
    **{f"delta_{kind}_mean": ("satwatch_delta_mean", kind) for kind in ("policy", "impl")},
    **{f"delta_{kind}_abs_mean": ("satwatch_delta_abs_mean", kind) for kind in ("policy", "impl")},
}
_GAUGES: Final = {family.name for family in STEP_FAMILIES}
_COUNTERS: Final = tuple(
    family.name.removeprefix("satwatch_").removesuffix("_total") for family in RUN_FAMILIES if family.kind == "counter"
)
# By the run itself when it answers; the others follow with the accounts.
_COUNTED_AT_ONCE: Final = frozenset({"batches", "duplicate_batches", "tokens", "scope_fallbacks", "client_fallbacks"})
# Of several runs together these would be one run's, chosen by chance.
_SINGLE: Final = frozenset({"quantile_reference"})


def add_runs(samples: Samples, runs: Sequence[Run], snapshots: Mapping[str, Snapshot], most: int) -> int:
    """Add the samples of all runs.

    Args:
        samples: added to.
        runs: in the order of their opening; the first ones keep labels of their own.
        snapshots: their accounts by name; a run may have none yet.
        most: the most labels.

    Returns:
        How many runs share the label ``_other``: their counts are added up, and their gauges are those of their latest
        steps merged.
    """
    own, rest = divide(runs, lambda run: run.name, most)
    for run in own:
        snapshot = snapshots.get(run.name)
        _add_counters(samples, run.name, [run], snapshots)
        samples.add("satwatch_policy_version", run.policy_version, run.name)
        samples.add("satwatch_published_version", run.published_version, run.name)
        if snapshot is not None and snapshot.totals is not None:
            samples.add("satwatch_step", snapshot.step, run.name)
            _add_latest(samples, run.name, snapshot.totals, snapshot.diagnostics)
    if rest:
        _add_counters(samples, OTHER, rest, snapshots)
        known = [snapshots[run.name].totals for run in rest if run.name in snapshots]
        if (merged := _merge_all([totals for totals in known if totals is not None])) is not None:
            diagnostics = {name: value for name, value in merged.values().items() if name not in _SINGLE}
            _add_latest(samples, OTHER, merged, diagnostics)
    return len(rest)


def _merge_all(totals: Sequence[StepTotals]) -> StepTotals | None:
    """Merge by halves: one after another, the largest sketch would be copied for each."""
    if len(totals) <= 1:
        return totals[0] if totals else None
    middle = len(totals) // 2
    first, second = _merge_all(totals[:middle]), _merge_all(totals[middle:])
    return second if first is None else first if second is None else first.merge(second)


def _add_counters(samples: Samples, label: str, runs: Iterable[Run], snapshots: Mapping[str, Snapshot]) -> None:
    """Add what is counted of one run, or of several added up."""
    runs = list(runs)
    known = [snapshots[run.name] for run in runs if run.name in snapshots]
    samples.add("satwatch_run_open", int(any(not run.has_ended for run in runs)), label)
    for name in _COUNTERS:
        samples.add(f"satwatch_{name}_total", _count(name, runs, known), label)
    if known:
        _add_arrivals(samples, label, [snapshot.arrivals for snapshot in known])
        tail = _sum_up([snapshot.tail for snapshot in known])
        samples.observe("satwatch_log_ratio_abs_nats", cumulative(TAIL_EDGES, tail.counts), tail.total, label)
        for kind in LAG_KINDS:
            lags = _sum_up([snapshot.lags[kind] for snapshot in known])
            buckets = cumulative(LAG_EDGES, lags.counts)
            samples.observe("satwatch_version_lag_versions", buckets, lags.total, label, kind)


def _add_arrivals(samples: Samples, label: str, arrivals: Sequence[Arrivals]) -> None:
    """Add when the last batch of any of them came, and the longest time between two of one."""
    came = [each.last_at for each in arrivals if each.last_at is not None]
    gaps = [gap for each in arrivals if (gap := each.longest_gap) is not None]
    samples.add("satwatch_last_batch_timestamp_seconds", max(came, default=None), label)
    samples.add("satwatch_batch_gap_seconds", max(gaps, default=None), label)


def _count(name: str, runs: Sequence[Run], snapshots: Sequence[Snapshot]) -> int | None:
    """Return a counter of the runs together; None where it is the accounts' and there are none."""
    if name == "steps_closed":
        return sum(run.stats.steps_closed for run in runs)
    if name in _COUNTED_AT_ONCE:
        counts: list[int] = [getattr(run, name) for run in runs]
        return sum(counts)
    return sum(snapshot.counters[name] for snapshot in snapshots) if snapshots else None


def _sum_up(histograms: Sequence[Buckets]) -> Buckets:
    return reduce(lambda a, b: a.add(b.counts, b.total), histograms)


def _add_latest(samples: Samples, label: str, totals: StepTotals, diagnostics: Mapping[str, float]) -> None:
    for name, value in diagnostics.items():
        if name in _LABELLED:
            metric, second = _LABELLED[name]
            samples.add(metric, value, label, second)
        elif f"satwatch_{name}" in _GAUGES:  # the counts among them are counters, above
            samples.add(f"satwatch_{name}", value, label)
    for layer, rate in totals.layer_flip_rates().items():
        samples.add("satwatch_router_layer_flip_rate", rate, label, str(layer))
