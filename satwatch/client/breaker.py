"""The circuit breaker, as values: closed, the sidecar is asked; open, it is left alone until a probe succeeds.

Pure: a state, the clock's reading and a random number in, a state out. It owns no thread, lock or socket.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

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
        """Return the seconds to wait after so many failed probes.

        Args:
            failures: failed probes since the breaker opened.
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
        is_open: the sidecar is left alone.
        failures: failed probes since it opened.
        probe_at: the clock's reading at which the next probe is due; without meaning while closed.
    """

    is_open: bool = False
    failures: int = 0
    probe_at: float = 0.0

    def trip(self, now: float, backoff: Backoff, chance: float) -> Breaker:
        """Open on a miss; an open breaker stays as it is, so that a burst of misses is one."""
        if self.is_open:
            return self
        return Breaker(is_open=True, probe_at=now + backoff.pause(0, chance))

    def probe_failed(self, now: float, backoff: Backoff, chance: float) -> Breaker:
        """Stay open and wait longer."""
        failures = self.failures + 1
        return replace(self, failures=failures, probe_at=now + backoff.pause(failures, chance))

    def reset(self) -> Breaker:
        """Close: a probe succeeded."""
        return Breaker()
