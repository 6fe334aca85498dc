"""What is exported of a history: flat rows, one a step, a batch, a version, an event or an engine's record."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from satwatch.errors import ConfigError, UnknownRunError, required
from satwatch.export.columns import RECORDS, Kind, LagTokens, LayerFlipRate, VersionTokens
from satwatch.history import Store
from satwatch.types import MAX_STEP, BatchRecord, RunRecord, StepPoint

Row: TypeAlias = dict[str, Any]

# All that is kept: retention bounds these, and not a query.
EVERYTHING: Final = 1_000_000_000
_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class Range:
    """The steps wanted, both ends included; None is no end.

    Raises:
        ConfigError: an end that no step can have, or ends that contradict each other.
    """

    first: int | None = None
    last: int | None = None

    def __post_init__(self) -> None:
        for name, step in (("first_step", self.first), ("last_step", self.last)):
            if step is not None and not -MAX_STEP <= step <= MAX_STEP:
                raise ConfigError(required(name, step, f"{-MAX_STEP} to {MAX_STEP}"))
        if self.first is not None and self.last is not None and self.first > self.last:
            raise ConfigError(required("first_step", self.first, f"{self.last} or less, last_step"))

    def __bool__(self) -> bool:
        return self.first is not None or self.last is not None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind.

    Attributes:
        kind: what a row is.
        of: the run's life that they are of.
        rows: reads them, in order; raises ConfigError where there are neither steps nor batches.
        count: how many there are, if that is known before they are read.
    """

    kind: Kind
    of: RunRecord
    rows: Callable[[], Iterator[Row]]
    count: int | None = None


def table(
    store: Store,
    kind: Kind,
    run: str = "",
    *,
    life: int = 0,
    first_step: int | None = None,
    last_step: int | None = None,
) -> Table:
    """Return what a history keeps of a run.

    Args:
        store: the history.
        kind: what a row is.
        run: the run's name; empty: the one heard of last.
        life: which life of it; 0: the newest.
        first_step: the first step wanted; None: the first kept. Of steps and batches only.
        last_step: the last step wanted; None: the last one.

    Raises:
        ConfigError: a range that can't be meant, or of what is not kept by step; a life of what is not kept by life.
        UnknownRunError: a run or a life that isn't kept.
    """
    steps = Range(first_step, last_step)
    if steps and kind not in ("steps", "batches"):
        raise ConfigError(required("first_step, last_step", f"a range of {kind}", "one of steps or batches"))
    if life and kind == "engines":
        raise ConfigError(required("life", life, "none: engines are kept by run"))
    record = find(store, run, life)
    readers: dict[Kind, Callable[[], Iterator[Row]]] = {
        "steps": partial(_steps, store, record, steps),
        "batches": partial(_batches, store, record, steps),
        "versions": partial(_versions, store, record),
        "events": partial(_events, store, record),
        "engines": partial(_engines, store, record),
    }
    return Table(kind, record, readers[kind], record.steps if kind == "steps" and not steps else None)


def find(store: Store, run: str, life: int) -> RunRecord:
    """Return a run's life.

    Raises:
        UnknownRunError: none that is kept.
    """
    kept = store.runs()
    if not kept:
        raise UnknownRunError(required("store", f"{store.url}, which has no run yet", "a history with a run"))
    for record in kept:
        if run in ("", record.run) and life in (0, record.life):
            return record
    came = (f"{run!r}, life {life}" if life else repr(run)) if run else f"life {life}"
    kept = [record for record in kept if record.run == run] or kept
    names = ", ".join(f"{record.run!r} life {record.life}" for record in kept[:_NAMED])
    more = ", ..." if len(kept) > _NAMED else ""
    raise UnknownRunError(required("run", came, f"one of {names}{more}"))


def _steps(store: Store, record: RunRecord, steps: Range) -> Iterator[Row]:
    found = store.exported_steps(record.run, life=record.life, first_step=steps.first, last_step=steps.last)
    yield from _some("steps", record, steps, (_step_row(record, point, blob) for point, blob in found))


def _batches(store: Store, record: RunRecord, steps: Range) -> Iterator[Row]:
    found = store.exported_batches(record.run, life=record.life, first_step=steps.first, last_step=steps.last)
    yield from _some("batches", record, steps, (_batch_row(record, batch) for batch in found))


def _some(kind: Kind, record: RunRecord, steps: Range, rows: Iterator[Row]) -> Iterator[Row]:
    """Yield rows; without one, say what there is instead.

    Raises:
        ConfigError: no row.
    """
    is_empty = True
    for row in rows:
        is_empty = False
        yield row
    if not is_empty:
        return
    if record.first_step is None:
        raise ConfigError(required("run", f"{record.run!r}, which has no step yet", "a run with steps"))
    wanted = f"steps of {record.first_step} to {record.last_step}"
    if kind == "batches":
        wanted += "; the newest of them have batches"
    raise ConfigError(required("first_step, last_step", f"a range without {kind}", wanted))


def _step_row(record: RunRecord, point: StepPoint, blob: bytes) -> Row:
    return {
        **_origin("steps", record),
        "rule": asdict(record.rule),
        "step": point.last_step,
        "at": point.at,
        "is_closed": point.is_closed,
        "ranks": point.ranks,
        "batches": point.batches,
        "policy_version": point.policy_version,
        **point.values,
        "heat": list(point.heat),
        "lags": _by(LagTokens, point.lags),
        "generation_lags": _by(LagTokens, point.generation_lags),
        "queue_lags": _by(LagTokens, point.queue_lags),
        "behavior_version_tokens": _by(VersionTokens, point.versions),
        "length_lags": [asdict(bucket) for bucket in point.length_lags],
        "layer_flip_rates": _by(LayerFlipRate, point.layer_flip_rates),
        "totals": base64.b64encode(blob).decode("ascii"),
    }


def _by(pair: Callable[[int, Any], Any], values: Mapping[int, Any]) -> list[Row]:
    return [asdict(pair(*item)) for item in sorted(values.items())]


def _batch_row(record: RunRecord, batch: BatchRecord) -> Row:
    return {
        **_origin("batches", record),
        "step": batch.step,
        "rank": batch.rank,
        "microbatch": batch.microbatch,
        "at": batch.at,
        "policy_version": batch.policy_version,
        **batch.values,
        "worst": [asdict(token) for token in batch.worst],
    }


def _versions(store: Store, record: RunRecord) -> Iterator[Row]:
    for version in store.versions(record.run, life=record.life, limit=EVERYTHING):
        yield {**_origin("versions", record), **asdict(version)}


def _events(store: Store, record: RunRecord) -> Iterator[Row]:
    for event in store.events(record.run, life=record.life, limit=EVERYTHING):
        yield {"record": RECORDS["events"], **asdict(event)}


def _engines(store: Store, record: RunRecord) -> Iterator[Row]:
    for kept in store.engines(record.run, limit=EVERYTHING):
        yield {"record": RECORDS["engines"], "run": kept.run, "at": kept.at, **asdict(kept.status)}


def _origin(kind: Kind, record: RunRecord) -> Row:
    return {"record": RECORDS[kind], "run": record.run, "incarnation": record.incarnation, "life": record.life}
