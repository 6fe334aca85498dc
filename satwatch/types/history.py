"""What is kept of a run: its steps, its batches, its alerts and its engines over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from satwatch.errors import InvalidBatchError, required
from satwatch.types.batch import MAX_STEP
from satwatch.types.engine import EngineStatus
from satwatch.types.rule import Rule
from satwatch.types.runs import check_run_name

Severity: TypeAlias = Literal["critical", "warning", "info"]
EventState: TypeAlias = Literal["raised", "resolved"]

SEVERITIES: Final = get_args(Severity)
MEASURES: Final = ("reward", "loss", "response_length")

# Half octaves of abs(d) from 2**-25 up: bucket 0 holds what is below, 0 included, the last one what is above, infinite
# values included. All edges are edges of a sketch's codes too, so that counts are exact.
HEAT_BUCKETS: Final = 64
HEAT_EDGES: Final = (*(math.ldexp(half, octave) for octave in range(-25, 6) for half in (1.0, 1.5)), 64.0)


@dataclass(frozen=True, slots=True)
class Total:
    """A sum that merges by addition.

    Attributes:
        total: the sum of the numbers, NaN left out.
        count: how many numbers it is the sum of.
        nan_count: how many more were NaN.

    >>> Total(3.0, 2).merge(Total(5.0, 2)).mean
    2.0
    """

    total: float = 0.0
    count: int = 0
    nan_count: int = 0

    @property
    def mean(self) -> float | None:
        """The mean; None without a number."""
        return self.total / self.count if self.count else None

    def merge(self, other: Total) -> Total:
        """Return the sum of both together."""
        return Total(self.total + other.total, self.count + other.count, self.nan_count + other.nan_count)


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one rank says of a step beside its batches.

    Attributes:
        run: the run's name.
        step: the optimizer step.
        incarnation: one life of the run; empty if unknown.
        rank: the data-parallel rank.
        measures: sums by name, of ``MEASURES``.
        ended: the rank has sent the last batch of the step.

    Raises:
        ConfigError: a run name that can't be meant.
        InvalidBatchError: a step or a measure that can't be meant.
    """

    run: str
    step: int
    incarnation: str = ""
    rank: int = 0
    measures: Mapping[str, Total] = field(default_factory=dict)
    ended: bool = False

    def __post_init__(self) -> None:
        check_run_name(self.run)
        if not -MAX_STEP <= self.step <= MAX_STEP:
            raise InvalidBatchError(required("step", self.step, f"{-MAX_STEP} to {MAX_STEP}"))
        for name in self.measures:
            if name not in MEASURES:
                raise InvalidBatchError(required("measures", repr(name)[:80], f"one of {', '.join(MEASURES)}"))


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One life of a run: from its opening to its restart.

    Attributes:
        life: its number in this history, from 1; a resumed or restarted run has another.
        run: the run's name.
        incarnation: the trainer's name for this life; empty if it has none.
        rule: the rule it was opened with.
        world_size: its data-parallel ranks.
        opened_at: Unix time in seconds.
        last_at: its last message, likewise.
        first_step: the first step kept, None before one is.
        last_step: the last step kept.
        stored_step: the last closed step that is on disk, with all that closed before it: a crash can't lose it.
        steps: steps kept.
        batches: batches counted.
        tokens: active tokens counted.
        version_published: the version published last.
        is_open: the sidecar that answers has this life open now.
        ended_at: when its trainer closed it, likewise; None: it goes on, or nobody has said so.
    """

    life: int
    run: str
    incarnation: str
    rule: Rule
    world_size: int
    opened_at: float
    last_at: float
    first_step: int | None = None
    last_step: int | None = None
    stored_step: int | None = None
    steps: int = 0
    batches: int = 0
    tokens: int = 0
    version_published: int | None = None
    is_open: bool = False
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class LengthLag:
    """Version lag of the responses of like length, as sums.

    Attributes:
        longest: responses of at most so many tokens, a power of two, and more than half of it.
        responses: how many.
        length: all their active tokens.
        tokens: their tokens whose lag is known and not negative.
        lag: sum over those tokens of N.
        split_tokens: their tokens whose N is known by its parts.
        generation_lag: sum over those of N_PQS.
        queue_lag: sum over those of N_IQS.
    """

    longest: int
    responses: int
    length: int = 0
    tokens: int = 0
    lag: int = 0
    split_tokens: int = 0
    generation_lag: int = 0
    queue_lag: int = 0

    def merge(self, other: LengthLag) -> LengthLag:
        """Return the sums of both together; both are of one ``longest``."""
        return LengthLag(
            self.longest,
            self.responses + other.responses,
            self.length + other.length,
            self.tokens + other.tokens,
            self.lag + other.lag,
            self.split_tokens + other.split_tokens,
            self.generation_lag + other.generation_lag,
            self.queue_lag + other.queue_lag,
        )


@dataclass(frozen=True, slots=True)
class StepPoint:
    """One step, or neighbouring ones merged, as it is looked at.

    Attributes:
        life: the run's life.
        first_step: the first step merged.
        last_step: the last one; equal to ``first_step`` for a step alone.
        steps: steps merged.
        at: the last message, Unix time in seconds.
        is_closed: all ranks have ended it, or their time is up.
        ranks: ranks heard of; the fewest of the steps merged.
        batches: batches counted.
        policy_version: the newest version that consumed its tokens, or None.
        values: diagnostics by the names of docs/diagnostics.md; what has no value is absent.
        heat: tokens by ``HEAT_EDGES`` of abs(d).
        lags: tokens by version lag N.
        generation_lags: tokens by N_PQS.
        queue_lags: tokens by N_IQS.
        versions: tokens by behavior version.
        length_lags: version lag by response length, shortest first.
        layer_flip_rates: router flip rate by layer.
    """

    life: int
    first_step: int
    last_step: int
    steps: int
    at: float
    is_closed: bool
    ranks: int
    batches: int
    policy_version: int | None
    values: Mapping[str, float]
    heat: tuple[int, ...] = (0,) * HEAT_BUCKETS
    lags: Mapping[int, int] = field(default_factory=dict)
    generation_lags: Mapping[int, int] = field(default_factory=dict)
    queue_lags: Mapping[int, int] = field(default_factory=dict)
    versions: Mapping[int, int] = field(default_factory=dict)
    length_lags: tuple[LengthLag, ...] = ()
    layer_flip_rates: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorstToken:
    """One of the tokens of a batch with the largest abs(d); what was not sent is None.

    Attributes:
        log_ratio: d, nats; may be infinite, and NaN comes first of all.
        sequence: which response of the batch, from 0.
        position: which active token of that response, from 0; of the batch where responses are unknown.
        behavior_logprob: log mu, nats.
        policy_logprob: log pi(j), nats; None too where log mu is no number, as it is log mu + d.
        reference_logprob: log pi(l), nats.
        advantage: A.
        version: the version that generated it.
        engine: the engine that generated it.
    """

    log_ratio: float
    position: int
    sequence: int | None = None
    behavior_logprob: float | None = None
    policy_logprob: float | None = None
    reference_logprob: float | None = None
    advantage: float | None = None
    version: int | None = None
    engine: str | None = None


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One batch.

    Attributes:
        life: the run's life.
        step: its step.
        rank: the data-parallel rank.
        microbatch: its number within rank and step.
        at: when it came, Unix time in seconds.
        policy_version: the policy that consumed it, or None.
        values: diagnostics by name.
        worst: its worst tokens, worst first.
    """

    life: int
    step: int
    rank: int
    microbatch: int
    at: float
    policy_version: int | None
    values: Mapping[str, float]
    worst: tuple[WorstToken, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """An alert that was raised or resolved.

    Attributes:
        alert: the alert's name, as in the Prometheus rules.
        severity: how bad.
        state: raised or resolved.
        at: Unix time in seconds.
        evidence: what was seen, in a sentence with its numbers.
        run: the run; empty for an engine that belongs to none.
        life: the run's life, or None.
        engine: the engine; empty for an alert of a run.
        step: the first step that showed it, or, resolved, the first one that no longer did.
        version: the policy version of that step, or the engine's.
        value: what was compared.
        threshold: with what.
        id: its number in this history, ascending; 0 before it is kept.
    """

    alert: str
    severity: Severity
    state: EventState
    at: float
    evidence: str
    run: str = ""
    life: int | None = None
    engine: str = ""
    step: int | None = None
    version: int | None = None
    value: float | None = None
    threshold: float | None = None
    id: int = 0


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """What was known of an engine at one time; kept when it changes, and now and then.

    Attributes:
        at: Unix time in seconds.
        status: what was known.
        run: the run it serves; empty if unknown.
    """

    at: float
    status: EngineStatus
    run: str = ""


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A policy version that a run has published.

    Attributes:
        life: the run's life.
        version: the version.
        at: when, Unix time in seconds.
        step: the newest step that had a batch by then, or None.
    """

    life: int
    version: int
    at: float
    step: int | None = None


@runtime_checkable
class History(Protocol):
    """A history to look at: a sidecar's over gRPC, or a store opened here. Nothing is changed by looking.

    A run is named by its newest life unless ``life`` says another. Each method raises UnknownRunError for a run or a
    life that isn't kept, and UnavailableError where the history can't be read.
    """

    def runs(self) -> Sequence[RunRecord]:
        """Return all lives, the one heard of last first."""

    def steps(
        self,
        run: str,
        *,
        life: int = 0,
        first_step: int | None = None,
        last_step: int | None = None,
        max_points: int = 500,
    ) -> Sequence[StepPoint]:
        """Return the steps of a range, ascending; more than ``max_points`` come as merged neighbours.

        Args:
            run: the run's name.
            life: which life; 0: the newest.
            first_step: the first step wanted; None: the first kept.
            last_step: the last step wanted; None: the last one.
            max_points: the most points returned. Merged neighbours begin and end at multiples of a power of two, so
                that the outermost may reach beyond the range.
        """

    def batches(self, run: str, step: int, *, life: int = 0) -> Sequence[BatchRecord]:
        """Return the batches of a step by rank and microbatch."""

    def versions(self, run: str, *, life: int = 0, limit: int = 1000) -> Sequence[VersionRecord]:
        """Return the versions published, the newest ``limit`` of them, oldest first."""

    def events(
        self, run: str = "", *, life: int = 0, after: int = 0, only_active: bool = False, limit: int = 1000
    ) -> Sequence[Event]:
        """Return alerts raised and resolved, oldest first.

        Args:
            run: of this run and of the engines; empty: of all.
            life: which life of the run; 0: all of them.
            after: only those with a greater id.
            only_active: only those raised and not yet resolved.
            limit: the newest so many.
        """

    def engines(
        self, run: str = "", *, since: float = 0.0, until: float | None = None, limit: int = 10_000
    ) -> Sequence[EngineRecord]:
        """Return what was known of the engines, oldest first; the newest ``limit`` records of a span of time.

        Args:
            run: of the engines of this run and those of none; empty: all.
            since: Unix time in seconds.
            until: likewise; None: now.
            limit: the most records.
        """
