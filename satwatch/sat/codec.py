"""A step's totals as bytes, and what is shown of anything as JSON text: both exact.

Totals are compressed JSON by the names of their fields. A field that a reader does not know is left out and one that a
writer did not know has its default, so that fields may be added. Numbers that JSON has no word for are the strings
``nan``, ``inf`` and ``-inf``.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, TypeVar

import numpy as np

from satwatch.errors import InvalidBatchError, SatwatchError, required
from satwatch.sat.deltas import Deltas, Gap
from satwatch.sat.lag import VersionLag
from satwatch.sat.moments import Moments
from satwatch.sat.sketch import Sketch
from satwatch.sat.summary import BatchSummary, GateSums
from satwatch.sat.totals import StepTotals
from satwatch.types import LayerRouting, LengthLag, Routing, Total

Json = dict[str, Any]
T = TypeVar("T")

# Higher levels take twice the time for a tenth less.
_COMPRESSION: Final = 3
# What bytes that are not what was written come to.
DAMAGE: Final = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
    zlib.error,
    SatwatchError,
)
# A sketch of all codes there are is a hundredth of this; a file is anybody's.
_LARGEST_BYTES: Final = 256 << 20


def to_json(value: object) -> str:
    """Return the shortest JSON text."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def compress(value: object) -> bytes:
    """Return JSON, compressed."""
    return zlib.compress(to_json(value).encode(), _COMPRESSION)


def decompress(blob: bytes) -> Any:  # noqa: ANN401 - whatever JSON has
    """Return what was compressed.

    Raises:
        ValueError: it was cut, or is far more than anything that is kept.
    """
    stream = zlib.decompressobj()
    text = stream.decompress(blob, _LARGEST_BYTES)
    if not stream.eof:
        raise ValueError(f"cut after {len(blob)} bytes, or too large")  # noqa: TRY003 - its reader says of what
    return json.loads(text)


def number_out(value: Any) -> float | str:  # noqa: ANN401 - numpy scalars come as well
    """Return a number as JSON can have it."""
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, int) or math.isfinite(value) else str(value)


def number_in(value: float | str) -> float:
    """Return a number that JSON had."""
    return float(value) if isinstance(value, str) else value


def flat_out(item: Any) -> Json:  # noqa: ANN401 - any dataclass of numbers
    """Return a dataclass of numbers."""
    return {f.name: number_out(getattr(item, f.name)) for f in fields(item)}


def flat_in(cls: type[T], data: Mapping[str, Any]) -> T:
    """Return a dataclass of numbers again."""
    names = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: number_in(value) for name, value in data.items() if name in names})


def counts_out(counts: Mapping[int, int]) -> dict[str, int]:
    """Return counts by whole number."""
    return {str(int(key)): int(count) for key, count in counts.items()}


def counts_in(data: Mapping[str, int]) -> dict[int, int]:
    """Return counts by whole number again."""
    return {int(key): int(count) for key, count in data.items()}


def encode_totals(totals: StepTotals) -> bytes:
    """Return a step's totals as bytes."""
    summary = totals.summary
    data = {
        "summary": {
            "sketch": _sketch_out(summary.sketch),
            "gate": flat_out(summary.gate),
            "quantile_reference": number_out(summary.quantile_reference),
            "has_advantage": bool(summary.has_advantage),
            "abs_quantiles": None if summary.abs_quantiles is None else [number_out(q) for q in summary.abs_quantiles],
        },
        "lag": _lag_out(totals.lag),
        "routing": None if totals.routing is None else _routing_out(totals.routing),
        "deltas": {f.name: flat_out(getattr(totals.deltas, f.name)) for f in fields(Deltas)},
        "lengths": [flat_out(bucket) for _, bucket in sorted(totals.lengths.items())],
        "measures": {name: flat_out(total) for name, total in totals.measures.items()},
        "batches": int(totals.batches),
        "client_fallbacks": int(totals.client_fallbacks),
    }
    return compress(data)


def decode_totals(blob: bytes) -> StepTotals:
    """Return a step's totals.

    Raises:
        InvalidBatchError: bytes that are none.
    """
    try:
        data = decompress(blob)
        lengths = [flat_in(LengthLag, bucket) for bucket in data.get("lengths", ())]
        return StepTotals(
            summary=_summary_in(data["summary"]),
            lag=_lag_in(data.get("lag", {})),
            routing=None if data.get("routing") is None else _routing_in(data["routing"]),
            deltas=_deltas_in(data.get("deltas", {})),
            lengths={bucket.longest: bucket for bucket in lengths},
            measures={name: flat_in(Total, total) for name, total in data.get("measures", {}).items()},
            batches=int(data.get("batches", 0)),
            client_fallbacks=int(data.get("client_fallbacks", 0)),
        )
    except DAMAGE as error:
        came = f"bytes that can't be read ({error})"[:200]
        raise InvalidBatchError(required("totals", came, "what encode_totals has written")) from error


def _summary_in(data: Json) -> BatchSummary:
    exact = data["abs_quantiles"]
    return BatchSummary(
        sketch=_sketch_in(data["sketch"]),
        gate=flat_in(GateSums, data["gate"]),
        quantile_reference=float(data["quantile_reference"]),
        has_advantage=bool(data["has_advantage"]),
        abs_quantiles=None if exact is None else tuple(number_in(q) for q in exact),
    )


def _sketch_out(sketch: Sketch) -> Json:
    # Codes ascend: their differences are small numbers that compress well.
    steps = np.diff(sketch.codes.astype(np.int64), prepend=0)
    return {"codes": steps.tolist(), "counts": sketch.counts.tolist(), "moments": flat_out(sketch.moments)}


def _sketch_in(data: Json) -> Sketch:
    codes = np.cumsum(np.array(data["codes"], np.int64), dtype=np.int64)
    counts = np.array(data["counts"], np.int64)
    if len(codes) != len(counts) or (len(codes) and not 0 <= codes.min() <= codes.max() < 1 << 16):
        raise ValueError(f"{len(codes)} codes and {len(counts)} counts")  # noqa: TRY003 - caught above
    return Sketch(codes.astype(np.uint16), counts, flat_in(Moments, data["moments"]))


def _lag_out(lag: VersionLag) -> Json:
    by_version = ("lags", "generation_lags", "queue_lags", "versions")
    counts = {name: counts_out(getattr(lag, name)) for name in by_version}
    return {"tokens": int(lag.tokens), "negative_tokens": int(lag.negative_tokens), **counts}


def _lag_in(data: Json) -> VersionLag:
    return VersionLag(
        tokens=int(data.get("tokens", 0)),
        lags=counts_in(data.get("lags", {})),
        generation_lags=counts_in(data.get("generation_lags", {})),
        queue_lags=counts_in(data.get("queue_lags", {})),
        negative_tokens=int(data.get("negative_tokens", 0)),
        versions=counts_in(data.get("versions", {})),
    )


def _routing_out(routing: Routing) -> Json:
    counts = {name: int(getattr(routing, name)) for name in ("tokens", "flipped_tokens", "missing_tokens")}
    return {**counts, "layers": [flat_out(layer) for layer in routing.layers]}


def _routing_in(data: Json) -> Routing:
    return Routing(
        layers=tuple(flat_in(LayerRouting, layer) for layer in data["layers"]),
        tokens=int(data["tokens"]),
        flipped_tokens=int(data["flipped_tokens"]),
        missing_tokens=int(data.get("missing_tokens", 0)),
    )


def _deltas_in(data: Json) -> Deltas:
    return Deltas(**{f.name: flat_in(Gap, data.get(f.name, {})) for f in fields(Deltas)})
