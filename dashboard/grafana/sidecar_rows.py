"""The row of the sidecar itself."""

from __future__ import annotations

from typing import Final

from satwatch._dashboard.grafana.panel import PanelSpec, Query, RowSpec
from satwatch._dashboard.grafana.query import sidecar_rate


def _latency(share: float) -> Query:
    buckets = "sum by (kind, le) (rate(satwatch_request_seconds_bucket[$__rate_interval]))"
    return Query(f"histogram_quantile({share}, {buckets})", f"{{{{kind}}}} {share:.0%}")


SIDECAR: Final = RowSpec(
    "The sidecar itself",
    (
        PanelSpec(
            "Requests",
            "Requests a second, by what was asked. ComputeBounds missing while a run trains: its clients do without.",
            (sidecar_rate("requests", "{{kind}}"),),
            unit="reqps",
            low=0,
            runbook="SidecarBypassed",
        ),
        PanelSpec(
            "Time to answer",
            "Median and 99th percentile of the time to answer, by what was asked. Near the client's timeout, a second "
            "unless set: fallbacks follow.",
            (_latency(0.5), _latency(0.99)),
            unit="s",
            is_log=True,
            runbook="SidecarBypassed",
        ),
        PanelSpec(
            "Errors",
            "Requests a second that were refused, by why. InternalError is a defect; the log has the traceback.",
            (sidecar_rate("errors", "{{kind}}"),),
            unit="cps",
            low=0,
        ),
        PanelSpec(
            "Compute",
            "Share of a core's time spent on bounds and diagnostics, and batches a second that the device refused. "
            "Near 1: the sidecar has no CPU left.",
            (
                Query("rate(satwatch_compute_seconds_total[$__rate_interval])", "{{device}}"),
                sidecar_rate("device_fallbacks", "refused by the device"),
            ),
            low=0,
        ),
        PanelSpec(
            "Bytes",
            "Bytes of requests and answers a second.",
            (sidecar_rate("received_bytes", "received"), sidecar_rate("sent_bytes", "sent")),
            unit="Bps",
            low=0,
        ),
        PanelSpec(
            "Open",
            "Runs and streams that are open, and names that had to share the label _other. More streams than ranks: "
            "clients keep old ones. Names in _other: raise max_run_labels or max_engine_labels.",
            (
                Query("satwatch_runs", "runs"),
                Query("satwatch_streams", "streams"),
                Query("satwatch_overflow_names", "{{kind}}s in _other"),
            ),
            unit="none",
            low=0,
        ),
        PanelSpec(
            "History",
            "1 while the last write of the history succeeded. 0: the disk is full, or the database is away; records "
            "wait.",
            (Query("satwatch_history_up", "history"),),
            unit="none",
            kind="timeline",
            meanings={0: ("failing", "red"), 1: ("written", "blue")},
            runbook="HistoryDown",
        ),
        PanelSpec(
            "Records of the history",
            "Records a second written and dropped, and those that wait. Dropped above 0: that part of the history is "
            "lost.",
            (
                sidecar_rate("history_stored_records", "{{kind}} stored"),
                sidecar_rate("history_dropped_records", "{{kind}} dropped"),
                Query("satwatch_history_pending_records", "waiting"),
            ),
            low=0,
            runbook="HistoryDown",
        ),
        PanelSpec(
            "Writing the history",
            "Share of a second spent on writing, and failed writes a second. Failures: the log says why, once.",
            (sidecar_rate("history_write_seconds", "time writing"), sidecar_rate("history_failures", "failures")),
            low=0,
            runbook="HistoryDown",
        ),
        PanelSpec(
            "Up since",
            "How long each sidecar has been up. A fall to 0: it was started again.",
            (Query("time() - satwatch_start_time_seconds", "{{instance}}"),),
            unit="s",
            low=0,
            runbook="SidecarDown",
        ),
        PanelSpec(
            "Devices",
            "Sidecars by the device that they compute on.",
            (Query("count by (device) (satwatch_info)", "{{device}}"),),
            unit="none",
            low=0,
        ),
        PanelSpec(
            "Scraped",
            "1 while Prometheus reaches the sidecar. 0: it is down, and no other panel here is of now.",
            (Query('up{job="satwatch"}', "{{instance}}"),),
            unit="none",
            kind="timeline",
            meanings={0: ("down", "red"), 1: ("up", "blue")},
            runbook="SidecarDown",
        ),
    ),
    is_collapsed=True,
)
