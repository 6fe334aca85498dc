"""The marks that people hold diagnostics against. They're customs of the field, not verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Band: TypeAlias = Literal["usual", "watch", "suspect"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Two limits of one diagnostic.

    Attributes:
        watch: beyond it the value is worth watching.
        suspect: beyond it something is usually wrong.
        synchronous: the custom is of version lag 0; where tokens are known to lag it says nothing.

    ``suspect`` below ``watch`` means that small values are the bad ones.

    >>> Mark(0.3, 0.1).band(0.2), Mark(0.005, 0.01).band(0.004)
    ('watch', 'usual')
    >>> Mark(0.3, 0.1).usual_range, Mark(0.3, 0.1).watch_range, Mark(0.3, 0.1).suspect_range
    ('from 0.3', 'from 0.1', 'below 0.1')
    >>> Mark(0, 0).usual_range, Mark(0, 0).watch_range, Mark(0, 0).suspect_range
    ('0', '', 'above 0')
    """

    watch: float
    suspect: float
    synchronous: bool = False

    def band(self, value: float) -> Band:
        """Place a value: usual, watch or suspect."""
        sign = -1.0 if self._low_is_bad else 1.0
        if sign * value > sign * self.suspect:
            return "suspect"
        return "watch" if sign * value > sign * self.watch else "usual"

    @property
    def usual_range(self) -> str:
        """The usual values, in words."""
        return self._reaching(self.watch) if self.watch else "0"

    @property
    def watch_range(self) -> str:
        """The values to watch beyond the usual ones, in words; empty: there are none."""
        return self._reaching(self.suspect) if self.suspect != self.watch else ""

    @property
    def suspect_range(self) -> str:
        """The suspect values, in words."""
        return f"{'below' if self._low_is_bad else 'above'} {self.suspect:g}"

    @property
    def _low_is_bad(self) -> bool:
        return self.suspect < self.watch

    def _reaching(self, limit: float) -> str:
        return f"{'from' if self._low_is_bad else 'to'} {limit:g}"


MARKS: Final = {
    "nan_tokens": Mark(0, 0),
    "inf_tokens": Mark(0, 0),
    "extreme_tokens": Mark(0, 0),
    "log_ratio_abs_mean": Mark(0.005, 0.01, synchronous=True),
    "kl_k3": Mark(1e-3, 1e-2),
    "ess_ratio": Mark(0.3, 0.1),
    "version_lag_max": Mark(4, 8),
    "negative_lag_tokens": Mark(0, 0),
    "clip_fraction_ppo": Mark(0.2, 0.5),
    "clip_fraction": Mark(0.2, 0.5),
}


def marks_of(diagnostics: Mapping[str, float]) -> dict[str, Mark]:
    """Return the marks that apply to these diagnostics, by name: one of version lag 0 does not to a known other lag."""
    lags = bool(diagnostics.get("version_lag_max", 0))
    return {name: mark for name, mark in MARKS.items() if name in diagnostics and not (mark.synchronous and lags)}
