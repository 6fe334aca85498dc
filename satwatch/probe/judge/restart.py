"""Whether an engine is still the process that it was."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

from satwatch.probe.judge.versions import version_of
from satwatch.probe.snapshot import Counters, EngineSnapshot

Counted: TypeAlias = tuple[float | None, ...]

# A sum over ranks falls when one of them is left out, of two to a half; a process that begins again, to next to none.
SMALL_SHARE: Final = 0.1
# Below, a tenth can't be told from one request more or less.
LEAST_COUNT: Final = 10.0


def count(was: Counted, counters: Counters) -> Counted:
    """Return each counter's latest figure: a process that has done nothing yet shows none, and must not hide it."""
    now = _counts(counters)
    pairs = zip(was or (None,) * len(now), now, strict=True)
    return tuple(before if after is None or not math.isfinite(after) else after for before, after in pairs)


def restart(
    first: EngineSnapshot | None,
    last: EngineSnapshot | None,
    counted: Counted,
    snapshot: EngineSnapshot,
    *,
    was_away: bool,
) -> str:
    """Say by what a look shows another process than the looks before; empty: it doesn't.

    A label that was a version and is none does. Counters that fell do not alone, for one rank may be missing from the
    page once: they do where all that had counted something to speak of fell to a tenth or less, where the engine was
    away, or where it is back at the label or the weights that it began with. Where an engine counts nothing and was
    started with a version, what is left is that it was away, and is back at the label and the weights both.

    Args:
        first: the first look at the process known so far.
        last: the last one that succeeded.
        counted: what :func:`count` kept of its counters.
        snapshot: the new one.
        was_away: whether looks failed in between.
    """
    if last is None or first is None:
        return ""
    was, now = last.version_label, snapshot.version_label
    if version_of(was) is not None and now is not None and version_of(now) is None:
        return f"its label fell from {was} back to {now[:40]}"
    has_label_back = now is not None and now != was and now == first.version_label
    path = snapshot.model_path
    has_path_back = path is not None and path != last.model_path and path == first.model_path
    left = _left(counted, _counts(snapshot.counters))
    told = [share for before, share in left if before >= LEAST_COUNT]
    if told and max(told) <= SMALL_SHARE:
        return "its counters fell to next to nothing"
    has_fallen = any(share < 1 for _, share in left)
    if has_fallen and was_away:
        return "it was away, and its counters fell"
    if has_fallen and (has_label_back or has_path_back):
        back = f"label {now[:40]}" if has_label_back and now is not None else "weights"
        return f"its counters fell, and it is back at the {back} that it began with"
    if was_away and now is not None and now == first.version_label and has_path_back and now != was:
        return f"it was away, and came back with the label {now[:40]} and the weights that it began with"
    return ""


def _left(was: Counted, now: Counted) -> list[tuple[float, float]]:
    """Return what each counter had counted, if anything, and what share of it is left."""
    pairs = zip(was, now, strict=False)
    return [
        (before, after / before)
        for before, after in pairs
        if before is not None and before > 0 and after is not None and math.isfinite(after)
    ]


def _counts(counters: Counters) -> Counted:
    totals = (counters.queue, counters.latency, counters.output_lengths, counters.seconds_per_token)
    return (
        counters.requests,
        counters.generated_tokens,
        counters.aborted,
        *(None if total is None else total.count for total in totals),
    )
