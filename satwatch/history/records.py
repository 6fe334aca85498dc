"""What the server tells the history: what it has seen, as absolute values, so that the same may be told twice."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from satwatch.sat import StepTotals
from satwatch.types import BatchRecord, EngineRecord, Event, Rule

# Which life of a run, in the server's own terms: its run, incarnation and window.
LifeKey: TypeAlias = Hashable

Kind: TypeAlias = Literal["life", "step", "batch", "event", "engine", "version"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class LifeOpened:
    """A life of a run, opened or opened again. It comes before anything else of that life.

    Attributes:
        key: which life, in the server's terms.
        run: the run's name.
        incarnation: the trainer's name for the life. A stored life of the same run and the same name is continued;
            without a name it is another life.
        rule: the rule.
        world_size: its data-parallel ranks.
        at: Unix time in seconds.
    """

    key: LifeKey
    run: str
    incarnation: str
    rule: Rule
    world_size: int
    at: float


@dataclass(frozen=True, slots=True)
class LifeEnded:
    """A life that its trainer has closed; opened again, it goes on.

    Attributes:
        key: the life.
        at: Unix time in seconds.
    """

    key: LifeKey
    at: float


@dataclass(frozen=True, slots=True)
class StepSeen:
    """A step as this process knows it: all of its batches here so far, not only those since it was told last.

    Attributes:
        key: the life.
        step: the optimizer step.
        totals: what its batches add up to.
        at: its last message, Unix time in seconds.
        policy_version: the newest version that consumed its tokens, or None.
        ranks: ranks heard of.
        is_closed: all ranks have ended it, or their time is up.
    """

    key: LifeKey
    step: int
    totals: StepTotals
    at: float
    policy_version: int | None
    ranks: int
    is_closed: bool


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """A batch that was counted.

    Attributes:
        key: the life.
        batch: the batch; its ``life`` is filled in when it is stored.
    """

    key: LifeKey
    batch: BatchRecord


@dataclass(frozen=True, slots=True, eq=False)
class EventSeen:
    """An alert that was raised or resolved; two that look alike are two.

    Attributes:
        key: the life; None: an engine's alert that belongs to none.
        event: the alert; its ``life`` and ``id`` are filled in when it is stored.
    """

    key: LifeKey | None
    event: Event


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """What is known of an engine now; kept when it has changed, and now and then.

    Attributes:
        record: the engine.
    """

    record: EngineRecord


@dataclass(frozen=True, slots=True)
class VersionSeen:
    """A version that was published.

    Attributes:
        key: the life.
        version: the version.
        at: when, Unix time in seconds.
        step: the newest step that had a batch by then, or None.
    """

    key: LifeKey
    version: int
    at: float
    step: int | None = None


Record: TypeAlias = LifeOpened | LifeEnded | StepSeen | BatchSeen | EventSeen | EngineSeen | VersionSeen

_KINDS: Final[dict[type[Record], Kind]] = {
    LifeOpened: "life",
    LifeEnded: "life",
    StepSeen: "step",
    BatchSeen: "batch",
    EventSeen: "event",
    EngineSeen: "engine",
    VersionSeen: "version",
}


def kind_of(record: Record) -> Kind:
    """Return a record's kind."""
    return _KINDS[type(record)]


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """How the writing of the history goes.

    Attributes:
        up: the last write succeeded, or none has been tried.
        pending: records that wait to be written, those being written included.
        stored: records committed, by kind.
        dropped: records lost because more came than could be written, by kind.
        write_seconds: time spent on transactions, failed ones included.
        failures: transactions that failed.
        last_error: why the last one did; empty if none has.
    """

    up: bool = True
    pending: int = 0
    stored: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    dropped: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    write_seconds: float = 0.0
    failures: int = 0
    last_error: str = ""
