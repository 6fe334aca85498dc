"""How a run's batches come: when the last one did, and the longest time between two of its recent past. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# The past is kept in slots of a minute or more, and so reaches back an hour at least, however fast batches come: the
# pause between two steps is not pushed out by the microbatches of one.
SLOT_SECONDS: Final = 60.0
SLOTS: Final = 64
# Longer than this is no pace but a pause: an evaluation, or a night without engines.
PAUSE_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The batches of one life of a run, in bounded memory.

    Attributes:
        last_at: when the last one came, Unix time in seconds; None before the first.
        first_step: the newest step when the first one came.
        has_gone_on: another step has come since.
        slots: when each began, and the longest time between two batches that ended in it, seconds, oldest first.

    >>> arrivals = Arrivals()
    >>> for at, step in ((0.0, 1), (2.0, 1), (90.0, 2), (92.0, 2)):
    ...     arrivals = arrivals.hear(at, step)
    >>> arrivals.longest_gap
    88.0
    """

    last_at: float | None = None
    first_step: int | None = None
    has_gone_on: bool = False
    slots: tuple[tuple[float, float], ...] = ()

    @property
    def longest_gap(self) -> float | None:
        """The longest time between two batches, seconds; None in the first step, which has not seen all of its pace."""
        return max(longest for _, longest in self.slots) if self.has_gone_on and self.slots else None

    def hear(self, at: float, step: int | None) -> Arrivals:
        """Return the arrivals with one more batch.

        Args:
            at: when it came, Unix time in seconds.
            step: the newest step by then.
        """
        first = step if self.first_step is None else self.first_step
        slots = self.slots if self.last_at is None else _with(self.slots, at, max(0.0, at - self.last_at))
        return Arrivals(at, first, self.has_gone_on or step != first, slots)

    def after(self, past: Arrivals) -> Arrivals:
        """Return these arrivals with the pace of earlier ones; the time between both is of neither."""
        has_gone_on = self.has_gone_on or past.has_gone_on
        return Arrivals(self.last_at, self.first_step, has_gone_on, (*past.slots, *self.slots)[-SLOTS:])


def _with(slots: tuple[tuple[float, float], ...], at: float, gap: float) -> tuple[tuple[float, float], ...]:
    if gap > PAUSE_SECONDS:
        return slots
    began, longest = slots[-1] if slots else (at, gap)
    if slots and began <= at < began + SLOT_SECONDS:
        return slots if gap <= longest else (*slots[:-1], (began, gap))
    return (*slots, (at, gap))[-SLOTS:]
