"""An asynchronous run, event by event: slots that generate, a queue, a trainer; every response with its times.

It shares no line with the forecast that is checked against it.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from satwatch.types import VersionRun

FINISH, PUBLISH = 0, 1


@dataclass(frozen=True)
class Response:
    length: int
    started: float
    finished: float
    slot_freed: float  # later than finished if the queue was full
    taken: float  # the start of the step that trains on it
    step: int  # which is also the policy version of that step


@dataclass(frozen=True)
class Outcome:
    responses: list[Response]  # in the order in which the steps took them
    published: npt.NDArray[np.float64]  # when version 1, 2, ... was published
    step_starts: list[float]
    seconds_per_token: float
    sync_seconds: float
    longest_queue: int
    ended: float

    def versions_at(self, times):
        """Return the version that generates at each time."""
        return np.searchsorted(self.published + self.sync_seconds, times, side="right")

    def token_versions(self, response: Response):
        """Return the behavior version of every token."""
        return self.versions_at(response.started + self.seconds_per_token * np.arange(1, response.length + 1))

    def runs(self, response: Response) -> list[VersionRun]:
        versions, counts = np.unique(self.token_versions(response), return_counts=True)
        return [VersionRun(int(tokens), int(version)) for version, tokens in zip(versions, counts, strict=True)]


@dataclass
class Lags:
    """Of tokens: N_PQS and N_IQS."""

    generation: npt.NDArray[np.int64]
    queue: npt.NDArray[np.int64]

    @property
    def total(self):
        return self.generation + self.queue


@dataclass
class Simulation:
    concurrency: int
    seconds_per_token: float
    lengths: Iterator[int]
    queue_capacity: int
    batch_responses: int
    train_seconds: float
    sync_seconds: float = 0.0

    now: float = 0.0
    version: int = 0
    training: bool = False
    events: list[tuple[float, int, int]] = field(default_factory=list)  # time, kind, number
    active: dict[int, tuple[float, int]] = field(default_factory=dict)  # number -> started, length
    queue: deque[int] = field(default_factory=deque)
    held: deque[int] = field(default_factory=deque)  # finished, and still in their slots
    collected: list[int] = field(default_factory=list)
    ended: dict[int, tuple[float, float, int]] = field(default_factory=dict)
    freed: dict[int, float] = field(default_factory=dict)
    done: list[Response] = field(default_factory=list)
    published: list[float] = field(default_factory=list)
    step_starts: list[float] = field(default_factory=list)
    begun: int = 0
    longest_queue: int = 0

    def run(self, steps: int) -> Outcome:
        """Run until the given number of steps has started."""
        for _ in range(self.concurrency):
            self.begin_response()
        while len(self.step_starts) < steps:
            self.now, kind, number = heapq.heappop(self.events)
            if kind == PUBLISH:
                self.publish()
            else:
                self.finish(number)
        return Outcome(
            self.done,
            np.asarray(self.published),
            self.step_starts,
            self.seconds_per_token,
            self.sync_seconds,
            self.longest_queue,
            self.now,
        )

    def begin_response(self) -> None:
        length = next(self.lengths)
        self.active[self.begun] = self.now, length
        heapq.heappush(self.events, (self.now + length * self.seconds_per_token, FINISH, self.begun))
        self.begun += 1

    def finish(self, number: int) -> None:
        started, length = self.active.pop(number)
        self.ended[number] = started, self.now, length
        if not self.training:
            # A waiting trainer has emptied the queue.
            self.collected.append(number)
            self.free_slot(number)
            self.start_step_if_full()
        elif len(self.queue) < self.queue_capacity:
            self.queue.append(number)
            self.longest_queue = max(self.longest_queue, len(self.queue))
            self.free_slot(number)
        else:
            self.held.append(number)

    def free_slot(self, number: int) -> None:
        self.freed[number] = self.now
        self.begin_response()

    def collect(self) -> None:
        """Take what has waited, the oldest first; each place in the queue goes to the oldest held in a slot."""
        while len(self.collected) < self.batch_responses and (self.queue or self.held):
            if self.held:
                self.free_slot(self.held[0])
                self.queue.append(self.held.popleft())
            self.collected.append(self.queue.popleft())

    def start_step_if_full(self) -> None:
        if len(self.collected) < self.batch_responses:
            return
        for number in self.collected:
            started, finished, length = self.ended.pop(number)
            freed = self.freed.pop(number)
            self.done.append(Response(length, started, finished, freed, self.now, self.version))
        self.collected.clear()
        self.step_starts.append(self.now)
        self.training = True
        heapq.heappush(self.events, (self.now + self.train_seconds, PUBLISH, -1))

    def publish(self) -> None:
        self.version += 1
        self.published.append(self.now)
        self.training = False
        self.collect()
        self.start_step_if_full()


def lognormal_lengths(mean: float, cv: float, seed: int) -> Iterator[int]:
    """Yield whole lengths of that mean, nearly, and that cv."""
    generator = np.random.default_rng(seed)
    variance = math.log1p(cv**2)
    while True:
        drawn = generator.lognormal(math.log(mean) - variance / 2, math.sqrt(variance), 4096)
        # Rounded to one side or the other at random, so that the mean stays.
        yield from np.maximum(1, np.floor(drawn + generator.random(4096))).astype(int).tolist()


def cycling(lengths: Iterable[int]) -> Iterator[int]:
    known = list(lengths)
    while True:
        yield from known


def token_lags(outcome: Outcome, first_step: int) -> Lags:
    """Return the lags of all tokens of the steps from the first on."""
    generation, queue = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for response in outcome.responses:
        if response.step < first_step:
            continue
        versions = outcome.token_versions(response)
        generation.append(versions[-1] - versions)
        queue.append(np.full(response.length, response.step - versions[-1]))
    return Lags(np.concatenate(generation), np.concatenate(queue))
