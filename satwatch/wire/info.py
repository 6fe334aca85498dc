"""What a sidecar is, and what it knows of a run."""

from __future__ import annotations

from collections.abc import Collection

from satwatch import types as t
from satwatch.v1 import satwatch_pb2 as pb
from satwatch.wire.reading import read_each
from satwatch.wire.rules import decode_rule, encode_rule


def encode_server_info(info: t.ServerInfo) -> pb.ServerInfo:
    """Encode what a sidecar is."""
    return pb.ServerInfo(
        version=info.version,
        device=info.device,
        max_message_bytes=info.max_message_bytes,
        max_tokens=info.max_tokens,
        metrics_url=info.metrics_url,
        started_at=info.started_at,
    )


def decode_server_info(message: pb.ServerInfo) -> t.ServerInfo:
    """Decode what a sidecar is."""
    return t.ServerInfo(
        version=message.version,
        device=message.device,
        max_message_bytes=message.max_message_bytes,
        max_tokens=message.max_tokens,
        metrics_url=message.metrics_url,
        started_at=message.started_at,
    )


def encode_run_info(info: t.RunInfo) -> pb.RunInfo:
    """Encode what a sidecar knows of one run."""
    return pb.RunInfo(
        run=info.run,
        incarnation=info.incarnation,
        rule=encode_rule(info.rule),
        world_size=info.world_size,
        batches=info.batches,
        tokens=info.tokens,
        published_version=info.published_version,
        policy_version=info.policy_version,
    )


def decode_run_info(message: pb.RunInfo) -> t.RunInfo:
    """Decode what a sidecar knows of one run."""
    return t.RunInfo(
        run=message.run,
        incarnation=message.incarnation,
        rule=decode_rule(message.rule),
        world_size=message.world_size,
        batches=message.batches,
        tokens=message.tokens,
        published_version=message.published_version if message.HasField("published_version") else None,
        policy_version=message.policy_version if message.HasField("policy_version") else None,
    )


def decode_run_infos(messages: Collection[pb.RunInfo]) -> tuple[t.RunInfo, ...]:
    """Decode what a sidecar knows of its runs.

    Raises:
        SatwatchError: too many, or a rule that can't be meant.
    """
    return read_each("runs", messages, t.MAX_RUN_RECORDS, decode_run_info)
