"""Tensors to little-endian bytes and back, bit for bit."""

from __future__ import annotations

import sys
from typing import Final

import torch

from satwatch.sat.layout import require_floats
from satwatch.types import DTypeName, PackedFloats

DTYPES: Final[dict[DTypeName, torch.dtype]] = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
NAMES: Final[dict[torch.dtype, DTypeName]] = {dtype: name for name, dtype in DTYPES.items()}


def pack(values: torch.Tensor, name: str = "values") -> PackedFloats:
    """Pack a float tensor of any shape, row after row.

    Raises:
        InvalidBatchError: not a float64, float32, bfloat16 or float16 tensor.

    Copies once, and synchronises with the tensor's device.

    >>> pack(torch.tensor([1.0, -2.0], dtype=torch.bfloat16)).data.hex()
    '803f00c0'
    """
    require_floats(name, values)
    if not values.numel():  # numpy may give an empty array a stride of 0, which torch can't view as bytes
        return PackedFloats(NAMES[values.dtype], b"")
    flat = values.detach().reshape(-1).contiguous().cpu().view(torch.uint8).numpy()
    if sys.byteorder == "big":
        flat = flat.reshape(-1, values.element_size())[:, ::-1]
    return PackedFloats(NAMES[values.dtype], flat.tobytes())


def unpack(packed: PackedFloats) -> torch.Tensor:
    """Unpack to a (n,) CPU tensor that owns its memory.

    >>> unpack(pack(torch.tensor([0.5]))).tolist()
    [0.5]
    """
    dtype = DTYPES[packed.dtype]
    raw = bytearray(packed.data)
    if not raw:
        return torch.empty(0, dtype=dtype, device="cpu")
    flat = torch.frombuffer(raw, dtype=torch.uint8)
    if sys.byteorder == "big":
        flat = flat.view(-1, dtype.itemsize).flip(1).reshape(-1)
    return flat.view(dtype)
