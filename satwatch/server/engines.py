"""What is known of the engines: what each probe last said, until it has been silent for too long.

Pure but for its lock and its log. Probes report from any thread; scrapes and streams read from theirs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from satwatch.server.engine_log import log_faults
from satwatch.types import EngineStatus

logger = logging.getLogger(__name__)

# The probe that runs inside the sidecar; no other may have its name.
OWN_PROBE: Final = "serve"
# A probe is silent when it missed three of its own periods and the time that a slow round may take.
SILENT_PERIODS: Final = 3.0
SILENT_SECONDS: Final = 5.0
# Engines of a probe that is gone: shown as unknown for an hour, then no more.
FORGET_SECONDS: Final = 3600.0
# A longer period than a probe can be set to is no reason to show old numbers.
MAX_PERIOD_SECONDS: Final = 3600.0
# What is said of engines named twice or left out is said once each, and remembered for this many.
_SAID: Final = 1000


@dataclass(frozen=True, slots=True)
class Report:
    """What one probe last said.

    Attributes:
        probe: its name.
        run: the run that its engines generate for; empty: not known.
        statuses: of its engines.
        at: the clock when it came.
        patience: seconds of silence after which nothing is known.
        since: for each engine, the number of the report since which this probe names it without a silence.
    """

    probe: str
    run: str
    statuses: tuple[EngineStatus, ...]
    at: float
    patience: float
    since: Mapping[str, int] = field(repr=False)

    @property
    def ends(self) -> tuple[float, float]:
        """When silence makes its engines unknown, and when they are forgotten, on the clock."""
        return self.at + self.patience, self.at + max(self.patience, FORGET_SECONDS)

    def is_silent(self, now: float) -> bool:
        """Tell whether the probe has said nothing for too long."""
        return now >= self.ends[0]

    def is_forgotten(self, now: float) -> bool:
        """Tell whether it has been silent for so long that its engines are no longer shown."""
        return now >= self.ends[1]

    def read(self, now: float) -> tuple[EngineStatus, ...]:
        """Return the statuses, or, of a silent probe, that nothing is known of its engines."""
        if not self.is_silent(now):
            return self.statuses
        # The text stands still while the silence lasts, so that streams are not woken by a count of seconds.
        reason = f"the probe {self.probe!r} has said nothing for {self.patience:g} s"
        return tuple(_unknown(status, reason) for status in self.statuses)

    def claim(self, engine: str, now: float) -> tuple[bool, bool, float]:
        """Return a key by which the probe whose word counts of an engine is the least.

        One that speaks before one that is silent; of those the sidecar's own, then the one that has named it longest:
        two probes' counters are not one counter, and a reader is not to see them take turns.
        """
        if self.is_silent(now):
            return True, False, -self.at
        return False, self.probe != OWN_PROBE, self.since[engine]


def _unknown(status: EngineStatus, reason: str) -> EngineStatus:
    """Keep what stays true of an engine that nobody looks at: what it is, when it last answered, what was counted."""
    return EngineStatus(
        status.engine,
        "unknown",
        reason,
        kind=status.kind,
        release=status.release,
        seen_at=status.seen_at,
        looks=status.looks,
        failed_looks=status.failed_looks,
        canary_requests=status.canary_requests,
        version_changes=status.version_changes,
    )


class EngineBoard:
    """The statuses of all probes' engines, at most ``max_engines``; safe from any thread.

    Attributes:
        dropped: statuses left out because there were too many engines.
    """

    def __init__(self, max_engines: int, clock: Callable[[], float]) -> None:
        """Start empty; the clock counts seconds from anywhere, upwards."""
        self._max_engines = max_engines
        self._clock = clock
        self._lock = threading.Lock()
        self._reports: dict[str, Report] = {}
        self._wakes: list[Callable[[], None]] = []
        self._shared: set[str] = set()
        self._is_full = False
        self._number = 0
        self.dropped = 0

    def report(self, probe: str, statuses: Sequence[EngineStatus], period: float, run: str = "") -> None:
        """Record what a probe says of its engines; it replaces what this probe said before.

        What doesn't fit is left out, counted and said once: the engines that fit are worth more than a refusal.

        Args:
            probe: the probe's name.
            statuses: of all of its engines; of one named twice the last counts.
            period: seconds until it reports again.
            run: the run that its engines generate for; empty: not known.
        """
        patience = SILENT_PERIODS * min(max(period, 0.0), MAX_PERIOD_SECONDS) + SILENT_SECONDS
        named = {status.engine: status for status in statuses}
        with self._lock:
            now = self._clock()
            before = self._reports.pop(probe, None)
            self._make_room(len(named), now)
            kept = tuple(named.values())[: self._max_engines - self._taken()]
            is_back = before is not None and before.is_silent(now)
            if kept:
                held = {} if before is None or is_back else before.since
                self._number += 1
                since = {status.engine: held.get(status.engine, self._number) for status in kept}
                self._reports[probe] = Report(probe, run, kept, now, patience, since)
                self._note_shared(self._reports[probe], now)
            self._note_dropped(probe, len(named) - len(kept))
            said = ((), "") if before is None else (before.statuses, before.run)
            wakes = list(self._wakes) if is_back or said != (kept, run if kept else "") else []
        log_faults(said[0], kept)
        for wake in wakes:
            wake()

    def statuses(self, run: str = "") -> tuple[EngineStatus, ...]:
        """Return what is known of every engine, in the order of their names.

        Of two probes that name one engine one counts, for as long as it speaks: the sidecar's own, or else the first.

        Args:
            run: only engines of this run, and those whose run isn't known; empty: all.
        """
        return tuple(status for _, status in self.serving(run))

    def serving(self, run: str = "") -> tuple[tuple[str, EngineStatus], ...]:
        """Return the same, each with the run that its engine generates for; empty: not known."""
        with self._lock:
            now, reports = self._clock(), list(self._reports.values())
        shown = [report for report in reports if not report.is_forgotten(now) and (not run or report.run in ("", run))]
        holders: dict[str, Report] = {}
        for report in shown:
            for engine in report.since:
                holder = holders.get(engine)
                if holder is None or report.claim(engine, now) < holder.claim(engine, now):
                    holders[engine] = report
        said = [(r.run, status) for r in shown for status in r.read(now) if holders[status.engine] is r]
        return tuple(sorted(said, key=lambda pair: pair[1].engine))

    def expires_in(self) -> float | None:
        """Return after how many seconds silence will next change something, or None: never, as things stand."""
        with self._lock:
            now, reports = self._clock(), list(self._reports.values())
        ends = [end for report in reports for end in report.ends if end > now]
        return min(ends) - now if ends else None

    @contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call a function after every report that changed something, in the reporting thread, inside the block."""
        with self._lock:
            self._wakes.append(wake)
        try:
            yield
        finally:
            with self._lock:
                self._wakes.remove(wake)

    def _make_room(self, count: int, now: float) -> None:
        """Forget who is forgotten, and, where a report doesn't fit, the silent probes, longest silent first."""
        taken = self._taken()  # once: there may be as many probes as engines
        for report in sorted(self._reports.values(), key=lambda report: report.at):
            is_needed = taken + count > self._max_engines and report.is_silent(now)
            if is_needed or report.is_forgotten(now):
                taken -= len(report.statuses)
                del self._reports[report.probe]

    def _taken(self) -> int:
        return sum(len(report.statuses) for report in self._reports.values())

    def _note_dropped(self, probe: str, count: int) -> None:
        """Count what was left out, and say so once until there is room again: other probes fit all the time."""
        self.dropped += count
        if count and not self._is_full:
            message = "Engines of the probe %r are left out, %d of them: more than %d in all (max_engines)."
            logger.warning(message, probe, count, self._max_engines)
        self._is_full = bool(count) or (self._is_full and self._taken() >= self._max_engines)

    def _note_shared(self, report: Report, now: float) -> None:
        """Say once of an engine that two probes look at it: the work of one of them is for nothing."""
        own = {status.engine for status in report.statuses} - self._shared
        for other in self._reports.values():
            if other is report or other.is_silent(now) or len(self._shared) >= _SAID:
                continue
            both = own.intersection(status.engine for status in other.statuses)
            if both:
                self._shared |= both
                # Who has come to name it now is the later one.
                holder = report.probe if report.probe == OWN_PROBE else other.probe
                message = "The probes %r and %r both look at %s; what %r says counts while it speaks."
                logger.warning(message, other.probe, report.probe, ", ".join(sorted(both)[:8]), holder)
