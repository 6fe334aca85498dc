"""A batch in either form: token by token, or as a sketch; and its routing agreement."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from satwatch import types as t
from satwatch.errors import InvalidBatchError, required
from satwatch.v1 import satwatch_pb2 as pb
from satwatch.wire.floats import decode_floats, encode_floats
from satwatch.wire.reading import require_at_most

# A layer is a metric's label, so that its values are bounded.
MAX_LAYERS: Final = 1024
# Sequences without active tokens are legal: this many lengths are taken whatever the tokens.
FREE_SEQUENCES: Final = 1 << 16
# Whatever the tokens: rollouts change their version a few times a sequence.
MAX_VERSION_RUNS: Final = 1 << 20
# As much for the engines of its responses.
MAX_ENGINE_RUNS: Final = 1 << 20
# The codes of bfloat16, and more sums than a sketch of this version has.
MAX_CODES: Final = 1 << 16
MAX_MOMENTS: Final = 64

_FLOAT_FIELDS: Final = ("log_ratio", "advantage", "sequence_advantage", "behavior_logprob", "reference_logprob")


def encode_versions(runs: Iterable[t.VersionRun]) -> list[pb.VersionRun]:
    """Encode run lengths of versions; None stays absent."""
    return [pb.VersionRun(tokens=run.tokens, version=run.version) for run in runs]


def decode_versions(messages: Collection[pb.VersionRun], tokens: int) -> tuple[t.VersionRun, ...]:
    """Decode run lengths of versions; absent becomes None.

    Raises:
        InvalidBatchError: more runs than the batch has tokens, or a run of none.
    """
    require_at_most("behavior_versions", len(messages), "runs", tokens, ", the tokens of log_ratio")
    require_at_most("behavior_versions", len(messages), "runs", MAX_VERSION_RUNS)
    runs = tuple(t.VersionRun(m.tokens, m.version if m.HasField("version") else None) for m in messages)
    if not all(run.tokens for run in runs):
        raise InvalidBatchError(required("behavior_versions", "a run of 0 tokens", "1 or more a run"))
    return runs


def encode_engine_runs(runs: Iterable[t.EngineRun]) -> list[pb.EngineRun]:
    """Encode run lengths of engines."""
    return [pb.EngineRun(tokens=run.tokens, engine=run.engine) for run in runs]


def decode_engine_runs(messages: Collection[pb.EngineRun], tokens: int) -> tuple[t.EngineRun, ...]:
    """Decode run lengths of engines.

    Raises:
        InvalidBatchError: more runs than the batch has tokens, a run of none, or a name that no engine can have.
    """
    require_at_most("behavior_engines", len(messages), "runs", tokens, ", the tokens of log_ratio")
    require_at_most("behavior_engines", len(messages), "runs", MAX_ENGINE_RUNS)
    names: dict[str, str] = {}  # one string a name: protobuf makes another for each run
    runs = tuple(t.EngineRun(m.tokens, names.setdefault(name := m.engine, name)) for m in messages)
    if not all(run.tokens for run in runs):
        raise InvalidBatchError(required("behavior_engines", "a run of 0 tokens", "1 or more a run"))
    for name in filter(None, names):
        try:
            t.check_engine_name(name)
        except InvalidBatchError as error:
            raise InvalidBatchError(f"behavior_engines.{error}") from error
    return runs


def encode_batch(batch: t.TokenBatch, into: pb.TokenBatch | None = None) -> pb.TokenBatch:
    """Encode a microbatch in the tokens form, into a message that is there already or a new one.

    Filling a message in place spares the copies of its bytes that assigning a finished one makes.
    """
    message = pb.TokenBatch() if into is None else into
    for name in _FLOAT_FIELDS:
        values: t.PackedFloats | None = getattr(batch, name)
        if values is not None:
            encode_floats(values, getattr(message, name))
    message.sequence_lengths.extend(batch.sequence_lengths)
    message.behavior_versions.extend(encode_versions(batch.behavior_versions))
    message.behavior_engines.extend(encode_engine_runs(batch.behavior_engines))
    message.versions_by_sequence = batch.versions_by_sequence
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
    require_at_most("sequence_lengths", len(sequences), "lengths", max(tokens, FREE_SEQUENCES))
    return t.TokenBatch(
        sequence_lengths=tuple(sequences),
        behavior_versions=decode_versions(message.behavior_versions, tokens),
        behavior_engines=decode_engine_runs(message.behavior_engines, tokens),
        versions_by_sequence=message.versions_by_sequence,
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
    require_at_most("sketch.code_deltas", len(message.code_deltas), "codes", MAX_CODES)
    require_at_most("sketch.counts", len(message.counts), "counts", MAX_CODES)
    require_at_most("sketch.moments", len(message.moments), "moments", MAX_MOMENTS)
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
    require_at_most("routing.layers", len(message.layers), "layers", MAX_LAYERS)
    layers = tuple(
        t.LayerRouting(m.layer, m.tokens, m.flipped_tokens, m.disagreeing_experts, m.top_k) for m in message.layers
    )
    return t.Routing(layers, message.tokens, message.flipped_tokens, message.missing_tokens)
