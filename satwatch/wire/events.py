"""What a history keeps over time: alerts raised and resolved, and what was known of the engines."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from satwatch import types as t
from satwatch.errors import InvalidBatchError, SatwatchError, required
from satwatch.v1 import satwatch_pb2 as pb
from satwatch.wire.engines import decode_status, encode_status
from satwatch.wire.reading import cut, read_each, read_known, require_finite

_SEVERITIES: Final[dict[t.Severity, pb.Severity]] = {
    "info": pb.SEVERITY_INFO,
    "warning": pb.SEVERITY_WARNING,
    "critical": pb.SEVERITY_CRITICAL,
}
_SEVERITY_NAMES: Final[dict[int, t.Severity]] = {number: name for name, number in _SEVERITIES.items()}
_KNOWN: Final = ("life", "step", "version", "value", "threshold")


def encode_event(event: t.Event) -> pb.Event:
    """Encode an alert that was raised or resolved; its evidence is cut to what may travel."""
    return pb.Event(
        id=event.id,
        alert=event.alert,
        severity=_SEVERITIES[event.severity],
        resolved=event.state == "resolved",
        at=event.at,
        evidence=cut(event.evidence),
        run=event.run,
        engine=event.engine,
        **{name: getattr(event, name) for name in _KNOWN},
    )


def decode_event(message: pb.Event) -> t.Event:
    """Decode an alert that was raised or resolved; a severity of a later release is read as ``info``.

    Raises:
        InvalidBatchError: no alert, or a moment that is none.
    """
    if not message.alert:
        raise InvalidBatchError(required("alert", "''", "the alert's name"))
    return t.Event(
        alert=cut(message.alert),
        severity=_SEVERITY_NAMES.get(message.severity, "info"),
        state="resolved" if message.resolved else "raised",
        at=require_finite("at", message.at),
        evidence=cut(message.evidence),
        run=message.run,
        engine=message.engine,
        id=message.id,
        **read_known(message, _KNOWN),
    )


def encode_events(events: Iterable[t.Event]) -> list[pb.Event]:
    """Encode alerts raised and resolved."""
    return [encode_event(event) for event in events]


def decode_events(messages: Collection[pb.Event]) -> tuple[t.Event, ...]:
    """Decode alerts raised and resolved.

    Raises:
        InvalidBatchError: too many, or one that can't be meant.
    """
    return read_each("events", messages, t.MAX_EVENTS, decode_event)


def encode_engine_record(record: t.EngineRecord) -> pb.EngineRecord:
    """Encode what was known of an engine at one time."""
    return pb.EngineRecord(at=record.at, status=encode_status(record.status), run=record.run)


def decode_engine_record(message: pb.EngineRecord) -> t.EngineRecord:
    """Decode what was known of an engine at one time.

    Raises:
        InvalidBatchError: a status that can't be meant, or a moment that is none.
    """
    try:
        status = decode_status(message.status)
    except SatwatchError as error:
        raise type(error)(f"status.{error}") from error
    return t.EngineRecord(at=require_finite("at", message.at), status=status, run=message.run)


def encode_engine_records(records: Iterable[t.EngineRecord]) -> list[pb.EngineRecord]:
    """Encode what was known of engines over time."""
    return [encode_engine_record(record) for record in records]


def decode_engine_records(messages: Collection[pb.EngineRecord]) -> tuple[t.EngineRecord, ...]:
    """Decode what was known of engines over time.

    Raises:
        InvalidBatchError: too many, or one that can't be meant.
    """
    return read_each("engines", messages, t.MAX_ENGINE_RECORDS, decode_engine_record)
