"""Bytes and back, bit for bit, whatever the floats hold."""

from __future__ import annotations

import math
import struct

import pytest
import torch

from satwatch.errors import InvalidBatchError
from satwatch.sat import pack, unpack
from satwatch.types import PackedFloats

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip_is_bit_for_bit(dtype):
    values = torch.tensor([[0.1, -0.0], [math.inf, -math.inf], [math.nan, 6e-8]], dtype=dtype)
    back = unpack(pack(values))
    assert back.dtype == dtype
    assert torch.equal(back.view(torch.uint8), values.reshape(-1).view(torch.uint8))


def test_the_bytes_are_little_endian():
    assert pack(torch.tensor([1.5, -2.0])).data == struct.pack("<2f", 1.5, -2.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_packs_to_nothing(dtype):
    assert unpack(pack(torch.empty(0, dtype=dtype))).shape == (0,)


def test_a_strided_view_packs_in_reading_order():
    assert unpack(pack(torch.arange(6.0).reshape(2, 3).t())).tolist() == [0, 3, 1, 4, 2, 5]


def test_what_is_unpacked_is_writable_and_its_own():
    packed = pack(torch.zeros(2))
    unpack(packed).fill_(7)
    assert unpack(packed).tolist() == [0, 0]


def test_what_is_no_float_tensor_is_refused():
    with pytest.raises(InvalidBatchError, match=r"advantage.dtype: got torch.int32"):
        pack(torch.zeros(1, dtype=torch.int32), "advantage")


def test_bytes_that_are_no_whole_number_of_floats_are_refused():
    with pytest.raises(InvalidBatchError, match=r"data: got 7 bytes, required a multiple of 4 \(float32\)"):
        PackedFloats("float32", b"1234567")
    with pytest.raises(InvalidBatchError, match="dtype: got 'int8', required one of float64"):
        PackedFloats("int8", b"1")  # type: ignore[arg-type]
