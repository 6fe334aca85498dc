"""What a history keeps of a run beside its steps: its lives, its batches and its versions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from satwatch import types as t
from satwatch.v1 import satwatch_pb2 as pb
from satwatch.wire.reading import read_each, read_known, require_finite, require_positive
from satwatch.wire.rules import decode_rule, encode_rule
from satwatch.wire.steps import decode_values

MAX_WORST: Final = 64

_RUN_KNOWN: Final = ("first_step", "last_step", "stored_step", "version_published")
_WORST_KNOWN: Final = (
    "sequence",
    "behavior_logprob",
    "policy_logprob",
    "reference_logprob",
    "advantage",
    "version",
    "engine",
)


def encode_run_record(record: t.RunRecord) -> pb.RunRecord:
    """Encode one life of a run."""
    return pb.RunRecord(
        life=record.life,
        run=record.run,
        incarnation=record.incarnation,
        rule=encode_rule(record.rule),
        world_size=record.world_size,
        opened_at=record.opened_at,
        last_at=record.last_at,
        steps=record.steps,
        batches=record.batches,
        tokens=record.tokens,
        is_open=record.is_open,
        ended_at=record.ended_at,
        **{name: getattr(record, name) for name in _RUN_KNOWN},
    )


def decode_run_record(message: pb.RunRecord) -> t.RunRecord:
    """Decode one life of a run.

    Raises:
        ConfigError: a run name or a rule that can't be meant.
        InvalidBatchError: no life, or a moment that is none.
    """
    t.check_run_name(message.run)
    return t.RunRecord(
        life=require_positive("life", message.life),
        run=message.run,
        incarnation=message.incarnation,
        rule=decode_rule(message.rule),
        world_size=require_positive("world_size", message.world_size),
        opened_at=require_finite("opened_at", message.opened_at),
        last_at=require_finite("last_at", message.last_at),
        steps=message.steps,
        batches=message.batches,
        tokens=message.tokens,
        is_open=message.is_open,
        ended_at=require_finite("ended_at", message.ended_at) if message.HasField("ended_at") else None,
        **read_known(message, _RUN_KNOWN),
    )


def encode_run_records(records: Iterable[t.RunRecord]) -> list[pb.RunRecord]:
    """Encode the lives of runs."""
    return [encode_run_record(record) for record in records]


def decode_run_records(messages: Collection[pb.RunRecord]) -> tuple[t.RunRecord, ...]:
    """Decode the lives of runs.

    Raises:
        SatwatchError: too many, or one that can't be meant.
    """
    return read_each("runs", messages, t.MAX_RUN_RECORDS, decode_run_record)


def encode_batch_record(record: t.BatchRecord) -> pb.BatchRecord:
    """Encode one batch, with as many of its worst tokens as a message may carry."""
    return pb.BatchRecord(
        life=record.life,
        step=record.step,
        rank=record.rank,
        microbatch=record.microbatch,
        at=record.at,
        policy_version=record.policy_version,
        values=record.values,
        worst=[_encode_worst(token) for token in record.worst[:MAX_WORST]],
    )


def decode_batch_record(message: pb.BatchRecord) -> t.BatchRecord:
    """Decode one batch.

    Raises:
        InvalidBatchError: no life, a moment that is none, or a list that is too long.
    """
    return t.BatchRecord(
        life=require_positive("life", message.life),
        step=message.step,
        rank=message.rank,
        microbatch=message.microbatch,
        at=require_finite("at", message.at),
        policy_version=message.policy_version if message.HasField("policy_version") else None,
        values=decode_values(message.values),
        worst=read_each("worst", message.worst, MAX_WORST, _decode_worst, "tokens"),
    )


def encode_batch_records(records: Iterable[t.BatchRecord]) -> list[pb.BatchRecord]:
    """Encode the batches of a step."""
    return [encode_batch_record(record) for record in records]


def decode_batch_records(messages: Collection[pb.BatchRecord]) -> tuple[t.BatchRecord, ...]:
    """Decode the batches of a step.

    Raises:
        InvalidBatchError: too many, or one that can't be meant.
    """
    return read_each("batches", messages, t.MAX_BATCH_RECORDS, decode_batch_record)


def _encode_worst(token: t.WorstToken) -> pb.WorstToken:
    known = {name: getattr(token, name) for name in _WORST_KNOWN}
    return pb.WorstToken(log_ratio=token.log_ratio, position=token.position, **known)


def _decode_worst(message: pb.WorstToken) -> t.WorstToken:
    return t.WorstToken(message.log_ratio, message.position, **read_known(message, _WORST_KNOWN))


def encode_version_record(record: t.VersionRecord) -> pb.VersionRecord:
    """Encode a published version."""
    return pb.VersionRecord(life=record.life, version=record.version, at=record.at, step=record.step)


def decode_version_record(message: pb.VersionRecord) -> t.VersionRecord:
    """Decode a published version.

    Raises:
        InvalidBatchError: no life, or a moment that is none.
    """
    return t.VersionRecord(
        life=require_positive("life", message.life),
        version=message.version,
        at=require_finite("at", message.at),
        step=message.step if message.HasField("step") else None,
    )


def encode_version_records(records: Iterable[t.VersionRecord]) -> list[pb.VersionRecord]:
    """Encode the versions that a run has published."""
    return [encode_version_record(record) for record in records]


def decode_version_records(messages: Collection[pb.VersionRecord]) -> tuple[t.VersionRecord, ...]:
    """Decode the versions that a run has published.

    Raises:
        InvalidBatchError: too many, or one that can't be meant.
    """
    return read_each("versions", messages, t.MAX_VERSION_RECORDS, decode_version_record)
