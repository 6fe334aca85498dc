"""What a history is asked for; the limits of each question are checked here, for whoever asks and whoever answers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from satwatch.errors import ConfigError, required
from satwatch.types.history import BatchRecord, EngineRecord, Event, History, RunRecord, StepPoint, VersionRecord
from satwatch.types.runs import check_run_name

T = TypeVar("T")

# The most that one answer holds.
MAX_RUN_RECORDS: Final = 100_000
MAX_STEP_POINTS: Final = 5000
MAX_BATCH_RECORDS: Final = 100_000
MAX_VERSION_RECORDS: Final = 10_000
MAX_EVENTS: Final = 10_000
MAX_ENGINE_RECORDS: Final = 100_000

_INT64_MAX: Final = 2**63 - 1


class Query(ABC, Generic[T]):
    """A question whose answer is records of one kind."""

    __slots__ = ()

    @abstractmethod
    def ask(self, history: History) -> Sequence[T]:
        """Put the question to a history."""


@dataclass(frozen=True, slots=True)
class RunsQuery(Query[RunRecord]):
    """All lives, as :meth:`satwatch.types.History.runs` returns them."""

    def ask(self, history: History) -> Sequence[RunRecord]:
        """Put the question to a history."""
        return history.runs()


@dataclass(frozen=True, slots=True)
class StepsQuery(Query[StepPoint]):
    """The steps of a range, as :meth:`satwatch.types.History.steps` takes them.

    Raises:
        ConfigError: a value that can't be meant.

    >>> StepsQuery("r", max_points=9000)
    Traceback (most recent call last):
    satwatch.errors.ConfigError: max_points: got 9000, required a whole number from 1 to 5000
    """

    run: str
    life: int = 0
    first_step: int | None = None
    last_step: int | None = None
    max_points: int = 500

    def __post_init__(self) -> None:
        check_run_name(self.run)
        _require_whole("life", self.life, 0, _INT64_MAX)
        for name, step in (("first_step", self.first_step), ("last_step", self.last_step)):
            if step is not None:
                _require_whole(name, step, -_INT64_MAX, _INT64_MAX)
        _require_whole("max_points", self.max_points, 1, MAX_STEP_POINTS)

    def ask(self, history: History) -> Sequence[StepPoint]:
        """Put the question to a history."""
        return history.steps(
            self.run,
            life=self.life,
            first_step=self.first_step,
            last_step=self.last_step,
            max_points=self.max_points,
        )


@dataclass(frozen=True, slots=True)
class BatchesQuery(Query[BatchRecord]):
    """The batches of a step, as :meth:`satwatch.types.History.batches` takes them.

    Raises:
        ConfigError: a value that can't be meant.
    """

    run: str
    step: int
    life: int = 0

    def __post_init__(self) -> None:
        check_run_name(self.run)
        _require_whole("step", self.step, -_INT64_MAX, _INT64_MAX)
        _require_whole("life", self.life, 0, _INT64_MAX)

    def ask(self, history: History) -> Sequence[BatchRecord]:
        """Put the question to a history."""
        return history.batches(self.run, self.step, life=self.life)


@dataclass(frozen=True, slots=True)
class VersionsQuery(Query[VersionRecord]):
    """The versions of a run, as :meth:`satwatch.types.History.versions` takes them.

    Raises:
        ConfigError: a value that can't be meant.
    """

    run: str
    life: int = 0
    limit: int = 1000

    def __post_init__(self) -> None:
        check_run_name(self.run)
        _require_whole("life", self.life, 0, _INT64_MAX)
        _require_whole("limit", self.limit, 1, MAX_VERSION_RECORDS)

    def ask(self, history: History) -> Sequence[VersionRecord]:
        """Put the question to a history."""
        return history.versions(self.run, life=self.life, limit=self.limit)


@dataclass(frozen=True, slots=True)
class EventsQuery(Query[Event]):
    """Alerts raised and resolved, as :meth:`satwatch.types.History.events` takes them.

    Raises:
        ConfigError: a value that can't be meant, or a life without its run.
    """

    run: str = ""
    life: int = 0
    after: int = 0
    only_active: bool = False
    limit: int = 1000

    def __post_init__(self) -> None:
        if self.run:
            check_run_name(self.run)
        _require_whole("life", self.life, 0, _INT64_MAX)
        if self.life and not self.run:
            raise ConfigError(required("run", repr(self.run), f"the run whose life {self.life} is"))
        _require_whole("after", self.after, 0, _INT64_MAX)
        _require_whole("limit", self.limit, 1, MAX_EVENTS)

    def ask(self, history: History) -> Sequence[Event]:
        """Put the question to a history."""
        return history.events(
            self.run, life=self.life, after=self.after, only_active=self.only_active, limit=self.limit
        )


@dataclass(frozen=True, slots=True)
class EnginesQuery(Query[EngineRecord]):
    """What was known of engines, as :meth:`satwatch.types.History.engines` takes it.

    Raises:
        ConfigError: a value that can't be meant.
    """

    run: str = ""
    since: float = 0.0
    until: float | None = None
    limit: int = 10_000

    def __post_init__(self) -> None:
        if self.run:
            check_run_name(self.run)
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not None and not math.isfinite(moment):
                raise ConfigError(required(name, moment, "Unix time, finite seconds"))
        _require_whole("limit", self.limit, 1, MAX_ENGINE_RECORDS)

    def ask(self, history: History) -> Sequence[EngineRecord]:
        """Put the question to a history."""
        return history.engines(self.run, since=self.since, until=self.until, limit=self.limit)


def _require_whole(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(required(name, value, f"a whole number from {low} to {high}"))
