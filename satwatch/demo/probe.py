"""The probe beside the rollout engine, in its process: looks, canaries, the judge, and reports to the sidecar."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from satwatch.client import EngineReporter
from satwatch.probe.judge import EngineMemory, JudgeConfig, conclude, observe, observe_canary, wants_canary
from satwatch.probe.judge.pace import CANARY_GAP_SECONDS
from satwatch.probe.snapshot import CanaryAnswer, Counters, EngineSnapshot, Load
from satwatch.types import Canary, EngineStatus, TrainerFacts

ENGINE: Final = "rollout"
# The learner's scores, and so the only versions that an answer can be compared at.
CANARY_VERSIONS: Final = 8
# What the sidecar is told to expect; rounds follow the versions and come much more often, unless the learner is slow.
PERIOD_SECONDS: Final = 5.0
TIMEOUT_SECONDS: Final = 1.0

Exchange = Callable[[tuple[EngineStatus, ...]], TrainerFacts]


@dataclass(frozen=True, slots=True)
class Generated:
    """What the engine has generated since it began.

    Attributes:
        requests: responses.
        tokens: their tokens.
        seconds: spent on them.
    """

    requests: int
    tokens: int
    seconds: float


class RolloutProbe:
    """Watches one engine from within its process, between two batches.

    Args:
        exchange: takes the status and returns what the trainer said.
        score: has the engine score a canary.
        clock: seconds, never set back.
        wall: Unix time in seconds.
    """

    def __init__(
        self,
        exchange: Exchange,
        score: Callable[[Canary], tuple[float, ...]],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._exchange, self._score = exchange, score
        self._clock, self._wall = clock, wall
        self._memory, self._facts = EngineMemory.new(ENGINE), TrainerFacts()
        self._config = JudgeConfig()
        self._told: tuple[EngineStatus, ...] = ()
        self._round_at = -math.inf

    @property
    def is_due(self) -> bool:
        """Whether a round may have a canary scored: without one, weights that were called wrong would be unjudged."""
        return self._clock() >= self._round_at + CANARY_GAP_SECONDS

    @property
    def status(self) -> EngineStatus:
        """What is known of the engine."""
        now = self._clock()
        return conclude(now, {ENGINE: self._memory}, self._facts, self._config, wall=self._wall() - now)[0]

    def round(self, label: int, generated: Generated) -> EngineStatus:
        """Look, have the canary scored where it is due, judge and report.

        Args:
            label: the version that the engine names.
            generated: what it has done so far.
        """
        self._look(label, generated)
        canary = self._facts.canary
        if canary is not None and wants_canary(self._clock(), self._memory, canary, self._facts, self._config):
            self._take_scores(canary, label)
        self._round_at = self._clock()
        # The trainer's scores of this version come with the answer: nothing new is told before it is judged by them.
        self._facts = self._exchange(self._told)
        self._told = (self.status,)
        self._facts = self._exchange(self._told)
        return self._told[0]

    def leave(self) -> None:
        """Take the engine back: nobody looks at it any more."""
        self._exchange(())

    def _look(self, label: int, generated: Generated) -> None:
        rate = generated.tokens / generated.seconds if generated.seconds else None
        snapshot = EngineSnapshot(
            ENGINE,
            self._clock(),
            version_label=str(label),
            is_paused=False,
            load=Load(running=0, waiting=0, open_requests=0, tokens_per_second=rate),
            counters=Counters(requests=float(generated.requests), generated_tokens=float(generated.tokens)),
        )
        self._memory = observe(self._memory, snapshot, self._facts)

    def _take_scores(self, canary: Canary, label: int) -> None:
        begun = self._clock()
        logprobs = self._score(canary)
        now = self._clock()
        answer = CanaryAnswer(now, str(label), logprobs, now - begun)
        self._memory = observe_canary(self._memory, canary, answer, self._facts)


def engine_reporter(address: str, run: str) -> EngineReporter:
    """Return what reports the demo's engine to a sidecar."""
    return EngineReporter(address, probe="demo", period_seconds=PERIOD_SECONDS, run=run, timeout=TIMEOUT_SECONDS)
