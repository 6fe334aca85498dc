"""The rollout engine: a process of its own that samples with weights that are exactly ``lag`` versions old.

The engine generates batch t with version max(0, t - lag) as soon as the learner has published that version, so it
runs up to ``lag`` batches ahead of the learner (as far as the pipe between them holds the batches). What it generates
depends on the seed and the lag alone, whatever the timing.
"""

from __future__ import annotations

import multiprocessing
import signal
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Final, Self

import numpy as np
import torch
from numpy.typing import NDArray

from satwatch.demo.config import DemoConfig
from satwatch.demo.policy import Policy, initial_policy, sample
from satwatch.demo.task import TASKS
from satwatch.demo.weights import WeightStore
from satwatch.errors import SatwatchError

CLOSE_SECONDS: Final = 5.0


class RolloutError(SatwatchError):
    """The rollout process ended before its last batch."""


@dataclass(frozen=True, slots=True)
class RolloutBatch:
    """Verified responses, as they travel from the engine: B = prompts * samples, a prompt's samples together.

    Attributes:
        number: the batch's number, from 0.
        tokens: prompts and responses, uint8, shape (B, prompt + response).
        behavior_logprob: log mu of the response tokens, nats, float32, shape (B, response).
        reward: float32 in [0, 1], shape (B,).
        behavior_version: the policy version that sampled each response, int32, shape (B,).
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
        policy: the weights of version ``config.behavior_version(number)``.
        number: the batch's number; with the seed it fixes prompts and randomness.

    Returns:
        The batch.
    """
    task = TASKS[config.task]
    generator = torch.Generator().manual_seed(_batch_seed(config.seed, number))
    prompts = task.draw_prompts(config.prompts, generator)
    tokens, logprob = sample(policy, prompts, config.samples, task.response_length, generator)
    reward = task.reward(tokens[:, : task.prompt_length], tokens[:, task.prompt_length :])
    version = np.full(len(tokens), config.behavior_version(number), dtype=np.int32)
    return RolloutBatch(number, tokens.to(torch.uint8).numpy(), logprob.numpy(), reward.numpy(), version)


def _batch_seed(seed: int, number: int) -> int:
    # The generator keeps 32 bits of a seed: mixing keeps batches and runs apart, packing the two would not.
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def serve(config: DemoConfig, store: WeightStore, versions: Connection, batches: Connection) -> None:
    """Generate every batch of the run, then wait to be let go; the body of the rollout process.

    Args:
        config: the run.
        store: where published weights lie.
        versions: the numbers of published versions arrive here; its end means that the learner is gone.
        batches: the batches leave here.
    """
    torch.set_num_threads(1)
    policy = initial_policy(TASKS[config.task], config.seed)
    published = held = -1
    try:
        for number in range(config.steps):
            wanted = config.behavior_version(number)
            while published < wanted:
                published = versions.recv()
            if held != wanted:
                store.load(wanted, policy)
                held = wanted
            batches.send(generate(config, policy, number))
        while True:
            versions.recv()
    except (EOFError, ConnectionError):
        return


class RolloutProcess:
    """The learner's end of the rollout engine. A context manager: leaving it ends the process.

    Args:
        config: the run.
        policy: the learner's policy, published as version 0.
    """

    def __init__(self, config: DemoConfig, policy: Policy) -> None:
        context = multiprocessing.get_context("spawn")
        self._store = WeightStore(context, policy.parameter_count, config.lag)
        versions, self._versions = context.Pipe(duplex=False)
        self._batches, batches = context.Pipe(duplex=False)
        self._process = context.Process(
            target=serve, args=(config, self._store, versions, batches), name="rollout", daemon=True
        )
        _start_without_interrupts(self._process)
        # The engine's ends stay open in the engine alone, so that each side sees the other one go.
        versions.close()
        batches.close()
        self.publish(0, policy)

    @property
    def pid(self) -> int | None:
        """The process id of the engine."""
        return self._process.pid

    def publish(self, version: int, policy: Policy) -> None:
        """Make a version available to the engine.

        Raises:
            RolloutError: the rollout process is gone.
        """
        self._store.publish(version, policy)
        try:
            self._versions.send(version)
        except ConnectionError:
            raise self._gone() from None

    def next_batch(self) -> RolloutBatch:
        """Return the next batch, as soon as it is there.

        Raises:
            RolloutError: the rollout process is gone.
        """
        wait([self._batches, self._process.sentinel])
        try:
            if self._batches.poll():
                batch: RolloutBatch = self._batches.recv()
                return batch
        except (EOFError, OSError):
            pass
        raise self._gone()

    def close(self) -> None:
        """Let the engine go; end it if it does not go by itself."""
        self._versions.close()
        self._batches.close()
        self._process.join(CLOSE_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _gone(self) -> RolloutError:
        self._process.join(CLOSE_SECONDS)
        return RolloutError(f"the rollout process (pid {self.pid}) ended early with exit code {self._process.exitcode}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _start_without_interrupts(process: SpawnProcess) -> None:
    """Start a process that a Ctrl-C on the terminal does not reach: the learner decides when it ends.

    The signal mask is inherited. The resource tracker, which starts with the first process, would clear it.
    """
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
