"""A stage for the judge: engines, a trainer and a clock, told in short sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from satwatch.probe.judge import (
    EngineMemory,
    JudgeConfig,
    conclude,
    observe,
    observe_canary,
    observe_canary_failure,
    observe_checksum,
    observe_response,
)
from satwatch.probe.judge.pace import wants_canary, wants_checksum
from satwatch.probe.snapshot import CanaryAnswer, Counters, EngineSnapshot, Load, Problem
from satwatch.types import (
    Canary,
    CanaryScores,
    EngineStatus,
    PackedFloats,
    PublishedVersion,
    TrainerFacts,
    default_canary,
)

CANARY = default_canary()
NOTHING_COUNTED = Counters()
IDLE = Load(running=0, waiting=0)
BUSY = Load(running=8, waiting=3)


def packed(values: Sequence[float]) -> PackedFloats:
    return PackedFloats("float64", np.asarray(values, dtype="<f8").tobytes())


def logprobs(seed: int, size: int = CANARY.scored) -> tuple[float, ...]:
    """Make log-probs as a random model has them."""
    return tuple((-np.abs(np.random.default_rng(seed).normal(6.0, 2.0, size))).tolist())


def moved(values: Sequence[float], by: float, seed: int = 99) -> tuple[float, ...]:
    """Move log-probs by independent normal amounts."""
    return tuple((np.asarray(values) + np.random.default_rng(seed).normal(0.0, by, len(values))).tolist())


class Scene:
    """Everything observed so far; times are the probe's clock."""

    def __init__(self, *engines: str, config: JudgeConfig | None = None) -> None:
        self.memories = {name: EngineMemory.new(name) for name in engines or ("a",)}
        self.facts = TrainerFacts()
        self.config = config or JudgeConfig()
        self.now = 0.0

    def publish(self, version: int, at: float) -> None:
        self.facts = replace(self.facts, published=(*self.facts.published, PublishedVersion(version, at)))

    def trainer_scores(
        self, version: int, values: Sequence[float], canary: Canary = CANARY, temperature: float = 1.0, top_p: float = 1
    ) -> None:
        scores = CanaryScores(canary, version, packed(values), temperature, top_p)
        self.facts = replace(self.facts, canaries=(*self.facts.canaries, scores))

    def look(
        self,
        at: float,
        label: str | None = None,
        engine: str = "a",
        *,
        took: float = 0.0,
        load: Load = IDLE,
        counters: Counters = NOTHING_COUNTED,
        is_paused: bool | None = False,
        may_sleep: bool = False,
        model_path: str | None = None,
    ) -> None:
        snapshot = EngineSnapshot(
            engine,
            at,
            took,
            kind="sglang",
            release="0.5.23",
            version_label=label,
            model_path=model_path,
            is_paused=is_paused,
            may_sleep=may_sleep,
            load=load,
            counters=counters,
        )
        self._observe(snapshot)

    def fail(self, at: float, engine: str = "a", message: str = "nobody listens") -> None:
        self._observe(EngineSnapshot(engine, at, 2.0, Problem("unreachable", message)))

    def _observe(self, snapshot: EngineSnapshot) -> None:
        self.now = max(self.now, snapshot.at)
        self.memories[snapshot.engine] = observe(self.memories[snapshot.engine], snapshot, self.facts)

    def answer(
        self,
        at: float,
        label: str | None,
        values: Sequence[float] = (),
        engine: str = "a",
        took: float = 0.0,
        canary: Canary = CANARY,
    ) -> None:
        self.now = max(self.now, at)
        values = values or logprobs(0)
        answer = CanaryAnswer(at, label, tuple(values), took)
        self.memories[engine] = observe_canary(self.memories[engine], canary, answer, self.facts)

    def canary_fails(self, at: float, engine: str = "a") -> None:
        self.memories[engine] = observe_canary_failure(self.memories[engine], at, "no answer within 10 s")

    def checksum(self, at: float, value: str | None, engine: str = "a", took: float = 0.0) -> None:
        self.memories[engine] = observe_checksum(self.memories[engine], at, value, took)

    def response(self, at: float, meta_info: dict[str, object], engine: str = "a") -> None:
        self.memories[engine] = observe_response(self.memories[engine], at, meta_info)

    def statuses(self, now: float | None = None) -> dict[str, EngineStatus]:
        now = self.now if now is None else now
        found = conclude(now, self.memories, self.facts, self.config, wall=1000.0)
        return {status.engine: status for status in found}

    def status(self, engine: str = "a", now: float | None = None) -> EngineStatus:
        return self.statuses(now)[engine]

    def kinds(self, engine: str = "a", now: float | None = None) -> set[str]:
        return {finding.kind for finding in self.status(engine, now).findings}

    def message(self, kind: str, engine: str = "a") -> str:
        return next(finding.message for finding in self.status(engine).findings if finding.kind == kind)

    def wants(self, now: float, engine: str = "a", canary: Canary = CANARY) -> bool:
        return wants_canary(now, self.memories[engine], canary, self.facts, self.config)

    def wants_sum(self, now: float, engine: str = "a") -> bool:
        return wants_checksum(now, self.memories[engine], self.config)
