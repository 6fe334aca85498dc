"""What a look at an engine costs the process that looks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from satwatch.bench.children import child
from satwatch.bench.timing import Timing
from satwatch.errors import UnavailableError, required


@dataclass(frozen=True, slots=True)
class LookCost:
    """Looks at stand-ins over loopback, with the probe's HTTP engine in this process.

    Attributes:
        took: a look, from its first request to its snapshot, one after the other.
        cpu_seconds: of this process, for each of these.
        at_once: looks that were then begun together, as a probe begins them.
        at_once_seconds: how long one of these took; median.
    """

    took: Timing
    cpu_seconds: float
    at_once: int
    at_once_seconds: float


def measure_look(engines: int, *, quick: bool) -> LookCost:
    """Look at so many stand-ins from here; needs the extra probe.

    Raises:
        UnavailableError: they did not start, or one could not be looked at.
    """
    with child("satwatch.bench.stand_in", str(engines)) as stand_ins:
        return asyncio.run(_measure(stand_ins["engine"], repeats=1 if quick else 5))


async def _measure(addresses: Sequence[str], repeats: int) -> LookCost:
    from satwatch.probe.http.engine import HttpEngine  # it needs the extra probe

    engines = [HttpEngine(address) for address in addresses]
    try:
        # The first look asks for a page more, and does not count.
        for snapshot in await asyncio.gather(*(engine.look() for engine in engines)):
            if snapshot.problem is not None:
                raise UnavailableError(required("stand-in", snapshot.problem.message, "an answer"))
        cpu = time.process_time()
        alone = [(await engine.look()).took for _ in range(repeats) for engine in engines]
        cpu = time.process_time() - cpu
        at_once = [
            snapshot.took
            for _ in range(repeats)
            for snapshot in await asyncio.gather(*(engine.look() for engine in engines))
        ]
    finally:
        for engine in engines:
            await engine.close()
    return LookCost(Timing.of(alone), cpu / len(alone), len(engines), float(np.median(at_once)))
