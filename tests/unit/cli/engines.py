"""Engines as the probe's table and its page show them."""

from __future__ import annotations

from satwatch.types import EngineStatus

SERVING = EngineStatus(
    "127.0.0.1:30000",
    "serving",
    version_served=12,
    version_published=12,
    version_lag=0,
    weight_age_seconds=42.0,
    sync_seconds=3.1,
    requests_waiting=12,
    requests_running=8,
    queue_seconds=1.23,
    canary_log_ratio_abs_mean=0.0131,
    seen_at=100.0,
)
