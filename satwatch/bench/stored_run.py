"""A run that is stored: steps as a trainer's would be, made for the benchmark and written by the real recorder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from satwatch.bench.workload import SEED
from satwatch.errors import UnavailableError, required
from satwatch.sat import (
    StepTotals,
    VersionLag,
    lag_0_tokens,
    lag_by_length,
    score_batch,
    split_deltas,
    summarize,
    version_lag,
)
from satwatch.types import EngineRecord, EngineStatus, LayerRouting, Routing, Rule, Total, VersionRun

if TYPE_CHECKING:
    from satwatch.history import Recorder, Store

RUN: Final = "bench"
RESPONSES: Final = 16
LAYERS: Final = 16
STEP_SECONDS: Final = 30.0
ENGINES: Final = ("engine-0", "engine-1")
# Unix time of the first step; any would do.
BEGAN: Final = 1_700_000_000.0
# So many different steps, in turn: to draw each one anew would take longer than to store it.
_DIFFERENT: Final = 32
_TOP_K: Final = 8
_FLUSH_STEPS: Final = 500
_NEWS_STEPS: Final = 2500
_STORE_SECONDS: Final = 300.0
_CLOSE_SECONDS: Final = 10.0


@contextmanager
def stored_run(
    steps: int, *, tokens: int, on_stored: Callable[[int], None] = lambda stored: None
) -> Iterator[tuple[Store, int]]:
    """Store a run of so many steps, with its versions and engines; yield the store and its size in bytes.

    Args:
        steps: steps of the run.
        tokens: of each step, more than ``RESPONSES``; what is stored of a step hardly grows with them.
        on_stored: told now and then how many steps are.

    Raises:
        UnavailableError: it could not be written, or not within five minutes.
    """
    from satwatch.history import Recorder, open_store  # they need the extra server

    with TemporaryDirectory() as folder:
        file = Path(folder, "history.sqlite")
        writable = open_store(str(file))
        recorder = Recorder(writable)
        try:
            _write(recorder, steps, tokens, on_stored)
        finally:
            recorder.close(_CLOSE_SECONDS)
            writable.close()
        size = sum(part.stat().st_size for part in Path(folder).iterdir())
        store = open_store(str(file), read_only=True)
        try:
            yield store, size
        finally:
            store.close()


def _write(recorder: Recorder, steps: int, tokens: int, on_stored: Callable[[int], None]) -> None:
    from satwatch.history import EngineSeen, LifeOpened, StepSeen, VersionSeen

    ends = time.monotonic() + _STORE_SECONDS
    recorder.put(LifeOpened(RUN, RUN, "", Rule(), 1, BEGAN))
    different = [step_totals(number, tokens) for number in range(min(_DIFFERENT, steps))]
    for step in range(steps):
        at = BEGAN + step * STEP_SECONDS
        totals = _moved(different[step % len(different)], step)
        recorder.put(StepSeen(RUN, step, totals, at, step, ranks=1, is_closed=True))
        recorder.put(VersionSeen(RUN, step, at, step))
        for engine in ENGINES:
            recorder.put(EngineSeen(EngineRecord(at, _status(engine, step), RUN)))
        if (step + 1) % _FLUSH_STEPS == 0 or step + 1 == steps:
            _flush(recorder, ends - time.monotonic())
            if (step + 1) % _NEWS_STEPS == 0 and step + 1 < steps:
                on_stored(step + 1)


def _flush(recorder: Recorder, seconds: float) -> None:
    done = recorder.flush(max(0.0, seconds))
    stats = recorder.stats()
    if not done or any(stats.dropped.values()):
        came = f"{sum(stats.dropped.values())} records dropped ({stats.last_error or 'no error'})"
        raise UnavailableError(required("history", came, "a run that is stored whole"))


def step_totals(number: int, tokens: int) -> StepTotals:
    """Sum up a step of policy version 0, whose tokens are of versions 0 to -3: see :func:`_moved`."""
    rng = np.random.default_rng((SEED, number))
    lengths = 1 + rng.multinomial(tokens - RESPONSES, rng.dirichlet(np.full(RESPONSES, 2.0)))
    n = int(lengths.sum())
    impl = rng.standard_t(3, n) * 0.003
    d = (impl + rng.standard_t(3, n) * 0.005).astype(np.float32)
    behavior = -rng.exponential(0.5, n)
    # Each response began a version before it ended, and waited for up to two.
    runs = []
    for length, waited in zip(lengths.tolist(), rng.integers(0, 3, RESPONSES).tolist(), strict=True):
        runs += [VersionRun(length // 2, -waited - 1), VersionRun(length - length // 2, -waited)]
    scores = score_batch(torch.from_numpy(d), Rule(), None, None)
    return StepTotals(
        summary=summarize(scores, scores.reference(), torch.from_numpy(rng.normal(size=n))),
        lag=version_lag(0, runs, lengths.tolist()),
        routing=_routing(rng, n),
        deltas=split_deltas(d, behavior, behavior + impl, lag_0_tokens(0, runs)),
        lengths=lag_by_length(0, runs, lengths.tolist()),
        measures={"reward": Total(float(rng.random(RESPONSES).sum()), RESPONSES)},
        batches=1,
    )


def _routing(rng: np.random.Generator, tokens: int) -> Routing:
    flipped = rng.binomial(tokens, 0.05, LAYERS).tolist()
    layers = tuple(LayerRouting(layer, tokens, count, count, _TOP_K) for layer, count in enumerate(flipped))
    return Routing(layers, tokens, min(tokens, sum(flipped)))


def _moved(totals: StepTotals, step: int) -> StepTotals:
    """Return the totals as of another step: the lags are the same, the versions are its own."""
    lag = totals.lag
    versions = {version + step: count for version, count in lag.versions.items()}
    kept = VersionLag(lag.tokens, lag.lags, lag.generation_lags, lag.queue_lags, lag.negative_tokens, versions)
    return replace(totals, lag=kept)


def _status(engine: str, step: int) -> EngineStatus:
    return EngineStatus(
        engine=engine,
        state="serving",
        kind="sglang",
        version_served=step,
        version_published=step,
        version_lag=0,
        weight_age_seconds=STEP_SECONDS / 2,
        canary_log_ratio_abs_mean=0.003,
        requests_running=8,
        requests_waiting=2,
    )
