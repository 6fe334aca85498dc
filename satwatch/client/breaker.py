"""The circuit breaker, as values.

Closed, the sidecar is asked. Open, it is left alone until a probe has opened the run again. Half-open, one batch at a
time tries it: an answer that was used closes the breaker, and a miss opens it for twice as long as before. So a sidecar
that opens runs but is late with batches is asked less and less often.

Pure: a state, the clock's reading and a random number in, a state out. It owns no thread, lock or socket.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

BreakerState: TypeAlias = Literal["closed", "half_open", "open"]

_MAX_DOUBLINGS: Final = 62  # far above any ceiling, far below where a float overflows


@dataclass(frozen=True, slots=True)
class Backoff:
    """When an open breaker is probed.

    Attributes:
        first: seconds from opening to the first probe.
        ceiling: seconds between probes at most; each failure doubles the pause until then.
        jitter: the share of a pause that chance may take off, so that ranks do not probe in step; 0 to 1.
    """

    first: float = 1.0
    ceiling: float = 30.0
    jitter: float = 0.2

    def pause(self, failures: int, chance: float) -> float:
        """Return the seconds to wait after so many failed probes and trials.

        Args:
            failures: failed probes and trials since the breaker was closed.
            chance: a number in [0, 1).

        >>> [Backoff().pause(n, 0.0) for n in (0, 1, 4, 5, 5000)]
        [1.0, 2.0, 16.0, 30.0, 30.0]
        """
        full = min(self.first * 2.0 ** min(failures, _MAX_DOUBLINGS), self.ceiling)
        return full * (1.0 - self.jitter * chance)


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state.

    Attributes:
        state: ``closed``, ``half_open`` or ``open``.
        failures: failed probes and trials since it was closed.
        probe_at: the clock's reading at which the next probe is due; only while open.
        trial_ends: until then one call tries the sidecar and no other may; only while half-open. A trial whose end
            nobody reports, because its thread was interrupted, keeps others away no longer than that.
    """

    state: BreakerState = "closed"
    failures: int = 0
    probe_at: float = 0.0
    trial_ends: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the sidecar is left alone."""
        return self.state == "open"

    def admits(self, now: float) -> bool:
        """Tell whether a batch may be sent."""
        return self.state == "closed" or (self.state == "half_open" and now >= self.trial_ends)

    def trip(self, now: float, backoff: Backoff, chance: float) -> Breaker:
        """Open on a miss; an open breaker stays as it is, so that a burst of misses is one."""
        if self.is_open:
            return self
        failures = 0 if self.state == "closed" else self.failures + 1
        return Breaker("open", failures, now + backoff.pause(failures, chance))

    def probe_failed(self, now: float, backoff: Backoff, chance: float) -> Breaker:
        """Stay open and wait longer."""
        failures = self.failures + 1
        return replace(self, failures=failures, probe_at=now + backoff.pause(failures, chance))

    def probe_succeeded(self) -> Breaker:
        """Let a batch try; only its answer shows that the sidecar keeps up, so the failures are not forgotten yet."""
        return Breaker("half_open", self.failures) if self.is_open else self

    def begin_trial(self, ends: float) -> Breaker:
        """Keep other batches away while one tries.

        Args:
            ends: the clock's reading at which the trial is over, whatever came of it.
        """
        return replace(self, trial_ends=ends) if self.state == "half_open" else self

    def end_trial(self) -> Breaker:
        """Let another batch try: this one showed nothing about the sidecar."""
        return self.begin_trial(0.0)

    def answered(self) -> Breaker:
        """Close: an answer was used."""
        return Breaker() if self.state == "half_open" else self
