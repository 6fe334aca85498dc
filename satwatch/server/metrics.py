"""The metrics of a sidecar, made at scrape time. Their names are API: see docs/metrics.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from satwatch.sat.summary import QUANTILES
from satwatch.server.engine_metrics import ENGINE_FAMILIES, add_engines
from satwatch.server.engines import EngineBoard
from satwatch.server.families import Family, Labels, Samples, counter, gauge
from satwatch.server.ledger import Ledger
from satwatch.server.runs import Run, RunRegistry
from satwatch.server.stats import Snapshot
from satwatch.server.traffic import INTERNAL_ERROR, Traffic

# A scrape waits this long for the accounts of what was answered before it; Prometheus' own patience is 10 s.
PATIENCE_SECONDS: Final = 2.0

FAMILIES: Final = (
    gauge("quantile_reference", "Tail threshold q of the latest batch, in nats.", "run"),
    gauge("gate_rate", "Share of tokens whose interval is contracted.", "run"),
    gauge("clip_radius_mean", "Mean clip radius of a side.", "run", "side"),
    gauge("contraction_min", "Smallest contraction factor; 1 when nothing is gated.", "run"),
    gauge("clip_fraction", "Share of tokens that the contracted interval clips.", "run"),
    gauge("clip_fraction_ppo", "Share of tokens that the nominal interval would clip.", "run"),
    gauge("intercepted_fraction", "Share of tokens clipped by the contraction alone.", "run"),
    gauge("log_ratio_mean", "Mean log-ratio, in nats.", "run"),
    gauge("log_ratio_abs_mean", "Mean absolute log-ratio, in nats.", "run"),
    gauge("log_ratio_abs", "Quantile q of the absolute log-ratio, in nats.", "run", "q"),
    gauge("log_ratio_abs_max", "Largest finite absolute log-ratio, in nats.", "run"),
    gauge("kl_k1", "KL divergence of behavior from policy, estimator k1, in nats.", "run"),
    gauge("kl_k2", "KL divergence of behavior from policy, estimator k2, in nats.", "run"),
    gauge("kl_k3", "KL divergence of behavior from policy, estimator k3, in nats.", "run"),
    gauge("tv_sampled", "Total variation distance of behavior and policy, estimated.", "run"),
    gauge("chi2", "Chi-square divergence of policy from behavior, estimated.", "run"),
    gauge("ess_ratio", "Effective sample size as a share of the tokens.", "run"),
    gauge("ratio_max", "Largest probability ratio.", "run"),
    gauge("tail_index", "Hill estimate of the tail beyond q; heavier when larger.", "run"),
    gauge("version_lag_mean", "Mean version lag of the tokens whose lag is known.", "run"),
    gauge("version_lag_max", "Largest version lag.", "run"),
    gauge("version_lag_generation_mean", "Mean versions that passed while a response was generated.", "run"),
    gauge("version_lag_queue_mean", "Mean versions that passed while a response waited.", "run"),
    gauge("version_coverage_ratio", "Share of tokens whose version lag is known.", "run"),
    gauge("behavior_versions", "Distinct versions that generated the tokens.", "run"),
    gauge("router_flip_rate", "Share of (token, layer) pairs whose expert sets differ.", "run"),
    gauge("router_layer_flip_rate", "Share of tokens whose expert sets differ in a layer.", "run", "layer"),
    gauge("router_expert_disagreement", "Mean share of experts that engine and trainer do not share.", "run"),
    gauge("router_token_flip_rate", "Share of tokens with a differing layer.", "run"),
    gauge("router_coverage", "Share of tokens with a route from both sides.", "run"),
    gauge("policy_version", "Policy version that consumed the latest batch.", "run"),
    gauge("published_version", "Policy version last published to the engines.", "run"),
    counter("batches", "Batches answered.", "run"),
    counter("duplicate_batches", "Retried batches, answered again and not counted.", "run"),
    counter("tokens", "Active tokens received.", "run"),
    counter("nan_tokens", "Active tokens with a NaN log-ratio.", "run"),
    counter("inf_tokens", "Active tokens with an infinite log-ratio.", "run"),
    counter("extreme_tokens", "Active tokens with an absolute log-ratio above 20.", "run"),
    counter("negative_lag_tokens", "Active tokens from a version newer than the policy's.", "run"),
    counter("scope_fallbacks", "Batches whose q is the microbatch's though the rule asks for more.", "run"),
    counter("client_fallbacks", "Batches that clients answered without the sidecar.", "run"),
    counter("requests", "Requests answered or refused.", "kind"),
    Family("satwatch_request_seconds", "histogram", ("kind",), "Time from a request's arrival to its answer."),
    counter("errors", "Requests refused and accounts failed.", "kind"),
    counter("received_bytes", "Bytes of requests."),
    counter("sent_bytes", "Bytes of answers."),
    counter("compute_seconds", "Time spent on bounds and diagnostics.", "device"),
    counter("device_fallbacks", "Batches that the CPU computed because the device refused."),
    gauge("streams", "Streams that are open."),
    gauge("runs", "Runs that are open."),
    gauge("info", "The sidecar, always 1.", "device"),
    gauge("start_time_seconds", "Start of the sidecar, in seconds since the epoch."),
    *ENGINE_FAMILIES,
)

# The diagnostics whose name says in a label what the metric's name leaves out.
_LABELLED: Final = {
    "clip_radius_low_mean": ("satwatch_clip_radius_mean", "low"),
    "clip_radius_high_mean": ("satwatch_clip_radius_mean", "high"),
    **{f"log_ratio_abs_q{alpha}": ("satwatch_log_ratio_abs", str(alpha)) for alpha in QUANTILES},
}
_NAMES: Final = {family.name for family in FAMILIES}


class SidecarCollector(Collector):
    """Collects the metrics of one sidecar when it is scraped."""

    def __init__(
        self,
        registry: RunRegistry,
        ledger: Ledger,
        board: EngineBoard,
        traffic: Traffic,
        *,
        device: str,
        started_at: float,
    ) -> None:
        """Collect from these parts; ``started_at`` is Unix time in seconds."""
        self._device = device
        self._started_at = started_at
        self._registry = registry
        self._ledger = ledger
        self._board = board
        self._traffic = traffic

    def collect(self) -> Iterator[Metric]:
        """Yield every metric that has a value; what is unknown has no sample, and is never 0."""
        runs = self._registry.runs()
        snapshots = self._ledger.read(runs, PATIENCE_SECONDS)
        samples: Samples = defaultdict(list)
        for run in runs:
            _add_run(samples, run, snapshots.get(run.name))
        self._add_traffic(samples)
        add_engines(samples, self._board.statuses(), self._board.dropped)
        for family in FAMILIES:
            if family.kind == "histogram":
                yield self._request_seconds(family)
            elif family.name in samples:
                yield _build(family, samples[family.name])

    def _add_traffic(self, samples: Samples) -> None:
        traffic = self._traffic
        errors = traffic.errors | {INTERNAL_ERROR: traffic.errors[INTERNAL_ERROR] + self._ledger.failures}
        samples["satwatch_requests_total"] = [((kind,), seconds.count) for kind, seconds in traffic.seconds.items()]
        samples["satwatch_errors_total"] = [((kind,), count) for kind, count in errors.items()]
        samples["satwatch_received_bytes_total"] = [((), traffic.received_bytes)]
        samples["satwatch_sent_bytes_total"] = [((), traffic.sent_bytes)]
        seconds = traffic.compute_seconds | {"cpu": traffic.compute_seconds["cpu"] + self._ledger.seconds}
        samples["satwatch_compute_seconds_total"] = [((device,), value) for device, value in seconds.items()]
        samples["satwatch_device_fallbacks_total"] = [((), traffic.device_fallbacks)]
        samples["satwatch_streams"] = [((), traffic.streams)]
        samples["satwatch_runs"] = [((), len(self._registry))]
        samples["satwatch_info"] = [((self._device,), 1)]
        samples["satwatch_start_time_seconds"] = [((), self._started_at)]

    def _request_seconds(self, family: Family) -> Metric:
        metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for kind, histogram in self._traffic.seconds.items():
            metric.add_metric((kind,), histogram.cumulative(), histogram.sum)
        return metric


def _add_run(samples: Samples, run: Run, snapshot: Snapshot | None) -> None:
    counters = {
        "batches": run.batches,
        "duplicate_batches": run.duplicate_batches,
        "tokens": run.tokens,
        "scope_fallbacks": run.scope_fallbacks,
        "client_fallbacks": run.client_fallbacks,
        **({} if snapshot is None else snapshot.counters),
    }
    for name, count in counters.items():
        samples[f"satwatch_{name}_total"].append(((run.name,), count))
    for name, version in (("policy_version", run.policy_version), ("published_version", run.published_version)):
        if version is not None:
            samples[f"satwatch_{name}"].append(((run.name,), version))
    if snapshot is not None:
        _add_diagnostics(samples, run.name, snapshot)


def _add_diagnostics(samples: Samples, run: str, snapshot: Snapshot) -> None:
    for name, value in snapshot.diagnostics.items():
        if name in _LABELLED:
            metric, label = _LABELLED[name]
            samples[metric].append(((run, label), value))
        elif f"satwatch_{name}" in _NAMES:  # the counts among them are counters, above
            samples[f"satwatch_{name}"].append(((run,), value))
    for layer, rate in snapshot.layer_flip_rates.items():
        samples["satwatch_router_layer_flip_rate"].append(((run, str(layer)), rate))


def _build(family: Family, samples: list[tuple[Labels, float]]) -> Metric:
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = make(family.name, family.help, labels=family.labels)
    for labels, value in samples:
        metric.add_metric(labels, value)
    return metric
