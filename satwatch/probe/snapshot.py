"""One look at an engine: everything that it said, typed, and nothing concluded from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from satwatch.types import EngineKind

ProblemKind: TypeAlias = Literal["unreachable", "timeout", "refused", "garbage", "failing"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an engine could not be looked at.

    Attributes:
        kind: ``unreachable``; ``timeout``; ``refused``: it wants another key; ``garbage``: its answer can't be read;
            ``failing``: it answers with an error of its own.
        message: a sentence without keys and credentials.
    """

    kind: ProblemKind
    message: str


@dataclass(frozen=True, slots=True)
class Load:
    """An engine's work at one moment, summed over its data-parallel ranks; None is unknown.

    Attributes:
        running: requests being generated.
        waiting: requests in its scheduler's queues.
        open_requests: generate requests that its HTTP server holds; while it is paused they wait there unseen.
        max_running: the most requests that it runs at once.
        total_tokens: tokens of the requests that run and wait.
        tokens_per_second: output tokens, as it measures them.
        token_usage: share of the KV cache in use, the highest of its ranks.
        stamps: when each rank took its figures, Unix time in seconds; they stand still while it is paused, unless the
            pause was one that aborts.
    """

    running: int | None = None
    waiting: int | None = None
    open_requests: int | None = None
    max_running: int | None = None
    total_tokens: int | None = None
    tokens_per_second: float | None = None
    token_usage: float | None = None
    stamps: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Total:
    """A histogram's sum and count since the engine began."""

    sum: float
    count: float


@dataclass(frozen=True, slots=True)
class Counters:
    """What an engine has counted since it began; None is unknown.

    A count that falls may be another process.

    Attributes:
        requests: generate requests taken.
        generated_tokens: output tokens.
        aborted: requests aborted.
        queue: seconds that requests waited in the queue.
        latency: seconds from a request's arrival to its end.
        output_lengths: output tokens of finished requests.
        seconds_per_token: of a request's decoding.
        weight_loads: seconds of weight updates, by their source.
    """

    requests: float | None = None
    generated_tokens: float | None = None
    aborted: float | None = None
    queue: Total | None = None
    latency: Total | None = None
    output_lengths: Total | None = None
    seconds_per_token: Total | None = None
    weight_loads: Mapping[str, Total] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """One look at an engine, over HTTP or in its process; None is what it did not say.

    Attributes:
        engine: its name.
        at: when the look ended, on the probe's clock, seconds.
        took: how long the look took, seconds.
        problem: why there is nothing else here.
        kind: which engine it is.
        release: its release.
        version_label: what it calls its weights, as text.
        model_path: where it says its weights came from.
        is_paused: whether it takes requests without generating.
        may_sleep: whether a trainer may take the memory of its weights away while it is idle, or that isn't known yet.
            A request that comes in such a moment ends it.
        load: its work.
        counters: what it has counted.
    """

    engine: str
    at: float
    took: float = 0.0
    problem: Problem | None = None
    kind: EngineKind | None = None
    release: str | None = None
    version_label: str | None = None
    model_path: str | None = None
    is_paused: bool | None = None
    may_sleep: bool = False
    load: Load = Load()
    counters: Counters = Counters()


@dataclass(frozen=True, slots=True)
class CanaryAnswer:
    """An engine's scores of a canary; the answer is a finished response, and so an authority on the version served.

    Attributes:
        at: when it came, on the probe's clock, seconds.
        version_label: the version that the responses name, as text; None: they name none, or not all the same.
        logprobs: log mu of every token but each sequence's first, nats, sequence after sequence; NaN where it has none.
        took: seconds.
    """

    at: float
    version_label: str | None
    logprobs: tuple[float, ...] = field(repr=False)
    took: float = 0.0
