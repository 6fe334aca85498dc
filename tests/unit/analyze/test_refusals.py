"""What can't be meant is refused with its file, its place and its field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from satwatch.analyze import Analysis, analyze_files
from satwatch.errors import SatwatchError

Refused = Callable[[Path], str]

D = [0.1, -0.2, 0.3, 0.4]
BATCHES: dict[str, tuple[Any, str]] = {
    "no log-ratio": (
        {"mask": [1]},
        "log_ratio: missing; a batch has log_ratio, or policy_logprob and behavior_logprob",
    ),
    "null log-ratio": (
        {"log_ratio": None},
        "log_ratio: missing; a batch has log_ratio, or policy_logprob and behavior_logprob",
    ),
    "half a pair": (
        {"behavior_logprob": D},
        "log_ratio: missing; a batch has log_ratio, or policy_logprob and behavior_logprob",
    ),
    "two sources": (
        {"log_ratio": D, "policy_logprob": D},
        "log_ratio: got policy_logprob beside it, required one of the two",
    ),
    "pair of two shapes": (
        {"policy_logprob": D, "behavior_logprob": D[1:]},
        "behavior_logprob: got shape (3,), required (4,)",
    ),
    "misspelled": ({"log_ratio": D, "quantil": 0.8}, "quantil: no such field; did you mean quantile?"),
    "unknown": ({"log_ratio": D, "zzz": 1}, "zzz: no such field; known are log_ratio, policy_logprob"),
    "ragged": ({"log_ratio": [[1, 2], [3]]}, "log_ratio: got rows of 1 to 2 values"),
    "mixed depth": ({"log_ratio": [[1, 2], 3]}, "log_ratio[0]: got a list"),
    "three dimensions": ({"log_ratio": [[[1.0]]]}, "log_ratio: got shape (1, 1, 1)"),
    "one number": ({"log_ratio": 0.5}, "log_ratio: got 0.5, required an array"),
    "null inside": ({"log_ratio": [0.1, None]}, "log_ratio[1]: got null"),
    "text inside": ({"log_ratio": [0.1, "0.2"]}, 'log_ratio[1]: got "0.2", required a number'),
    "truth inside": ({"log_ratio": [0.1, True]}, "log_ratio[1]: got true"),
    "endless integer": ({"log_ratio": [10**400]}, "log_ratio: got an integer beyond float64"),
    "shape of another size": ({"log_ratio": D, "shape": [3, 2]}, "shape: got [3, 2], required a product of 4"),
    "negative shape": ({"log_ratio": D, "shape": [-2, -2]}, "shape: got [-2, -2]"),
    "shape beside rows": ({"log_ratio": [D], "shape": [2, 2]}, "shape: got [2, 2], required [1, 4]"),
    "mask of another shape": ({"log_ratio": [D], "mask": [[1, 1], [1, 1]]}, "mask: got shape (2, 2), required (1, 4)"),
    "short mask": ({"log_ratio": D, "mask": [1]}, "mask: got shape (1,), required (4,)"),
    "mask of twos": ({"log_ratio": D, "mask": [1, 1, 2, 0]}, "mask[2]: got 2.0, required 0 or 1"),
    "mask of NaN": ({"log_ratio": D, "mask": [1, 1, "nan", 0]}, "mask[2]: got nan, required 0 or 1"),
    "long advantage": ({"log_ratio": D, "advantage": [1.0] * 5}, "advantage: got shape (5,)"),
    "lengths that don't sum": (
        {"log_ratio": D, "sequence_lengths": [1, 2]},
        "sequence_lengths: got 2 lengths that sum to 3, required a sum of 4",
    ),
    "negative length": ({"log_ratio": D, "sequence_lengths": [5, -1]}, "sequence_lengths: got a length of -1"),
    "half a length": ({"log_ratio": D, "sequence_lengths": [1.5, 2.5]}, "sequence_lengths[0]: got 1.5"),
    "one length": ({"log_ratio": D, "sequence_lengths": 4}, "sequence_lengths: got 4"),
    "no lengths": ({"log_ratio": D, "level": "sequence"}, "sequence_lengths: got None"),
    "alpha": ({"log_ratio": D, "quantile": 1.5}, "quantile: got 1.5, required a number inside (0, 1)"),
    "alpha in words": ({"log_ratio": D, "quantile": "high"}, "quantile: got 'high'"),
    "radius": ({"log_ratio": D, "eps_low": 1}, "eps_low: got 1"),
    "exponent": ({"log_ratio": D, "exponent": 0}, "exponent: got 0"),
    "level": ({"log_ratio": D, "level": "word"}, "level: got 'word', required one of token, sequence"),
    "floor": ({"log_ratio": D, "min_reference": -1}, "min_reference: got -1"),
    "enabled": ({"log_ratio": D, "enabled": "yes"}, "enabled: got 'yes'"),
    "dtype": ({"log_ratio": D, "dtype": "float8"}, 'dtype: got "float8", required one of float64'),
    "no object": (["not a batch"], 'batch: got "not a batch", required an object'),
}


@pytest.mark.parametrize(("content", "message"), BATCHES.values(), ids=BATCHES)
def test_a_bad_batch_names_its_field(content: Any, message: str, refused: Refused, tmp_path: Path):
    path = tmp_path / "batch.json"
    path.write_text(json.dumps(content))

    assert f"{path}" in (said := refused(path))
    assert message in said


def text(content: str | bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content.encode() if isinstance(content, str) else content)


def cut(write: Callable[[Path], object]) -> Callable[[Path], object]:
    def write_half(path: Path) -> None:
        write(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return write_half


def npz(**arrays: Any) -> Callable[[Path], object]:
    return lambda path: np.savez(path, **arrays)


def parquet(columns: dict[str, Any]) -> Callable[[Path], object]:
    return lambda path: pq.write_table(pa.table(columns), path)


def safetensors(**tensors: torch.Tensor) -> Callable[[Path], object]:
    return lambda path: save_file(tensors, path)


FILES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "absent": ("absent.json", lambda path: None, ": no such file"),
    "a folder": ("folder.json", Path.mkdir, ": a folder, no file"),
    "empty JSON": ("batch.json", text(""), ": holds no batch"),
    "empty array": ("batch.json", text("[]"), ": holds no batch"),
    "empty JSONL": ("batch.jsonl", text("\n\n"), ": holds no batch"),
    "broken JSON": ("batch.json", text('{"log_ratio":\n [1, ]}'), "at line 2, column"),
    "two objects": (
        "batch.json",
        text('{"log_ratio": []}\n{"log_ratio": []}'),
        ": no JSON: extra data at line 2, column 1",
    ),
    "no UTF-8": ("batch.json", text(b'{"log_ratio": [\xff]}'), ": no JSON: byte 0xff is not UTF-8"),
    "deep JSON": ("batch.json", text("[" * 100_000), ": JSON nested too deep"),
    "no extension": ("batch", text("{}"), ": no extension; known are .json, .jsonl"),
    "unknown extension": ("batch.csv", text("1,2"), ": unknown extension .csv; known are .json, .jsonl"),
    "no NPZ": ("batch.npz", text("{}"), ": no NPZ archive, or one cut short"),
    "cut NPZ": ("batch.npz", cut(npz(log_ratio=np.zeros(5000))), ": no NPZ archive, or one cut short"),
    "pickled NPZ": ("batch.npz", npz(log_ratio=np.array([{}], dtype=object)), ": damaged, or more than plain arrays: "),
    "NPZ of integers": ("batch.npz", npz(log_ratio=np.arange(3)), "log_ratio: got an array of int64"),
    "NPZ of text": ("batch.npz", npz(log_ratio=np.array(["a"])), "log_ratio: got an array of <U1"),
    "NPZ of complex": ("batch.npz", npz(log_ratio=np.array([1j])), "log_ratio: got an array of complex128"),
    "cut Parquet": ("batch.parquet", cut(parquet({"log_ratio": [D] * 100})), ": damaged, or no Parquet file: "),
    "no Parquet": ("batch.parquet", text("{}"), ": damaged, or no Parquet file: "),
    "no rows": ("batch.parquet", parquet({"log_ratio": pa.array([], pa.list_(pa.float32()))}), ": holds no batch"),
    "null in a row": ("batch.parquet", parquet({"log_ratio": [[0.1, None]]}), "row 0: log_ratio[1]: got null"),
    "row of text": ("batch.parquet", parquet({"log_ratio": [["a"]]}), 'row 0: log_ratio[0]: got "a"'),
    "cut safetensors": (
        "batch.safetensors",
        cut(safetensors(log_ratio=torch.zeros(9))),
        ": damaged, or no safetensors file: ",
    ),
    "no safetensors": ("batch.safetensors", text("{}"), ": damaged, or no safetensors file: "),
    "integer safetensors": (
        "b.safetensors",
        safetensors(log_ratio=torch.arange(3)),
        "log_ratio: got an array of int64",
    ),
}


@pytest.mark.parametrize(("name", "write", "message"), FILES.values(), ids=FILES)
def test_a_bad_file_says_what_is_wrong(
    name: str, write: Callable[[Path], object], message: str, refused: Refused, tmp_path: Path
):
    path = tmp_path / name
    write(path)

    said = refused(path)

    assert said.startswith(str(path))
    assert message in said


def test_a_bad_line_spoils_no_other(tmp_path: Path):
    path, other = tmp_path / "lines.jsonl", tmp_path / "other.json"
    lines = ['{"log_ratio": [1]}', '{"log_ratio": [2]}', '{"log_ratio": [3', '{"log_ratio": [4], "quantile": 2}']
    path.write_text("\n".join([*lines, '{"log_ratio": [5]}']))
    other.write_text('{"log_ratio": [6]}')

    outcomes = list(analyze_files([tmp_path / "absent.npz", path, other]))

    good = [o.result.quantile_reference for o in outcomes if isinstance(o.result, Analysis)]
    bad = [f"{o.name}: {o.result}" for o in outcomes if isinstance(o.result, SatwatchError)]
    assert good == [1, 2, 5, 6]
    assert bad == [
        f"{tmp_path / 'absent.npz'}: no such file",
        f"{path}, line 3: no JSON: expecting ',' delimiter at column 17",
        f"{path}, line 4: quantile: got 2, required a number inside (0, 1)",
    ]


def test_unknown_fields_can_be_left_out(tmp_path: Path):
    path = tmp_path / "batch.json"
    path.write_text('{"log_ratio": [1], "prompt": "reverse 123"}')

    (outcome,) = analyze_files([path], ignore_unknown=True)

    assert isinstance(outcome.result, Analysis)
