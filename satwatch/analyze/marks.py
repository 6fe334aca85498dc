"""The marks that people hold diagnostics against. They're customs of the field, not verdicts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Band: TypeAlias = Literal["usual", "watch", "suspect"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Two limits of one diagnostic.

    Attributes:
        watch: from here on the value is worth watching.
        suspect: from here on something is usually wrong.
        note: the custom in words.

    ``suspect`` below ``watch`` means that small values are the bad ones.

    >>> Mark(0.3, 0.1, "").band(0.2), Mark(0.005, 0.01, "").band(0.004)
    ('watch', 'usual')
    """

    watch: float
    suspect: float
    note: str

    def band(self, value: float) -> Band:
        """Place a value: usual, watch or suspect."""
        sign = math.copysign(1.0, self.suspect - self.watch)
        if sign * value > sign * self.suspect:
            return "suspect"
        return "watch" if sign * value > sign * self.watch else "usual"


MARKS: Final = {
    "nan_tokens": Mark(0, 0, "none"),
    "inf_tokens": Mark(0, 0, "none"),
    "extreme_tokens": Mark(0, 0, "none"),
    "log_ratio_abs_mean": Mark(0.005, 0.01, "lag 0: < 0.005, fault > 0.01"),
    "kl_k3": Mark(1e-3, 1e-2, "< 0.001; too far > 0.01"),
    "ess_ratio": Mark(0.3, 0.1, "> 0.3; error < 0.1"),
    "version_lag_max": Mark(4, 8, "trainers allow 1, 4 or 8"),
    "negative_lag_tokens": Mark(0, 0, "none"),
    "clip_fraction_ppo": Mark(0.2, 0.5, "< 0.2; broken > 0.5"),
    "clip_fraction": Mark(0.2, 0.5, "< 0.2; broken > 0.5"),
}
