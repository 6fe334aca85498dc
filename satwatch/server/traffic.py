"""What a sidecar counts of itself: requests, seconds, errors, bytes. One thread writes; any may read."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from satwatch.errors import BY_NAME
from satwatch.server.compute import Selection
from satwatch.server.history_answers import QUERY_KINDS

INTERNAL_ERROR: Final = "InternalError"
ERROR_KINDS: Final = (*BY_NAME, INTERNAL_ERROR)
REQUEST_KINDS: Final = (
    "OpenRun",
    "ComputeBounds",
    "StreamBounds",
    "PublishVersion",
    "GetServerInfo",
    "ReportCanary",
    "ReportEngines",
    "WatchEngines",
    "ReportStep",
    "CloseRun",
    *QUERY_KINDS,
)

# Seconds: a small batch takes hundreds of microseconds, the largest one seconds.
BUCKETS: Final = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """Counts of seconds by bucket.

    Attributes:
        count: observations.
        sum: their sum, seconds.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._counts = [0] * (len(BUCKETS) + 1)
        self.count = 0
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(BUCKETS, seconds)] += 1
        self.count += 1
        self.sum += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """Return (upper bound, observations up to it), as Prometheus has them."""
        counts, total, pairs = list(self._counts), 0, []
        for bound, count in zip((*map(repr, BUCKETS), "+Inf"), counts, strict=True):
            total += count
            pairs.append((bound, float(total)))
        return pairs


class Traffic:
    """The counters of one sidecar, each there from the start, so that a rate exists before the first event.

    Attributes:
        seconds: request durations by kind.
        errors: refusals by kind of error.
        received_bytes: bytes of requests, without gRPC's framing.
        sent_bytes: bytes of replies, likewise.
        compute_seconds: seconds of bounds computation by kind of device.
        streams: streams that are open.
        device_fallbacks: batches that the CPU computed because the device refused.
    """

    def __init__(self, device: str) -> None:
        """Start at zero; ``device`` is the kind of device that computes."""
        self.seconds = {kind: Histogram() for kind in REQUEST_KINDS}
        self.errors = dict.fromkeys(ERROR_KINDS, 0)
        self.received_bytes = 0
        self.sent_bytes = 0
        self.compute_seconds = {"cpu": 0.0, device: 0.0}
        self.streams = 0
        self.device_fallbacks = 0

    def answered(self, kind: str, seconds: float, received: int, sent: int) -> None:
        """Count a request that was answered or refused."""
        self.seconds[kind].observe(seconds)
        self.received_bytes += received
        self.sent_bytes += sent

    def pushed(self, sent: int) -> None:
        """Count a message that was sent unasked."""
        self.sent_bytes += sent

    def failed(self, error: Exception) -> None:
        """Count an error by its class's name; one that was not meant is internal."""
        name = type(error).__name__
        self.errors[name if name in self.errors else INTERNAL_ERROR] += 1

    def computed(self, selection: Selection, seconds: float) -> None:
        """Count the computation of one batch's bounds."""
        self.compute_seconds[selection.device] += seconds
        self.device_fallbacks += selection.refused
