"""The rollout engine: it samples with weights that are ``lag`` versions old, and has what its fault makes of it.

The engine generates batch t with version max(0, t - lag) as soon as the learner has published that version. What it
generates depends on the seed, the lag and the fault alone, whatever the timing.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np
import torch
from numpy.typing import NDArray

from satwatch.demo.canary import canary_logprobs
from satwatch.demo.config import DemoConfig
from satwatch.demo.faults import spoil, temperature, version_held, version_named
from satwatch.demo.policy import Policy, initial_policy, sample
from satwatch.demo.probe import CANARY_VERSIONS, Generated, RolloutProbe, engine_reporter
from satwatch.demo.task import TASKS
from satwatch.demo.weights import WeightStore
from satwatch.types import Canary


@dataclass(frozen=True, slots=True)
class RolloutBatch:
    """Verified responses, as they travel from the engine: B = prompts * samples, a prompt's samples together.

    Attributes:
        number: the batch's number, from 0.
        tokens: prompts and responses, uint8, shape (B, prompt + response).
        behavior_logprob: log mu of the response tokens, nats, float32, shape (B, response); NaN only by a fault.
        reward: float32 in [0, 1], shape (B,).
        behavior_version: the policy version that each response names, int32, shape (B,).
    """

    number: int
    tokens: NDArray[np.uint8]
    behavior_logprob: NDArray[np.float32]
    reward: NDArray[np.float32]
    behavior_version: NDArray[np.int32]


def generate(config: DemoConfig, policy: Policy, number: int) -> RolloutBatch:
    """Sample and verify one batch.

    Args:
        config: the run.
        policy: the weights of the version that :func:`satwatch.demo.faults.version_held` says.
        number: the batch's number; with the seed it fixes prompts and randomness.

    Returns:
        The batch.
    """
    task = TASKS[config.task]
    generator = torch.Generator().manual_seed(_batch_seed(config.seed, number))
    prompts = task.draw_prompts(config.prompts, generator)
    heat = temperature(config, number)
    tokens, logprob = sample(policy, prompts, config.samples, task.response_length, generator, heat)
    reward = task.reward(tokens[:, : task.prompt_length], tokens[:, task.prompt_length :])
    version = np.full(len(tokens), version_named(config, number), dtype=np.int32)
    behavior_logprob = spoil(config, number, logprob.numpy())
    return RolloutBatch(number, tokens.to(torch.uint8).numpy(), behavior_logprob, reward.numpy(), version)


def _batch_seed(seed: int, number: int) -> int:
    # The generator keeps 32 bits of a seed: mixing keeps batches and runs apart, packing the two would not.
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


@dataclass(frozen=True, slots=True)
class SidecarFound:
    """Where the engine is to be reported from now on.

    Attributes:
        address: the sidecar's.
        run: the run that the engine serves.
    """

    address: str
    run: str


class RolloutEngine:
    """The engine: weights, the batches generated with them, and, once a sidecar is known, a probe.

    Args:
        config: the run.
        store: where published weights lie.
    """

    def __init__(self, config: DemoConfig, store: WeightStore) -> None:
        self._config, self._store = config, store
        self._policy = initial_policy(TASKS[config.task], config.seed)
        self._published = self._held = -1
        self._probe: RolloutProbe | None = None
        self._generated = Generated(0, 0, 0.0)
        self._number, self._probed = 0, -1

    def hear(self, news: int | SidecarFound) -> None:
        """Take in a published version, or where the sidecar is."""
        if isinstance(news, int):
            self._published = news
        else:
            self._probe = RolloutProbe(engine_reporter(news.address, news.run), self._score)

    def is_ready(self, number: int) -> bool:
        """Tell whether the version that is due for a batch has been published."""
        return self._published >= self._config.behavior_version(number)

    def generate(self, number: int) -> RolloutBatch:
        """Take the weights that the batch is generated with, and generate it."""
        held = version_held(self._config, number)
        if held != self._held:
            self._store.load(held, self._policy)
            self._held = held
        began = time.perf_counter()
        batch, self._number = generate(self._config, self._policy, number), number
        before = self._generated
        self._generated = Generated(
            before.requests + len(batch.tokens),
            before.tokens + batch.behavior_logprob.size,
            before.seconds + time.perf_counter() - began,
        )
        return batch

    def probe(self) -> None:
        """Have the probe, if there is one, make a round each time that a version is due that the learner has scored."""
        due = self._config.behavior_version(self._number)
        if self._probe is None or due % CANARY_VERSIONS or due == self._probed or not self._probe.is_due:
            return
        self._probe.round(version_named(self._config, self._number), self._generated)
        self._probed = due

    def leave(self) -> None:
        """Take the engine back from the sidecar."""
        if self._probe is not None:
            self._probe.leave()

    def _score(self, canary: Canary) -> tuple[float, ...]:
        scores = canary_logprobs(self._policy, canary, temperature(self._config, self._number))
        return tuple(scores.flatten().tolist())


def serve(config: DemoConfig, store: WeightStore, news: Connection, batches: Connection) -> None:
    """Generate every batch of the run, then wait to be let go; the body of the rollout process.

    Args:
        config: the run.
        store: where published weights lie.
        news: the numbers of published versions arrive here, and where the sidecar is; its end means that the learner
            is gone.
        batches: the batches leave here.
    """
    torch.set_num_threads(1)
    # Whether the sidecar is there is for the learner to say: its display is on the same terminal.
    logging.getLogger("satwatch").addHandler(logging.NullHandler())
    engine = RolloutEngine(config, store)
    try:
        for number in range(config.steps):
            while news.poll() or not engine.is_ready(number):
                engine.hear(news.recv())
            batches.send(engine.generate(number))
            engine.probe()
        engine.leave()
        while True:
            news.recv()
    except (EOFError, ConnectionError):
        return
