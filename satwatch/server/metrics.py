"""The metrics of a sidecar, made at scrape time. Their names are API: see docs/metrics.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from satwatch.server.engine_metrics import ENGINE_FAMILIES, add_engines
from satwatch.server.engines import EngineBoard
from satwatch.server.families import Family, Samples
from satwatch.server.ledger import Ledger
from satwatch.server.run_families import RUN_FAMILIES
from satwatch.server.run_metrics import add_runs
from satwatch.server.runs import RunRegistry
from satwatch.server.sidecar_families import HISTORY_FAMILIES, SIDECAR_FAMILIES
from satwatch.server.step_families import STEP_FAMILIES
from satwatch.server.traffic import INTERNAL_ERROR, Traffic

if TYPE_CHECKING:
    from satwatch.history import RecorderStats

# A scrape waits this long for the accounts of what was answered before it; Prometheus' own patience is 10 s.
PATIENCE_SECONDS: Final = 2.0
MAX_RUN_LABELS: Final = 100
MAX_ENGINE_LABELS: Final = 256

GROUPS: Final[tuple[tuple[str, tuple[Family, ...]], ...]] = (
    ("A run: its latest step so far", STEP_FAMILIES),
    ("A run: since it was opened", RUN_FAMILIES),
    ("The sidecar", SIDECAR_FAMILIES),
    ("The history", HISTORY_FAMILIES),
    ("The engines", ENGINE_FAMILIES),
)
FAMILIES: Final = tuple(family for _, families in GROUPS for family in families)


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
        recorder_stats: Callable[[], RecorderStats | None] = lambda: None,
        max_run_labels: int = MAX_RUN_LABELS,
        max_engine_labels: int = MAX_ENGINE_LABELS,
    ) -> None:
        """Collect from these parts.

        Args:
            registry: the runs.
            ledger: their accounts.
            board: the engines.
            traffic: the requests.
            device: what computes.
            started_at: Unix time in seconds.
            recorder_stats: how the writing of the history goes; None while there is no history.
            max_run_labels: the most runs shown by themselves, 1 or more.
            max_engine_labels: the most engines shown by themselves, 1 or more.
        """
        self._device = device
        self._started_at = started_at
        self._registry = registry
        self._ledger = ledger
        self._board = board
        self._traffic = traffic
        self._recorder_stats = recorder_stats
        self._max_run_labels = max_run_labels
        self._max_engine_labels = max_engine_labels

    def collect(self) -> Iterator[Metric]:
        """Yield every metric that has a value; what is unknown has no sample, and is never 0."""
        runs = self._registry.runs()
        snapshots = self._ledger.read(runs, PATIENCE_SECONDS)
        samples = Samples()
        other_runs = add_runs(samples, runs, snapshots, self._max_run_labels)
        other_engines = add_engines(
            samples, self._board.statuses(), dropped=self._board.dropped, most=self._max_engine_labels
        )
        samples.add("satwatch_overflow_names", other_runs, "run")
        samples.add("satwatch_overflow_names", other_engines, "engine")
        self._add_traffic(samples)
        self._add_itself(samples)
        self._add_history(samples)
        for family in FAMILIES:
            if (metric := samples.build(family)) is not None:
                yield metric

    def _add_traffic(self, samples: Samples) -> None:
        traffic = self._traffic
        for kind, histogram in traffic.seconds.items():
            samples.add("satwatch_requests_total", histogram.count, kind)
            samples.observe("satwatch_request_seconds", histogram.cumulative(), histogram.sum, kind)
        errors = traffic.errors | {INTERNAL_ERROR: traffic.errors[INTERNAL_ERROR] + self._ledger.failures}
        for kind, count in errors.items():
            samples.add("satwatch_errors_total", count, kind)
        seconds = traffic.compute_seconds | {"cpu": traffic.compute_seconds["cpu"] + self._ledger.seconds}
        for device, value in seconds.items():
            samples.add("satwatch_compute_seconds_total", value, device)
        samples.add("satwatch_received_bytes_total", traffic.received_bytes)
        samples.add("satwatch_sent_bytes_total", traffic.sent_bytes)
        samples.add("satwatch_device_fallbacks_total", traffic.device_fallbacks)
        samples.add("satwatch_streams", traffic.streams)

    def _add_itself(self, samples: Samples) -> None:
        samples.add("satwatch_runs", len(self._registry))
        samples.add("satwatch_info", 1, self._device)
        samples.add("satwatch_start_time_seconds", self._started_at)

    def _add_history(self, samples: Samples) -> None:
        stats = self._recorder_stats()
        if stats is None:
            return
        samples.add("satwatch_history_up", stats.up)
        samples.add("satwatch_history_pending_records", stats.pending)
        for kind, count in stats.stored.items():
            samples.add("satwatch_history_stored_records_total", count, kind)
        for kind, count in stats.dropped.items():
            samples.add("satwatch_history_dropped_records_total", count, kind)
        samples.add("satwatch_history_write_seconds_total", stats.write_seconds)
        samples.add("satwatch_history_failures_total", stats.failures)
