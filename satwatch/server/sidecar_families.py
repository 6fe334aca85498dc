"""The metrics of the sidecar itself and of its history: what each is, and what a bad value means."""

from __future__ import annotations

from typing import Final

from satwatch.server.families import Family, counter, gauge, histogram

SIDECAR_FAMILIES: Final[tuple[Family, ...]] = (
    counter("requests", "Requests answered or refused.", "kind", unit="requests"),
    histogram(
        "request_seconds",
        "Time from a request's arrival to its answer.",
        "kind",
        unit="seconds",
        bad="its tail near the client's timeout: fallbacks follow",
    ),
    counter(
        "errors",
        "Requests refused and accounts failed.",
        "kind",
        unit="errors",
        bad="rising; `InternalError`: a defect, the log has the traceback",
    ),
    counter("received_bytes", "Bytes of requests.", unit="bytes"),
    counter("sent_bytes", "Bytes of answers.", unit="bytes"),
    counter(
        "compute_seconds",
        "Time spent on bounds and diagnostics.",
        "device",
        unit="seconds",
        bad="a rate near 1: the sidecar has no CPU left",
    ),
    counter(
        "device_fallbacks",
        "Batches that the CPU computed because the device refused.",
        unit="batches",
        bad="rising: the GPU is full or gone; bounds are the same, later",
    ),
    gauge(
        "streams",
        "Streams that are open.",
        unit="streams",
        bad="above the number of ranks that stream: clients open new ones and keep the old",
    ),
    gauge("runs", "Runs that are open.", unit="runs", bad="near `max_runs`"),
    gauge(
        "overflow_names",
        "Names beyond the bound on labels, which share the label value _other.",
        "kind",
        unit="names",
        formula="names open now - names with a label of their own",
        bad="above 0: some are not shown by themselves; raise `max_run_labels` or `max_engine_labels`",
    ),
    gauge("info", "The sidecar, always 1.", "device", unit=""),
    gauge(
        "start_time_seconds",
        "Start of the sidecar, in seconds since the epoch.",
        unit="seconds",
        bad="changes: the sidecar was started again",
    ),
)

HISTORY_FAMILIES: Final[tuple[Family, ...]] = (
    gauge(
        "history_up",
        "Whether the last write of the history succeeded.",
        unit="0 or 1",
        bad="0: the disk is full or the database is away; records wait, and are dropped when too many do",
    ),
    gauge(
        "history_pending_records",
        "Records that wait to be written.",
        unit="records",
        bad="rising: the database is away, or slower than the batches",
    ),
    counter(
        "history_stored_records",
        "Records written.",
        "kind",
        unit="records",
        bad="not rising while batches do: see `satwatch_history_up`",
    ),
    counter(
        "history_dropped_records",
        "Records lost because too many waited.",
        "kind",
        unit="records",
        bad="above 0: the history has a gap, and the log says so",
    ),
    counter(
        "history_write_seconds",
        "Time spent on writing the history.",
        unit="seconds",
        bad="a rate near 1: the database is too slow",
    ),
    counter(
        "history_failures",
        "Writes of the history that failed, and were tried again.",
        unit="writes",
        bad="rising: the log says why",
    ),
)
