"""What a client has done so far."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from satwatch.client.breaker import BreakerState
from satwatch.client.misses import MissKind
from satwatch.types import ServerInfo

# Steps whose microbatches are still being numbered; a trainer works on one or two.
STEPS_KEPT: Final = 1024


@dataclass(frozen=True, slots=True)
class ClientStats:
    """A client's counts, in this process.

    Attributes:
        bounds_from_sidecar: batches that the sidecar's answer bounded.
        bounds_from_fallback: batches that were bounded without it.
        raised: batches that raised instead (``on_failure="raise"``).
        fallback_kinds: misses by kind, those that raised included; docs/client.md says what each kind is.
        breaker: ``closed``: the sidecar is asked; ``open``: it is left alone until a probe opens the run again;
            ``half_open``: then one batch at a time tries it, and its answer closes the breaker.
        round_trip_seconds: the last answered batch's, from sending to the reply, None before the first.
        server: what the sidecar said of itself when the run was opened, None before.
        canaries_reported: reports of the canary's scores that the sidecar has taken.
        canaries_missed: reports that it has not taken when they were made. It hears the latest when the run is opened
            again.
        reports_sent: reports of steps, their ends included, that the sidecar has taken.
        reports_missed: reports that it has not taken, and that it won't hear again.
    """

    bounds_from_sidecar: int = 0
    bounds_from_fallback: int = 0
    raised: int = 0
    fallback_kinds: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    breaker: BreakerState = "closed"
    round_trip_seconds: float | None = None
    server: ServerInfo | None = None
    canaries_reported: int = 0
    canaries_missed: int = 0
    reports_sent: int = 0
    reports_missed: int = 0

    @property
    def batches_sent(self) -> int:
        """Batches that got bounds: from the sidecar or from a fallback."""
        return self.bounds_from_sidecar + self.bounds_from_fallback


class Tally:
    """The counts while they grow; for any number of threads."""

    def __init__(self) -> None:
        """Start at 0."""
        self._lock = threading.RLock()  # a handler that a signal has called may ask in the midst of a count
        self._sidecar = self._fallback = self._raised = 0
        self._canaries_heard = self._canaries_missed = 0
        self._reports_heard = self._reports_missed = 0
        self._kinds: Counter[str] = Counter()
        self._round_trip: float | None = None

    @property
    def fallbacks(self) -> int:
        """Batches bounded without the sidecar so far."""
        return self._fallback

    @property
    def missed(self) -> int:
        """Batches that the sidecar has not bounded so far: bounded without it, or raised."""
        return self._fallback + self._raised

    def answered(self, round_trip: float) -> None:
        """Count a batch that the sidecar's answer bounded."""
        with self._lock:
            self._sidecar += 1
            self._round_trip = round_trip

    def fell_back(self, kind: MissKind) -> None:
        """Count a batch that was bounded without it."""
        with self._lock:
            self._fallback += 1
            self._kinds[kind] += 1

    def raised(self, kind: MissKind) -> None:
        """Count a batch that raised."""
        with self._lock:
            self._raised += 1
            self._kinds[kind] += 1

    def canary(self, *, heard: bool) -> None:
        """Count a report of the canary's scores."""
        with self._lock:
            self._canaries_heard += heard
            self._canaries_missed += not heard

    def report(self, *, heard: bool) -> None:
        """Count a report of a step."""
        with self._lock:
            self._reports_heard += heard
            self._reports_missed += not heard

    def read(self, breaker: BreakerState = "closed", server: ServerInfo | None = None) -> ClientStats:
        """Return the counts as one consistent value."""
        with self._lock:
            return ClientStats(
                bounds_from_sidecar=self._sidecar,
                bounds_from_fallback=self._fallback,
                raised=self._raised,
                fallback_kinds=MappingProxyType(dict(self._kinds)),
                breaker=breaker,
                round_trip_seconds=self._round_trip,
                server=server,
                canaries_reported=self._canaries_heard,
                canaries_missed=self._canaries_missed,
                reports_sent=self._reports_heard,
                reports_missed=self._reports_missed,
            )


class Numbering:
    """Numbers the microbatches of a step, so that a retry of one counts once; for any number of threads."""

    def __init__(self) -> None:
        """Start each step at 0."""
        self._lock = threading.Lock()
        self._next: OrderedDict[int, int] = OrderedDict()

    def take(self, step: int) -> int:
        """Return the step's next number."""
        with self._lock:
            number = self._next.pop(step, 0)
            self._next[step] = number + 1
            if len(self._next) > STEPS_KEPT:
                self._next.popitem(last=False)
            return number
