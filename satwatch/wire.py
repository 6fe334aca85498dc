"""The one converter between satwatch's types and its protobuf messages.

``encode_*`` makes a message of a value, ``decode_*`` a value of a message. Decoding refuses what the types refuse,
with the field's name in front. Every ``bytes`` field is read once: protobuf copies it on each access.

A list of a few bytes an entry costs a hundred times as much once it is Python objects. Lists are therefore counted
before they are read, and one that no batch can need is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from satwatch import types as t
from satwatch.errors import BY_NAME, ConfigError, InvalidBatchError, SatwatchError, UnavailableError, required
from satwatch.v1 import satwatch_pb2 as pb

SERVICE: Final = "satwatch.v1.SatwatchService"

# A layer is a metric's label, so that its values are bounded.
MAX_LAYERS: Final = 1024
# Sequences without active tokens are legal: this many lengths are taken whatever the tokens.
FREE_SEQUENCES: Final = 1 << 16
# Whatever the tokens: rollouts change their version a few times a sequence.
MAX_VERSION_RUNS: Final = 1 << 20
# The codes of bfloat16, and more sums than a sketch of this version has.
MAX_CODES: Final = 1 << 16
MAX_MOMENTS: Final = 64
# A refusal's text travels in a header too, and a header has some kilobytes at most.
MAX_ERROR_BYTES: Final = 1000

_DTYPES: Final[dict[t.DTypeName, pb.Dtype]] = {
    "float64": pb.DTYPE_FLOAT64,
    "float32": pb.DTYPE_FLOAT32,
    "bfloat16": pb.DTYPE_BFLOAT16,
    "float16": pb.DTYPE_FLOAT16,
}
_DTYPE_NAMES: Final[dict[int, t.DTypeName]] = {number: name for name, number in _DTYPES.items()}
_LEVELS: Final[dict[t.Level, pb.Level]] = {"token": pb.LEVEL_TOKEN, "sequence": pb.LEVEL_SEQUENCE}
_LEVEL_NAMES: Final[dict[int, t.Level]] = {
    pb.LEVEL_UNSPECIFIED: "token",
    pb.LEVEL_TOKEN: "token",
    pb.LEVEL_SEQUENCE: "sequence",
}
_SCOPES: Final[dict[t.Scope, pb.Scope]] = {
    "microbatch": pb.SCOPE_MICROBATCH,
    "step": pb.SCOPE_STEP,
    "window": pb.SCOPE_WINDOW,
}
_SCOPE_NAMES: Final[dict[int, t.Scope]] = {
    pb.SCOPE_UNSPECIFIED: "microbatch",
    pb.SCOPE_MICROBATCH: "microbatch",
    pb.SCOPE_STEP: "step",
    pb.SCOPE_WINDOW: "window",
}

M = TypeVar("M", bound=Message)


def parse(message: type[M], data: bytes) -> M:
    """Parse a serialized message.

    Raises:
        InvalidBatchError: the bytes are not such a message.
    """
    try:
        return message.FromString(data)
    except DecodeError as error:
        name = message.DESCRIPTOR.name
        raise InvalidBatchError(required("request", f"{len(data)} bytes that do not parse", f"a {name}")) from error


def _require_at_most(name: str, count: int, unit: str, limit: int, why: str = "") -> None:
    if count > limit:
        raise InvalidBatchError(required(name, f"{count} {unit}", f"at most {limit}{why}"))


def encode_rule(rule: t.Rule) -> pb.Rule:
    """Encode a rule with every field set."""
    return pb.Rule(
        quantile=rule.quantile,
        eps_low=rule.eps_low,
        eps_high=rule.eps_high,
        exponent=rule.exponent,
        level=_LEVELS[rule.level],
        scope=_SCOPES[rule.scope],
        min_reference=rule.min_reference,
        enabled=rule.enabled,
    )


def decode_rule(message: pb.Rule) -> t.Rule:
    """Decode a rule; absent fields take their defaults.

    Raises:
        ConfigError: a value outside its range, or an unknown level or scope.
    """
    level, scope = _LEVEL_NAMES.get(message.level), _SCOPE_NAMES.get(message.scope)
    if level is None:
        raise ConfigError(required("rule.level", f"number {message.level}", "a Level of this version"))
    if scope is None:
        raise ConfigError(required("rule.scope", f"number {message.scope}", "a Scope of this version"))
    names = ("quantile", "eps_low", "eps_high", "exponent", "min_reference", "enabled")
    given = {name: getattr(message, name) for name in names if message.HasField(name)}
    return t.Rule(level=level, scope=scope, **given)


def encode_opening(opening: t.RunOpening) -> pb.OpenRunRequest:
    """Encode a rank's announcement of its run."""
    return pb.OpenRunRequest(
        run=opening.run,
        incarnation=opening.incarnation,
        rank=opening.rank,
        world_size=opening.world_size,
        rule=encode_rule(opening.rule),
    )


def decode_opening(message: pb.OpenRunRequest) -> t.RunOpening:
    """Decode a rank's announcement of its run.

    Raises:
        ConfigError: a name, rank or rule that can't be meant.
    """
    return t.RunOpening(
        run=message.run,
        incarnation=message.incarnation,
        rank=message.rank,
        world_size=message.world_size or 1,
        rule=decode_rule(message.rule),
    )


def decode_floats(name: str, message: pb.PackedFloats) -> t.PackedFloats:
    """Decode an array of floats.

    Raises:
        InvalidBatchError: an unknown dtype, or bytes that are no whole number of elements.
    """
    dtype = _DTYPE_NAMES.get(message.dtype)
    if dtype is None:
        came = f"number {message.dtype}"
        raise InvalidBatchError(required(f"{name}.dtype", came, "float64, float32, bfloat16 or float16"))
    try:
        return t.PackedFloats(dtype, message.data)
    except InvalidBatchError as error:
        raise InvalidBatchError(f"{name}.{error}") from error


def encode_versions(runs: Iterable[t.VersionRun]) -> list[pb.VersionRun]:
    """Encode run lengths of versions; None stays absent."""
    return [pb.VersionRun(tokens=run.tokens, version=run.version) for run in runs]


def decode_versions(messages: Collection[pb.VersionRun], tokens: int) -> tuple[t.VersionRun, ...]:
    """Decode run lengths of versions; absent becomes None.

    Raises:
        InvalidBatchError: more runs than the batch has tokens, or a run of none.
    """
    _require_at_most("behavior_versions", len(messages), "runs", tokens, ", the tokens of log_ratio")
    _require_at_most("behavior_versions", len(messages), "runs", MAX_VERSION_RUNS)
    runs = tuple(t.VersionRun(m.tokens, m.version if m.HasField("version") else None) for m in messages)
    if not all(run.tokens for run in runs):
        raise InvalidBatchError(required("behavior_versions", "a run of 0 tokens", "1 or more a run"))
    return runs


_FLOAT_FIELDS: Final = ("log_ratio", "advantage", "sequence_advantage", "behavior_logprob", "reference_logprob")


def encode_batch(batch: t.TokenBatch, into: pb.TokenBatch | None = None) -> pb.TokenBatch:
    """Encode a microbatch in the tokens form, into a message that is there already or a new one.

    Filling a message in place spares the copies of its bytes that assigning a finished one makes.
    """
    message = pb.TokenBatch() if into is None else into
    for name in _FLOAT_FIELDS:
        values: t.PackedFloats | None = getattr(batch, name)
        if values is not None:
            packed: pb.PackedFloats = getattr(message, name)
            packed.dtype, packed.data = _DTYPES[values.dtype], values.data
    message.sequence_lengths.extend(batch.sequence_lengths)
    message.behavior_versions.extend(encode_versions(batch.behavior_versions))
    return message


def decode_batch(message: pb.TokenBatch) -> t.TokenBatch:
    """Decode a microbatch in the tokens form.

    Raises:
        InvalidBatchError: no log-ratios, an unknown dtype, a list that is too long, or fields that contradict each
            other.
    """
    if not message.HasField("log_ratio"):
        raise InvalidBatchError(required("log_ratio", "nothing", "packed floats, zero or more tokens"))
    arrays = {name: decode_floats(name, getattr(message, name)) for name in _FLOAT_FIELDS if message.HasField(name)}
    tokens, sequences = len(arrays["log_ratio"]), message.sequence_lengths
    _require_at_most("sequence_lengths", len(sequences), "lengths", max(tokens, FREE_SEQUENCES))
    return t.TokenBatch(
        sequence_lengths=tuple(sequences),
        behavior_versions=decode_versions(message.behavior_versions, tokens),
        **arrays,
    )


def encode_sketch(sketch: t.PackedSketch) -> pb.Sketch:
    """Encode a batch in the sketch form."""
    return pb.Sketch(
        code_deltas=sketch.code_deltas,
        counts=sketch.counts,
        nan_tokens=sketch.nan_tokens,
        moments=sketch.moments,
    )


def decode_sketch(message: pb.Sketch) -> t.PackedSketch:
    """Decode a batch in the sketch form.

    Raises:
        InvalidBatchError: more codes than there are, or more moments.
    """
    _require_at_most("sketch.code_deltas", len(message.code_deltas), "codes", MAX_CODES)
    _require_at_most("sketch.counts", len(message.counts), "counts", MAX_CODES)
    _require_at_most("sketch.moments", len(message.moments), "moments", MAX_MOMENTS)
    return t.PackedSketch(tuple(message.code_deltas), tuple(message.counts), message.nan_tokens, tuple(message.moments))


def encode_routing(routing: t.Routing) -> pb.Routing:
    """Encode routing agreement counts."""
    layers = [
        pb.LayerRouting(
            layer=layer.layer,
            tokens=layer.tokens,
            flipped_tokens=layer.flipped_tokens,
            disagreeing_experts=layer.disagreeing_experts,
            top_k=layer.top_k,
        )
        for layer in routing.layers
    ]
    return pb.Routing(
        layers=layers,
        tokens=routing.tokens,
        flipped_tokens=routing.flipped_tokens,
        missing_tokens=routing.missing_tokens,
    )


def decode_routing(message: pb.Routing) -> t.Routing:
    """Decode routing agreement counts.

    Raises:
        InvalidBatchError: too many layers, or counts that contradict each other.
    """
    _require_at_most("routing.layers", len(message.layers), "layers", MAX_LAYERS)
    layers = tuple(
        t.LayerRouting(m.layer, m.tokens, m.flipped_tokens, m.disagreeing_experts, m.top_k) for m in message.layers
    )
    return t.Routing(layers, message.tokens, message.flipped_tokens, message.missing_tokens)


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
