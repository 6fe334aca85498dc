"""Arrays of floats, whose bytes are read once: protobuf copies them on each access."""

from __future__ import annotations

from typing import Final

from satwatch import types as t
from satwatch.errors import InvalidBatchError, required
from satwatch.v1 import satwatch_pb2 as pb

_DTYPES: Final[dict[t.DTypeName, pb.Dtype]] = {
    "float64": pb.DTYPE_FLOAT64,
    "float32": pb.DTYPE_FLOAT32,
    "bfloat16": pb.DTYPE_BFLOAT16,
    "float16": pb.DTYPE_FLOAT16,
}
_DTYPE_NAMES: Final[dict[int, t.DTypeName]] = {number: name for name, number in _DTYPES.items()}


def encode_floats(values: t.PackedFloats, into: pb.PackedFloats) -> None:
    """Encode an array of floats into a message that is there already: assigning a finished one copies its bytes."""
    into.dtype, into.data = _DTYPES[values.dtype], values.data


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
