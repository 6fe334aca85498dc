"""The lag that lies in an engine's queue: what waits, how long it waited, and how long it will take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from satwatch.probe.snapshot import EngineSnapshot, Total

# Of a request that runs, half is still to come: where in its output it is can't be seen.
SHARE_LEFT_RUNNING: Final = 0.5


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """An engine's queue; None is unknown.

    Attributes:
        running: requests being generated.
        waiting: requests that wait; of a paused engine at least so many.
        queue_seconds: mean time in the queue of the requests that left it between two looks.
        tokens_per_second: present throughput.
        drain_seconds: to finish what runs and waits.
    """

    running: int | None = None
    waiting: int | None = None
    queue_seconds: float | None = None
    tokens_per_second: float | None = None
    drain_seconds: float | None = None


def measure_queue(before: EngineSnapshot | None, last: EngineSnapshot) -> QueueFacts:
    """Measure the queue from the last look and the one before, both of one process.

    ``drain_seconds`` = (waiting + running / 2) * mean output length / throughput. It assumes that nothing new arrives,
    that outputs keep the length they had (of the requests finished between the looks, else of all so far), that
    running requests are half done, and that throughput stays: it falls once fewer requests than fit are left, so the
    last of a long tail takes longer.
    """
    running, waiting = last.load.running, _waiting(last)
    rate = _tokens_per_second(before, last)
    return QueueFacts(
        running, waiting, _queue_seconds(before, last), rate, _drain_seconds(before, last, running, waiting, rate)
    )


def _waiting(last: EngineSnapshot) -> int | None:
    """Count what waits; a paused engine's requests wait where its scheduler doesn't see them."""
    load = last.load
    if not last.is_paused or load.open_requests is None or load.running is None:
        return load.waiting
    return max(load.waiting or 0, load.open_requests - load.running)


def _queue_seconds(before: EngineSnapshot | None, last: EngineSnapshot) -> float | None:
    left = None if before is None else _difference(before.counters.queue, last.counters.queue)
    return None if left is None else left.sum / left.count


def _tokens_per_second(before: EngineSnapshot | None, last: EngineSnapshot) -> float | None:
    measured = last.load.tokens_per_second
    # A paused engine's own figure stands still at what it was.
    if measured is not None and math.isfinite(measured) and measured > 0 and not last.is_paused:
        return measured
    if before is None or last.at <= before.at:
        return None
    was, now = before.counters.generated_tokens, last.counters.generated_tokens
    if was is None or now is None or not 0 <= now - was < math.inf:
        return None
    # Tokens are counted when their request ends: while some run, none counted is not none made.
    if now == was and last.load.running != 0 and not last.is_paused:
        return None
    return (now - was) / (last.at - before.at)


def _drain_seconds(
    before: EngineSnapshot | None, last: EngineSnapshot, running: int | None, waiting: int | None, rate: float | None
) -> float | None:
    if running is None or waiting is None:
        return None
    if running == 0 and waiting == 0:
        return 0.0
    was = None if before is None else before.counters.output_lengths
    length = recent_mean(was, last.counters.output_lengths)
    if length is None or rate is None or rate <= 0:
        return None
    seconds = (waiting + SHARE_LEFT_RUNNING * running) * length / rate
    return seconds if math.isfinite(seconds) else None


def recent_mean(was: Total | None, now: Total | None) -> float | None:
    """Return the mean of what was added between two readings, or, where nothing was, of all so far.

    Canaries are counted too, as requests of no tokens: where only they finished, nothing did, and there is no mean.
    """
    added = _difference(was, now)
    of = added if added is not None and added.sum > 0 else _difference(Total(0.0, 0.0), now)
    return None if of is None or of.sum == 0 else of.sum / of.count


def _difference(was: Total | None, now: Total | None) -> Total | None:
    """Return what was added between two readings; None: nothing, or no figure that can be meant."""
    if was is None or now is None:
        return None
    added = Total(now.sum - was.sum, now.count - was.count)
    is_meant = 0 <= added.sum < math.inf and 0 < added.count < math.inf
    return added if is_meant else None
