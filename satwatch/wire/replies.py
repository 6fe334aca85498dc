"""The sidecar's answer to a batch: the rule that bounds it, or why it was refused."""

from __future__ import annotations

from typing import Final

from satwatch import types as t
from satwatch.errors import BY_NAME, SatwatchError, UnavailableError
from satwatch.v1 import satwatch_pb2 as pb
from satwatch.wire.rules import decode_rule, encode_rule

# A refusal's text travels in a header too, and a header has some kilobytes at most.
MAX_ERROR_BYTES: Final = 1000


def encode_reply(reply: t.BoundsReply) -> pb.ComputeBoundsResponse:
    """Encode the rule that bounds a batch."""
    return pb.ComputeBoundsResponse(
        rule=encode_rule(reply.rule),
        quantile_reference=reply.quantile_reference,
        tokens=reply.tokens,
        gated_low=pb.GatedTokens(index=reply.gated_low.index, factor=reply.gated_low.factor),
        gated_high=pb.GatedTokens(index=reply.gated_high.index, factor=reply.gated_high.factor),
        diagnostics=reply.diagnostics,
    )


def decode_reply(message: pb.ComputeBoundsResponse) -> t.BoundsReply:
    """Decode the rule that bounds a batch.

    Raises:
        ConfigError: a rule that can't be meant.
    """
    return t.BoundsReply(
        rule=decode_rule(message.rule),
        quantile_reference=message.quantile_reference if message.HasField("quantile_reference") else None,
        tokens=message.tokens,
        gated_low=t.GatedTokens(tuple(message.gated_low.index), tuple(message.gated_low.factor)),
        gated_high=t.GatedTokens(tuple(message.gated_high.index), tuple(message.gated_high.factor)),
        diagnostics=dict(message.diagnostics) or None,
    )


def encode_error(error: SatwatchError, code: int) -> pb.BatchError:
    """Encode why a batch on a stream was refused; ``code`` is the gRPC status number."""
    return pb.BatchError(code=code, kind=type(error).__name__, message=error_text(error))


def error_text(error: SatwatchError) -> str:
    """Return an error's message, cut to what fits wherever a refusal travels."""
    text = str(error)[:MAX_ERROR_BYTES].encode(errors="replace")[:MAX_ERROR_BYTES]
    return text.decode(errors="ignore")


def decode_error(message: pb.BatchError) -> SatwatchError:
    """Decode why a batch on a stream was refused; an unknown kind becomes UnavailableError."""
    return BY_NAME.get(message.kind, UnavailableError)(message.message)
