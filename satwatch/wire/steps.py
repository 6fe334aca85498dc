"""A step: what a rank says of it, and what a history keeps of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from satwatch import types as t
from satwatch.errors import InvalidBatchError, required
from satwatch.v1 import satwatch_pb2 as pb
from satwatch.wire.batches import MAX_LAYERS
from satwatch.wire.reading import read_each, require_at_most, require_finite, require_positive

# The diagnostics of docs/diagnostics.md are a few dozens, each with a short name.
MAX_VALUES: Final = 1024
# Lags and versions of one point; a point may be many steps, each with versions of its own.
MAX_LAGS: Final = 1 << 16
# Powers of two of 32 bits.
MAX_LENGTHS: Final = 32

_LARGEST: Final = 2**64 - 1


def encode_total(total: t.Total) -> pb.Total:
    """Encode a sum and its counts."""
    return pb.Total(total=total.total, count=total.count, nan_count=total.nan_count)


def decode_total(message: pb.Total) -> t.Total:
    """Decode a sum and its counts.

    Raises:
        InvalidBatchError: a sum of no numbers that is not 0.
    """
    # Infinite numbers of both signs sum to NaN, so that a sum may be anything; that of none is 0.
    if not message.count and message.total != 0:
        raise InvalidBatchError(required("total", message.total, "0, the sum of no numbers"))
    return t.Total(message.total, message.count, message.nan_count)


def encode_step_report(report: t.StepReport) -> pb.ReportStepRequest:
    """Encode what a rank says of a step."""
    return pb.ReportStepRequest(
        run=report.run,
        incarnation=report.incarnation,
        rank=report.rank,
        step=report.step,
        measures={name: encode_total(total) for name, total in report.measures.items()},
        ended=report.ended,
    )


def decode_step_report(message: pb.ReportStepRequest) -> t.StepReport:
    """Decode what a rank says of a step.

    Raises:
        ConfigError: a run name that can't be meant.
        InvalidBatchError: a step that no batch can have, an unknown measure, or one that can't be meant.
    """
    if not 0 <= message.step <= t.MAX_STEP:
        raise InvalidBatchError(required("step", message.step, f"0 to {t.MAX_STEP}"))
    require_at_most("measures", len(message.measures), "measures", len(t.MEASURES))
    return t.StepReport(
        run=message.run,
        step=message.step,
        incarnation=message.incarnation,
        rank=message.rank,
        measures={name: _decode_measure(name, message.measures[name]) for name in message.measures},
        ended=message.ended,
    )


def _decode_measure(name: str, message: pb.Total) -> t.Total:
    try:
        return decode_total(message)
    except InvalidBatchError as error:
        raise InvalidBatchError(f"measures[{name[:80]!r}].{error}") from error


def encode_step_point(point: t.StepPoint) -> pb.StepPoint:
    """Encode a step, or merged neighbours: of more lags or versions than may travel, those with the most tokens."""
    return pb.StepPoint(
        life=point.life,
        first_step=point.first_step,
        last_step=point.last_step,
        steps=point.steps,
        at=point.at,
        is_closed=point.is_closed,
        ranks=point.ranks,
        batches=point.batches,
        policy_version=point.policy_version,
        values=point.values,
        heat=point.heat,
        lags=_most(point.lags),
        generation_lags=_most(point.generation_lags),
        queue_lags=_most(point.queue_lags),
        versions=_most(point.versions),
        length_lags=[_encode_length_lag(lag) for lag in point.length_lags],
        layer_flip_rates=point.layer_flip_rates,
    )


def decode_step_point(message: pb.StepPoint) -> t.StepPoint:
    """Decode a step, or merged neighbours.

    Raises:
        InvalidBatchError: a heat of another length, a list that is too long, or fields that contradict each other.
    """
    if len(message.heat) != t.HEAT_BUCKETS:
        came = f"{len(message.heat)} buckets"
        raise InvalidBatchError(required("heat", came, f"{t.HEAT_BUCKETS}, those of docs/wire.md"))
    if message.first_step > message.last_step:
        wanted = f"at least {message.first_step}, the first step"
        raise InvalidBatchError(required("last_step", message.last_step, wanted))
    require_at_most("layer_flip_rates", len(message.layer_flip_rates), "layers", MAX_LAYERS)
    return t.StepPoint(
        life=require_positive("life", message.life),
        first_step=message.first_step,
        last_step=message.last_step,
        steps=require_positive("steps", message.steps),
        at=require_finite("at", message.at),
        is_closed=message.is_closed,
        ranks=message.ranks,
        batches=message.batches,
        policy_version=message.policy_version if message.HasField("policy_version") else None,
        values=decode_values(message.values),
        heat=tuple(message.heat),
        lags=_read_counts("lags", message.lags),
        generation_lags=_read_counts("generation_lags", message.generation_lags),
        queue_lags=_read_counts("queue_lags", message.queue_lags),
        versions=_read_counts("versions", message.versions),
        length_lags=read_each("length_lags", message.length_lags, MAX_LENGTHS, _decode_length_lag, "lengths"),
        layer_flip_rates=dict(message.layer_flip_rates),
    )


def encode_step_points(points: Iterable[t.StepPoint]) -> list[pb.StepPoint]:
    """Encode the steps of a range."""
    return [encode_step_point(point) for point in points]


def decode_step_points(messages: Collection[pb.StepPoint]) -> tuple[t.StepPoint, ...]:
    """Decode the steps of a range.

    Raises:
        InvalidBatchError: too many, or one that can't be meant.
    """
    return read_each("points", messages, t.MAX_STEP_POINTS, decode_step_point)


def decode_values(values: Mapping[str, float]) -> dict[str, float]:
    """Decode diagnostics by name.

    Raises:
        InvalidBatchError: more than there can be.
    """
    require_at_most("values", len(values), "values", MAX_VALUES)
    return dict(values)


def _most(counts: Mapping[int, int]) -> Mapping[int, int]:
    if len(counts) <= MAX_LAGS:
        return counts
    return dict(sorted(counts.items(), key=lambda entry: entry[1], reverse=True)[:MAX_LAGS])


def _read_counts(name: str, counts: Mapping[int, int]) -> dict[int, int]:
    require_at_most(name, len(counts), "entries", MAX_LAGS)
    return dict(counts)


_LENGTH_LAG_SUMS: Final = ("length", "tokens", "lag", "split_tokens", "generation_lag", "queue_lag")


def _encode_length_lag(lag: t.LengthLag) -> pb.LengthLag:
    # Versions are any numbers of 64 bits; a sum of their differences may be more.
    sums = {name: min(getattr(lag, name), _LARGEST) for name in _LENGTH_LAG_SUMS}
    return pb.LengthLag(longest=lag.longest, responses=lag.responses, **sums)


def _decode_length_lag(message: pb.LengthLag) -> t.LengthLag:
    longest = message.longest
    if longest.bit_count() != 1:
        raise InvalidBatchError(required("longest", longest, "a power of two"))
    if not message.split_tokens <= message.tokens <= message.length:
        came = f"{message.split_tokens} of {message.tokens} of {message.length} tokens"
        raise InvalidBatchError(required("split_tokens", came, "a part of tokens, and those a part of length"))
    sums = {name: getattr(message, name) for name in _LENGTH_LAG_SUMS}
    return t.LengthLag(longest=longest, responses=message.responses, **sums)
