"""The experts that an engine's MoE layers chose for each token, as SGLang and vLLM send them.

Row t is what token t of prompt + completion was routed to as an input. The last token is never an input while
generating, so its row is missing, and stands as -1 here.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from satwatch.engines.reading import read_count
from satwatch.errors import InvalidBatchError, required

Experts: TypeAlias = npt.NDArray[np.integer[Any]]

FIELD: Final = "routed_experts"
MISSING: Final = -1
# 32k tokens of 48 layers and 8 experts are 50 MB.
MAX_BYTES: Final = 2**30
_MAX_SIDE: Final = 2**31 - 1

# The only header that numpy writes for a plain array. Anything else, a pickled object above all, is not read.
_NPY_MAGIC: Final = b"\x93NUMPY"
_NPY_HEADER: Final = re.compile(
    rb"\{'descr': '([<>|](?:i[1248]|u[124]))', 'fortran_order': (False|True), "
    rb"'shape': \((\d{1,12}), (\d{1,12}), (\d{1,12})\), \} *\n"
)
_NPY_HEADER_BYTES: Final = 10_000


def routed_experts_from_sglang(
    text: str | bytes,
    *,
    layers: int,
    top_k: int,
    tokens: int | None = None,
    start: int = 0,
    num_experts: int | None = None,
) -> npt.NDArray[np.int32]:
    """Decode SGLang's ``meta_info["routed_experts"]``: base64 of little-endian int32.

    Args:
        text: the field.
        layers: layers it reports: all hidden layers, dense ones included.
        top_k: experts a token.
        tokens: prompt and completion tokens; None: as many as came, unchecked.
        start: the request's ``routed_experts_start_len``: rows before it are not sent.
        num_experts: experts of a layer; None: an id above it is not noticed.

    Returns:
        Expert ids, (tokens, layers, top_k), -1 where there are none: before ``start``, and at the last token, which the
        engine leaves out. With ``tokens=None``: the rows that came.

    Raises:
        InvalidBatchError: no base64, no whole rows, another number of rows, too many bytes, or ids that no expert has.

    >>> text = base64.b64encode(np.array([[[2, 0]], [[1, 3]]], dtype="<i4").tobytes())
    >>> routed_experts_from_sglang(text, layers=1, top_k=2, tokens=3).tolist()
    [[[2, 0]], [[1, 3]], [[-1, -1]]]
    """
    layers, top_k = read_count("layers", layers, 1, _MAX_SIDE), read_count("top_k", top_k, 1, _MAX_SIDE)
    data = _decode(text)
    row = layers * top_k * 4
    if len(data) % row:
        wanted = f"a multiple of {row}, {layers} layers of {top_k} experts of 4 bytes"
        raise InvalidBatchError(required(FIELD, f"{len(data)} bytes", wanted))
    ids = np.frombuffer(data, dtype="<i4").reshape(-1, layers, top_k)
    _check_ids(ids, num_experts)
    return _laid_out(ids, tokens, start).astype(np.int32, copy=False)


def routed_experts_from_vllm(
    text: str | bytes, *, tokens: int | None = None, num_experts: int | None = None
) -> Experts:
    """Decode vLLM's ``routed_experts``: base64 of an .npy file of integers, (rows, layers, top_k).

    Args:
        text: the field.
        tokens: prompt and completion tokens; None: as many as came, unchecked.
        num_experts: experts of a layer. With it, a dtype too narrow for them is refused: id 300 in a uint8 arrives as
            44, and nothing later could tell.

    Returns:
        Expert ids, (tokens, layers, top_k), in the file's dtype, or a signed one where a missing last row needs -1.

    Raises:
        InvalidBatchError: as :func:`routed_experts_from_sglang`, or no such file. No pickle is ever read.
    """
    data = _decode(text)
    ids = _from_npy(data)
    _check_ids(ids, num_experts)
    return _laid_out(ids, tokens, 0)


def _decode(text: str | bytes) -> bytes:
    if not isinstance(text, str | bytes):
        raise InvalidBatchError(required(FIELD, type(text).__name__, "base64 text"))
    if len(text) > MAX_BYTES * 4 // 3 + 4:
        raise InvalidBatchError(required(FIELD, f"{len(text)} characters", f"at most {MAX_BYTES} bytes as base64"))
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidBatchError(required(FIELD, f"{len(text)} characters ({error})", "base64 text")) from error


def _from_npy(data: bytes) -> Experts:
    if data[:6] != _NPY_MAGIC or data[6:8] not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        raise InvalidBatchError(required(FIELD, f"{len(data)} bytes that begin {data[:8]!r}", "an .npy file"))
    width = 2 if data[6] == 1 else 4
    begin = 8 + width
    size = int.from_bytes(data[8:begin], "little")
    header = _NPY_HEADER.fullmatch(data[begin : begin + size]) if size <= _NPY_HEADER_BYTES else None
    if header is None:
        came = f"an .npy file with header {data[begin : begin + 120]!r}"
        raise InvalidBatchError(required(FIELD, came, "one of integers in three dimensions"))
    descr, fortran, *sides = header.groups()
    shape = [int(side) for side in sides]
    dtype = np.dtype(descr.decode())
    content = data[begin + size :]
    wanted = shape[0] * shape[1] * shape[2] * dtype.itemsize
    if len(content) != wanted or 0 in shape[1:]:
        raise InvalidBatchError(
            required(FIELD, f"{len(content)} bytes of ids", f"{wanted}, shape {tuple(shape)}, none 0")
        )
    ids = np.frombuffer(content, dtype=dtype).reshape(shape, order="F" if fortran == b"True" else "C")
    return ids.astype(dtype.newbyteorder("="), order="C")


def _check_ids(ids: Experts, num_experts: int | None) -> None:
    limits = "0 or more, or -1 for none"
    if num_experts is not None:
        count = read_count("num_experts", num_experts, 1, _MAX_SIDE)
        limits = f"0 to {count - 1}, or -1 for none"
        if np.iinfo(ids.dtype).max < count - 1:
            wanted = f"one that holds expert {count - 1} (num_experts is {count})"
            raise InvalidBatchError(required(f"{FIELD}.dtype", ids.dtype, wanted))
        if ids.size and ids.max() >= count:
            raise InvalidBatchError(required(FIELD, f"expert {ids.max()}", limits))
    if ids.size and ids.min() < MISSING:
        raise InvalidBatchError(required(FIELD, f"expert {ids.min()}", limits))


def _laid_out(ids: Experts, tokens: int | None, start: int) -> Experts:
    """Put the rows where their tokens are, and -1 everywhere else."""
    start = read_count("start", start)
    if tokens is None and not start:
        return ids.copy() if not ids.flags.writeable else ids
    count = start + len(ids) + 1 if tokens is None else read_count("tokens", tokens)
    if start > count:
        raise InvalidBatchError(required("start", start, f"at most {count}, the tokens"))
    sent = count - start
    # Some versions report the last token as well.
    if len(ids) not in (sent, max(sent - 1, 0)):
        wanted = f"{max(sent - 1, 0)}: {count} tokens without the last one" + (f", from {start} on" if start else "")
        raise InvalidBatchError(required(FIELD, f"{len(ids)} rows", wanted))
    if count * ids.shape[1] * ids.shape[2] * ids.itemsize > MAX_BYTES:
        raise InvalidBatchError(required("tokens", count, f"routes of at most {MAX_BYTES} bytes"))
    dtype = ids.dtype if len(ids) == count or ids.dtype.kind == "i" else np.promote_types(ids.dtype, np.int16)
    out = np.full((count, *ids.shape[1:]), MISSING, dtype=dtype)
    out[start : start + len(ids)] = ids
    return out
