"""For trainers that add up what their microbatches report: each microbatch gives its part of the step's metrics.

Such a trainer divides by the tokens of the whole step beforehand, so a share of the microbatch has to become a share of
the step, and what is no sum of parts (a largest value, a quantile) stays out.
"""

from __future__ import annotations

from typing import Any, Final

from satwatch.hooks.core.attachment import Attachment
from satwatch.hooks.core.metrics import PREFIX

# Means and shares over tokens: what they add up to is divided by the step's tokens.
SHARES: Final = (
    "gate_rate",
    "clip_radius_low_mean",
    "clip_radius_high_mean",
    "log_ratio_mean",
    "log_ratio_abs_mean",
    "breaker_open",
    "decoupled",
)
# What is added up as it is: counts of the microbatch, and how much a running count has grown.
COUNTS: Final = ("tokens", "nan_tokens", "inf_tokens", "hook_calls_per_step", "hook_faults", "client_fallbacks")
_RUNNING: Final = ("hook_faults", "client_fallbacks")


class SummedAttachment(Attachment):
    """An attachment whose metrics are added up over the microbatches and ranks of a step.

    >>> import torch
    >>> from satwatch.client import FakeClient
    >>> attachment = SummedAttachment("example", FakeClient())
    >>> total = {}
    >>> for d in (torch.full((30,), 0.1), torch.full((10,), -0.5)):
    ...     _ = attachment.ask(d, torch.zeros_like(d))
    ...     for name, part in attachment.parts(total=40).items():
    ...         total[name] = total.get(name, 0.0) + part
    >>> round(total["satwatch/log_ratio_abs_mean"], 6), total["satwatch/tokens"], total["satwatch/hook_calls_per_step"]
    (0.2, 40.0, 2.0)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Attachment's
        """Attach, as :class:`satwatch.hooks.Attachment` does."""
        super().__init__(*args, **kwargs)
        self._running: dict[str, float] = {}

    def parts(self, total: float) -> dict[str, float]:
        """Return what the microbatch since the last call adds to its step's ``satwatch/...`` metrics.

        A mean of the log-ratio counts a token that is not finite as one of its microbatch's mean.

        Args:
            total: the tokens of everything that is added up, as the trainer counts them.
        """
        found = {name.removeprefix(PREFIX): value for name, value in self.drain().items()}
        tokens = found.get("tokens", 0.0)
        found["hook_calls_per_step"] = 1.0
        # A count that can't be read now is made up for by the next that can.
        for name in set(_RUNNING) & set(found):
            before, self._running[name] = self._running.get(name, 0.0), found[name]
            found[name] -= before
        out = {PREFIX + name: found[name] for name in COUNTS if name in found}
        if total > 0:
            out |= {PREFIX + name: found[name] * tokens / total for name in SHARES if name in found}
        return out
