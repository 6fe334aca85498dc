"""Files that fail in their reader's own ways: each is reported with a name, and the files after it are analyzed."""

from __future__ import annotations

import json
import struct
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from satwatch.analyze.files import analyze_files
from satwatch.errors import SatwatchError


def write_json(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def npz_member(path, data, **entry):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("log_ratio.npy", data, **entry)
    return path


def huge_header():
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def safetensors(path, metadata):
    header = json.dumps({"__metadata__": metadata, "log_ratio": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + struct.pack("<f", 0.5))
    return path


FILES = {
    "a dtype that is a list": lambda d: write_json(d / "a.json", '{"log_ratio": [1.0], "dtype": ["float32"]}'),
    "a 400-digit quantile": lambda d: write_json(d / "a.json", f'{{"log_ratio": [1.0], "quantile": 1{"0" * 400}}}'),
    "a 5000-digit number": lambda d: write_json(d / "a.json", f'{{"log_ratio": [1.0], "step": 1{"0" * 5000}}}'),
    "deep JSON": lambda d: write_json(d / "a.json", "[" * 100_000),
    "a shape beyond int64": lambda d: write_json(d / "a.json", f'{{"log_ratio": [], "shape": [{2**70}, 0]}}'),
    "lengths that wrap": lambda d: write_json(
        d / "a.json",
        f'{{"log_ratio": [1.0], "level": "sequence", "sequence_lengths": [{2**62}, {2**62}, {2**62}, {2**62}, 1]}}',
    ),
    "a level that is an array": lambda d: npz(d / "a.npz", log_ratio=np.zeros(2), level=np.array(["token", "token"])),
    "pickled objects": lambda d: npz(d / "a.npz", log_ratio=np.array([{}], dtype=object)),
    "a header of 8 TiB": lambda d: npz_member(d / "a.npz", huge_header()),
    "a broken header": lambda d: npz_member(d / "a.npz", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f8' '"),
    "no numpy at all": lambda d: npz_member(d / "a.npz", b"garbage"),
    "metadata that nests": lambda d: safetensors(d / "a.safetensors", {"quantile": "[" * 100_000}),
    "metadata of 5000 digits": lambda d: safetensors(d / "a.safetensors", {"quantile": "1" * 5000}),
}


def struct_column(folder):
    table = pa.table({"log_ratio": pa.array([{"values": 1.0}])})
    pq.write_table(table, folder / "a.parquet")
    return folder / "a.parquet"


FILES["a struct column"] = struct_column


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_reported_and_the_next_is_analyzed(name, tmp_path):
    bad = FILES[name](tmp_path)
    good = write_json(tmp_path / "good.json", '{"log_ratio": [0.1, 0.2]}')
    bad_outcome, good_outcome = analyze_files([bad, good])
    assert isinstance(bad_outcome.result, SatwatchError)
    assert str(bad_outcome.result)
    assert bad_outcome.file == bad
    assert good_outcome.result.summary.sketch.moments.tokens == 2
