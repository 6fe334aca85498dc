"""What a metric is, and what is collected of it at a scrape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = tuple[str, ...]
# (upper bound, observations up to it), the last one "+Inf".
Cumulative: TypeAlias = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric, and what a reader has to know of it.

    Attributes:
        name: its name; API.
        kind: its type.
        labels: its labels' names.
        help: what it says, in a sentence.
        unit: what it is counted or measured in; empty if in nothing.
        formula: how it is made, where the name doesn't say it; empty if it does.
        bad: what a bad value means; empty if none is bad.
    """

    name: str
    kind: Kind
    labels: Labels
    help: str
    unit: str = ""
    formula: str = ""
    bad: str = ""


def gauge(name: str, help_text: str, *labels: str, unit: str, formula: str = "", bad: str = "") -> Family:
    """Return a gauge of satwatch's."""
    return Family(f"satwatch_{name}", "gauge", labels, help_text, unit, formula, bad)


def counter(name: str, help_text: str, *labels: str, unit: str, formula: str = "", bad: str = "") -> Family:
    """Return a counter of satwatch's; its name ends as Prometheus wants it."""
    return Family(f"satwatch_{name}_total", "counter", labels, help_text, unit, formula, bad)


def histogram(name: str, help_text: str, *labels: str, unit: str, formula: str = "", bad: str = "") -> Family:
    """Return a histogram of satwatch's."""
    return Family(f"satwatch_{name}", "histogram", labels, help_text, unit, formula, bad)


def cumulative(edges: Sequence[float], counts: Sequence[int]) -> Cumulative:
    """Return counts bucket by bucket as Prometheus has them.

    >>> cumulative((0.5, 1.0), (2, 0, 1))
    [('0.5', 2.0), ('1.0', 2.0), ('+Inf', 3.0)]
    """
    pairs, total = [], 0
    for bound, count in zip((*(repr(float(edge)) for edge in edges), "+Inf"), counts, strict=True):
        total += count
        pairs.append((bound, float(total)))
    return pairs


@dataclass(slots=True)
class Samples:
    """The samples of one scrape, by metric.

    Attributes:
        values: of gauges and counters: (label values, value).
        histograms: of histograms: (label values, buckets, sum).
    """

    values: defaultdict[str, list[tuple[Labels, float]]] = field(default_factory=lambda: defaultdict(list))
    histograms: defaultdict[str, list[tuple[Labels, Cumulative, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, name: str, value: float | None, *labels: str) -> None:
        """Add a value; None is unknown, and has no sample."""
        if value is not None:
            self.values[name].append((labels, value))

    def observe(self, name: str, buckets: Cumulative, total: float, *labels: str) -> None:
        """Add a histogram."""
        self.histograms[name].append((labels, buckets, total))

    def build(self, family: Family) -> Metric | None:
        """Return a metric with its samples; None without one."""
        if family.kind == "histogram":
            return self._build_histogram(family)
        if family.name not in self.values:
            return None
        make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
        metric = make(family.name, family.help, labels=family.labels)
        for labels, value in self.values[family.name]:
            metric.add_metric(labels, value)
        return metric

    def _build_histogram(self, family: Family) -> Metric | None:
        if family.name not in self.histograms:
            return None
        metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, buckets, total in self.histograms[family.name]:
            metric.add_metric(labels, buckets, total)
        return metric
