"""What is shown of a step, a batch, an alert or an engine, as columns and JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Final, get_args, get_type_hints

from satwatch.history.damage import damaged
from satwatch.history.schema import Row
from satwatch.sat.codec import (
    DAMAGE,
    Json,
    compress,
    counts_in,
    counts_out,
    decompress,
    flat_in,
    flat_out,
    number_in,
    number_out,
    to_json,
)
from satwatch.types import (
    BatchRecord,
    EngineRecord,
    EngineStatus,
    Event,
    Finding,
    LengthLag,
    Rule,
    StepPoint,
    WorstToken,
)

_BY_VERSION: Final = ("lags", "generation_lags", "queue_lags", "versions")


def _floats_of(cls: type) -> frozenset[str]:
    return frozenset(n for n, hint in get_type_hints(cls).items() if hint is float or float in get_args(hint))


_STATUS_FLOATS: Final = _floats_of(EngineStatus)
_WORST_FLOATS: Final = _floats_of(WorstToken)
_RULE_FIELDS: Final = frozenset(f.name for f in fields(Rule))


def place_of(row: Row) -> str:
    """Return how a row of the steps is called in a refusal."""
    return f"life {row.life}, level {row.level}, block {row.block}"


def rule_out(rule: Rule) -> str:
    """Return a rule as JSON."""
    return to_json(asdict(rule))


@lru_cache(maxsize=256)  # a run's lives have the same one
def rule_in(text: str) -> Rule:
    """Return a rule again."""
    return Rule(**{name: value for name, value in json.loads(text).items() if name in _RULE_FIELDS})


def shown_of(point: StepPoint) -> str:
    """Return what a point shows, beside what has columns, as JSON."""
    shown: dict[str, object] = {
        "values": _values_out(point.values),
        "heat": [int(count) for count in point.heat],
        **{name: counts_out(getattr(point, name)) for name in _BY_VERSION},
        "length_lags": [flat_out(bucket) for bucket in point.length_lags],
        "layer_flip_rates": {str(layer): number_out(rate) for layer, rate in point.layer_flip_rates.items()},
    }
    return to_json(shown)


def point_in(row: Row) -> StepPoint:
    """Return a row of the steps as it is shown.

    Raises:
        DamagedError: a row that can't be read.
    """
    try:
        shown: Json = json.loads(row.shown)
        counts: Json = {name: counts_in(shown[name]) for name in _BY_VERSION}
        return StepPoint(
            life=row.life,
            first_step=row.first_step,
            last_step=row.last_step,
            steps=row.steps,
            at=row.at,
            is_closed=row.is_closed,
            ranks=row.ranks,
            batches=row.batches,
            policy_version=row.policy_version,
            values=_values_in(shown["values"]),
            heat=tuple(shown["heat"]),
            **counts,
            length_lags=tuple(flat_in(LengthLag, bucket) for bucket in shown["length_lags"]),
            layer_flip_rates={int(layer): number_in(rate) for layer, rate in shown["layer_flip_rates"].items()},
        )
    except DAMAGE as error:
        raise damaged(place_of(row), error) from error


def batch_out(batch: BatchRecord, life: int) -> Json:
    """Return a batch as a row."""
    worst = [_known_out(asdict(token)) for token in batch.worst]
    return {
        "life": life,
        "step": batch.step,
        "rank": batch.rank,
        "microbatch": batch.microbatch,
        "at": float(batch.at),
        "policy_version": batch.policy_version,
        "shown": to_json(_values_out(batch.values)),
        "worst": compress(worst),
    }


def batch_in(row: Row) -> BatchRecord:
    """Return a row of the batches.

    Raises:
        DamagedError: a row that can't be read.
    """
    try:
        return BatchRecord(
            life=row.life,
            step=row.step,
            rank=row.rank,
            microbatch=row.microbatch,
            at=row.at,
            policy_version=row.policy_version,
            values=_values_in(json.loads(row.shown)),
            worst=tuple(WorstToken(**_known_in(token, WorstToken, _WORST_FLOATS)) for token in decompress(row.worst)),
        )
    except DAMAGE as error:
        where = f"life {row.life}, step {row.step}, rank {row.rank}, microbatch {row.microbatch}"
        raise damaged(where, error) from error


def event_out(event: Event, life: int | None) -> Json:
    """Return an alert as a row, all but who told it."""
    names = ("run", "engine", "alert", "severity", "state", "evidence", "step", "version")
    return {
        **{name: getattr(event, name) for name in names},
        "life": life,
        "at": float(event.at),
        "is_active": event.state == "raised",
        "value": None if event.value is None else repr(float(event.value)),
        "threshold": None if event.threshold is None else repr(float(event.threshold)),
    }


def event_in(row: Row) -> Event:
    """Return a row of the events."""
    data = {f.name: getattr(row, f.name) for f in fields(Event)}
    numbers = {name: None if data[name] is None else float(data[name]) for name in ("value", "threshold")}
    return Event(**data | numbers)


def engine_out(record: EngineRecord) -> Json:
    """Return what is known of an engine as a row."""
    status = _known_out(asdict(record.status))
    return {"at": float(record.at), "engine": record.status.engine, "run": record.run, "status": to_json(status)}


def engine_in(row: Row) -> EngineRecord:
    """Return a row of the engines.

    Raises:
        DamagedError: a row that can't be read.
    """
    try:
        data = _known_in(json.loads(row.status), EngineStatus, _STATUS_FLOATS)
        data["findings"] = tuple(Finding(item["kind"], item["message"]) for item in data.get("findings", ()))
        return EngineRecord(at=row.at, status=EngineStatus(**data), run=row.run)
    except DAMAGE as error:
        where = f"engine {row.engine} at {row.at}"
        raise damaged(where, error) from error


def _values_out(values: Mapping[str, float]) -> dict[str, float | str]:
    return {name: number_out(value) for name, value in values.items()}


def _values_in(data: Mapping[str, float | str]) -> dict[str, float]:
    return {name: number_in(value) for name, value in data.items()}


def _known_out(data: Json) -> Json:
    """Return the fields that are known, with numbers as JSON has them."""
    return {
        name: number_out(value) if isinstance(value, float) else value
        for name, value in data.items()
        if value is not None
    }


def _known_in(data: Json, cls: type, floats: frozenset[str]) -> Json:
    names = {f.name for f in fields(cls)}
    return {name: number_in(v) if name in floats else v for name, v in data.items() if name in names}
