"""One microbatch and where it belongs."""

from __future__ import annotations

from satwatch import types as t
from satwatch.errors import InvalidBatchError, required
from satwatch.v1 import satwatch_pb2 as pb
from satwatch.wire.batches import (
    decode_batch,
    decode_routing,
    decode_sketch,
    encode_batch,
    encode_routing,
    encode_sketch,
)


def encode_request(request: t.BoundsRequest) -> pb.ComputeBoundsRequest:
    """Encode one microbatch and where it belongs."""
    message = pb.ComputeBoundsRequest(
        run=request.run,
        incarnation=request.incarnation,
        rank=request.rank,
        step=request.step,
        microbatch=request.microbatch,
        policy_version=request.policy_version,
        rule_only=request.rule_only,
        with_diagnostics=request.with_diagnostics,
        client_fallbacks=request.client_fallbacks,
    )
    if isinstance(request.batch, t.TokenBatch):
        encode_batch(request.batch, message.tokens)
    else:
        message.sketch.CopyFrom(encode_sketch(request.batch))
    if request.routing is not None:
        message.routing.CopyFrom(encode_routing(request.routing))
    return message


def decode_request(message: pb.ComputeBoundsRequest) -> t.BoundsRequest:
    """Decode one microbatch and where it belongs.

    Raises:
        InvalidBatchError: no batch, a step that can't be meant, or a batch whose fields contradict each other.
    """
    if not 0 <= message.step <= t.MAX_STEP:
        raise InvalidBatchError(required("step", message.step, f"0 to {t.MAX_STEP}"))
    kind = message.WhichOneof("batch")
    if kind is None:
        raise InvalidBatchError(required("batch", "nothing", "tokens or a sketch"))
    return t.BoundsRequest(
        run=message.run,
        batch=decode_batch(message.tokens) if kind == "tokens" else decode_sketch(message.sketch),
        incarnation=message.incarnation,
        rank=message.rank,
        step=message.step if message.HasField("step") else None,
        microbatch=message.microbatch if message.HasField("microbatch") else None,
        policy_version=message.policy_version if message.HasField("policy_version") else None,
        routing=decode_routing(message.routing) if message.HasField("routing") else None,
        rule_only=message.rule_only,
        with_diagnostics=message.with_diagnostics,
        client_fallbacks=message.client_fallbacks,
    )
