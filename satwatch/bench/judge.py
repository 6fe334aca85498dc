"""What the probe's judge costs: a conclusion about a fleet, from what was remembered of each engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from satwatch.bench.timing import Timing
from satwatch.bench.workload import SEED
from satwatch.probe.judge import EngineMemory, JudgeConfig, conclude, observe, observe_canary
from satwatch.probe.snapshot import CanaryAnswer, EngineSnapshot, Load
from satwatch.types import CanaryScores, PackedFloats, PublishedVersion, TrainerFacts, default_canary

ENGINES: Final = 256
VERSIONS: Final = 32
# Between two versions, and between trainer and engine at one version, nats.
_UPDATE: Final = 0.3
_MISMATCH: Final = 0.01
# An engine in so many is a version behind.
_LAGGING: Final = 8


@dataclass(frozen=True, slots=True)
class JudgeCost:
    """A conclusion about all engines.

    Attributes:
        engines: how many.
        versions: that the trainer has published and scored.
        first: when the trainer's scores are new.
        repeated: when they were told again, as a sidecar tells them in every round.
        lagging: engines found to lag, the check that it was a judgement.
    """

    engines: int
    versions: int
    first: Timing
    repeated: Timing
    lagging: int


def measure_judge(*, quick: bool, engines: int = ENGINES, versions: int = VERSIONS) -> JudgeCost:
    """Measure it; needs numpy alone."""
    rng = np.random.default_rng(SEED)
    steps = rng.normal(0.0, _UPDATE, (versions, default_canary().scored))
    scores = np.cumsum(steps, axis=0) - 6.0
    told = tell(scores)
    memories = {f"engine-{i}": _remember(f"engine-{i}", i, scores, told) for i in range(engines)}
    config, now = JudgeConfig(), 100.0
    first: list[float] = []
    repeated: list[float] = []
    lagging = 0
    for _ in range(2 if quick else 10):
        # Other scores of the oldest version: all has to be read and weighed again.
        scores[0] += rng.normal(0.0, _MISMATCH, scores.shape[1])
        for seconds in (first, repeated):
            facts = tell(scores)
            began = time.perf_counter()
            statuses = conclude(now, memories, facts, config)
            seconds.append(time.perf_counter() - began)
            lagging = sum(status.state == "lagging" for status in statuses)
    return JudgeCost(engines, versions, Timing.of(first), Timing.of(repeated), lagging)


def tell(scores: npt.NDArray[np.float64]) -> TrainerFacts:
    """Return a trainer's facts: a version a row of log-probs, a second apart, as new values every time."""
    canary = default_canary()
    return TrainerFacts(
        run="bench",
        published=tuple(PublishedVersion(version, float(version)) for version in range(len(scores))),
        canaries=tuple(CanaryScores(canary, version, _packed(row)) for version, row in enumerate(scores)),
    )


def _packed(row: Sequence[float]) -> PackedFloats:
    return PackedFloats("float64", np.asarray(row, dtype="<f8").tobytes())


def _remember(name: str, number: int, scores: npt.NDArray[np.float64], facts: TrainerFacts) -> EngineMemory:
    """Return the memory of an engine that was looked at twice and scored the canary between."""
    version = len(scores) - (2 if number % _LAGGING == 0 and len(scores) > 1 else 1)
    noise = np.random.default_rng(number).normal(0.0, _MISMATCH, scores.shape[1])
    memory, load = EngineMemory.new(name), Load(running=8, waiting=2, tokens_per_second=900.0, total_tokens=4096)
    for at in (90.0, 95.0):
        snapshot = EngineSnapshot(
            name, at, 0.005, kind="sglang", release="0.5.23", version_label=str(version), is_paused=False, load=load
        )
        memory = observe(memory, snapshot, facts)
        if at < 95.0:
            answer = CanaryAnswer(at + 1.0, str(version), tuple((scores[version] + noise).tolist()), took=0.05)
            memory = observe_canary(memory, default_canary(), answer, facts)
    return memory
