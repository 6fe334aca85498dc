"""The rollout process: the engine in a process of its own, and the learner's end of the pipes to it.

The engine runs up to ``lag`` batches ahead of the learner, as far as the pipe between them holds the batches: 1 MiB,
where the system grants it.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import signal
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Final, Self

from satwatch.demo.config import DemoConfig
from satwatch.demo.engine import RolloutBatch, SidecarFound, serve
from satwatch.demo.policy import Policy
from satwatch.demo.weights import WeightStore
from satwatch.errors import SatwatchError

CLOSE_SECONDS: Final = 5.0
# Room for about 80 batches. An engine that waits for room takes its weights late, and looks behind without a fault.
PIPE_BYTES: Final = 1 << 20


class RolloutError(SatwatchError):
    """The rollout process ended before its last batch."""


class RolloutProcess:
    """The learner's end of the rollout engine. A context manager: leaving it ends the process.

    Args:
        config: the run.
        policy: the learner's policy, published as version 0.
    """

    def __init__(self, config: DemoConfig, policy: Policy) -> None:
        context = multiprocessing.get_context("spawn")
        self._store = WeightStore(context, policy.parameter_count, config.lag)
        news, self._news = context.Pipe(duplex=False)
        self._batches, batches = context.Pipe(duplex=False)
        with suppress(AttributeError, OSError):  # Linux alone has it, and may refuse
            fcntl.fcntl(batches.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._process = context.Process(
            target=serve, args=(config, self._store, news, batches), name="rollout", daemon=True
        )
        _start_without_interrupts(self._process)
        # The engine's ends stay open in the engine alone, so that each side sees the other one go.
        news.close()
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
        self._tell(version)

    def report_to(self, address: str, run: str) -> None:
        """Have the engine probed from now on, and reported to a sidecar.

        Args:
            address: the sidecar's.
            run: the run that the engine serves.

        Raises:
            RolloutError: the rollout process is gone.
        """
        self._tell(SidecarFound(address, run))

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
        self._news.close()
        self._batches.close()
        self._process.join(CLOSE_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _tell(self, news: int | SidecarFound) -> None:
        try:
            self._news.send(news)
        except ConnectionError:
            raise self._gone() from None

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
