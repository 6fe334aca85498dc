"""The version lag to expect of one engine's responses, from what it counted and when the trainer published."""

from __future__ import annotations

import math

from satwatch.probe.judge.forecast import forecast_from_engines
from satwatch.probe.judge.queue import recent_mean
from satwatch.probe.snapshot import Counters, EngineSnapshot
from satwatch.types import TrainerFacts


def expect_lag(before: EngineSnapshot | None, last: EngineSnapshot, facts: TrainerFacts) -> float | None:
    """Return the versions that a response's tokens are expected to gain while it is generated, mean over tokens.

    From the requests that finished between the looks, or, where none did, from all so far. Engines count no spread of
    lengths: a standard deviation as large as the mean is assumed.

    Args:
        before: the look before the last, of the same process; None: there was none.
        last: the last look.
        facts: what the trainer has said; one version published alone tells no pace.

    Returns:
        N_PQS, or None: the engine counts no lengths or no speed, it has finished nothing, or the pace isn't known.
    """
    was, now = Counters() if before is None else before.counters, last.counters
    expected = forecast_from_engines(
        requests_running=last.load.running,
        seconds_per_token=recent_mean(was.seconds_per_token, now.seconds_per_token),
        length_mean=recent_mean(was.output_lengths, now.output_lengths),
        published_at=[published.at for published in facts.published],
    ).version_lag_generation
    return expected if expected is not None and math.isfinite(expected) else None
