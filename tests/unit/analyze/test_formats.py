"""Every format gives the same analysis as the same numbers in memory."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from satwatch.analyze import Analysis, analyze_files
from satwatch.sat import clip_bounds, diagnostics

Analyzed = Callable[..., Analysis]
RULE = ("quantile", "eps_low", "eps_high", "level")


def nested(values: Any) -> Any:
    return values.tolist() if isinstance(values, np.ndarray) else values


def write_json(path: Path, batch: dict[str, Any]) -> None:
    path.write_text(json.dumps({**{name: nested(value) for name, value in batch.items()}, "dtype": "float32"}))


def write_flat_json(path: Path, batch: dict[str, Any]) -> None:
    flat = {name: nested(value.ravel()) if isinstance(value, np.ndarray) else value for name, value in batch.items()}
    path.write_text(json.dumps({**flat, "shape": batch["log_ratio"].shape, "dtype": "float32"}))


def write_jsonl(path: Path, batch: dict[str, Any]) -> None:
    write_json(path, batch)
    path.write_text(f"\n{path.read_text()}\n\n")


def write_npz(path: Path, batch: dict[str, Any]) -> None:
    with path.open("wb") as file:  # a path without the extension .npz would get one
        np.savez_compressed(file, **batch)


def write_parquet(path: Path, batch: dict[str, Any]) -> None:
    pq.write_table(parquet_table(batch), path)


def parquet_table(batch: dict[str, Any]) -> pa.Table:
    flat = {name: [value.ravel()] if isinstance(value, np.ndarray) else [value] for name, value in batch.items()}
    return pa.table({**flat, "shape": [list(batch["log_ratio"].shape)]})


def write_nested_parquet(path: Path, batch: dict[str, Any]) -> None:
    pq.write_table(pa.table({name: [nested(value)] for name, value in {**batch, "dtype": "float32"}.items()}), path)


def write_safetensors(path: Path, batch: dict[str, Any]) -> None:
    tensors = {name: torch.from_numpy(value) for name, value in batch.items() if isinstance(value, np.ndarray)}
    metadata = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in batch.items() if name in RULE
    }
    save_file(tensors, path, metadata={**metadata, "format": "pt"})


WRITERS = {
    "nested.json": write_json,
    "flat.json": write_flat_json,
    "lines.jsonl": write_jsonl,
    "lines.ndjson": write_jsonl,
    "arrays.npz": write_npz,
    "UPPER.NPZ": write_npz,
    "flat.parquet": write_parquet,
    "nested.parquet": write_nested_parquet,
    "tensors.safetensors": write_safetensors,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_format_gives_what_the_tensors_give(name: str, batch: dict[str, Any], analyzed: Analyzed, tmp_path: Path):
    path = tmp_path / name
    WRITERS[name](path, batch)
    log_ratio, mask, advantage = (torch.from_numpy(batch[key]) for key in ("log_ratio", "mask", "advantage"))
    rule = {key: batch[key] for key in RULE}

    analysis = analyzed(path)

    bounds = clip_bounds(log_ratio, mask=mask, **rule)
    for part in ("low", "high", "gate"):
        assert torch.equal(getattr(analysis.bounds, part), getattr(bounds, part)), part
    assert analysis.bounds.low.dtype == torch.float32
    assert analysis.diagnostics == diagnostics(log_ratio, mask=mask, advantage=advantage, **rule)
    assert analysis.diagnostics["gate_rate"] > 0.1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_safetensors_keep_their_dtype(dtype: torch.dtype, analyzed: Analyzed, tmp_path: Path):
    path = tmp_path / "batch.safetensors"
    log_ratio = torch.linspace(-1, 1, 101, dtype=torch.float64).to(dtype)
    save_file({"log_ratio": log_ratio}, path)

    analysis = analyzed(path)

    assert torch.equal(analysis.bounds.low, clip_bounds(log_ratio).low)
    assert analysis.quantile_reference == float(clip_bounds(log_ratio).quantile_reference)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_dtype_rounds_json_numbers(dtype: str, analyzed: Analyzed, tmp_path: Path):
    path = tmp_path / "batch.json"
    values = [0.1, -0.2, 0.30001, -0.7]
    path.write_text(json.dumps({"log_ratio": values, "quantile": 0.5, "dtype": dtype}))

    expected = torch.tensor(values, dtype=torch.float64).to(getattr(torch, dtype)).double().abs()
    assert analyzed(path).quantile_reference == float(expected.sort().values[1])


def test_half_floats_in_parquet_keep_their_dtype(analyzed: Analyzed, tmp_path: Path):
    path = tmp_path / "batch.parquet"
    values = np.linspace(-1, 1, 11).astype(np.float16)
    pq.write_table(pa.table({"log_ratio": pa.array([values], pa.list_(pa.float16()))}), path)

    assert analyzed(path).quantile_reference == float(np.abs(values).max())


def test_parquet_rows_are_batches(tmp_path: Path):
    path = tmp_path / "rows.parquet"
    rows = [[float(n + 1)] * (n + 1) for n in range(20)]
    pq.write_table(pa.table({"log_ratio": rows, "step": range(20), "mask": [None] * 20}), path)

    outcomes = list(analyze_files([path]))

    assert [(o.batch, o.where) for o in outcomes] == [(n, f"row {n}") for n in range(20)]
    assert [o.result.diagnostics["tokens"] for o in outcomes] == [len(row) for row in rows]
    assert [o.result.labels["step"] for o in outcomes] == list(range(20))


def test_log_probs_stand_for_their_difference(batch: dict[str, Any], analyzed: Analyzed, tmp_path: Path):
    path = tmp_path / "batch.npz"
    policy, behavior = -np.abs(batch["log_ratio"]), -np.abs(batch["advantage"])
    np.savez(path, policy_logprob=policy, behavior_logprob=behavior)

    expected = diagnostics(torch.from_numpy(policy - behavior))
    assert analyzed(path).diagnostics == expected


def test_half_log_probs_are_subtracted_in_float32(analyzed: Analyzed, tmp_path: Path):
    path = tmp_path / "batch.safetensors"
    policy, behavior = torch.tensor([-1.0, -2.0]).bfloat16(), torch.tensor([-1.0078125, -300.0]).bfloat16()
    save_file({"policy_logprob": policy, "behavior_logprob": behavior}, path)

    assert analyzed(path).diagnostics["log_ratio_abs_max"] == 298.0


def test_arguments_beat_the_file_and_the_file_beats_the_defaults(analyzed: Analyzed, tmp_path: Path):
    path = tmp_path / "batch.json"
    path.write_text(json.dumps({"log_ratio": [1, 2, 3, 4], "quantile": 0.5, "eps_low": 0.1}))

    rule = analyzed(path, eps_low=0.3, level="token", enabled=False).rule

    assert (rule.quantile, rule.eps_low, rule.eps_high, rule.enabled) == (0.5, 0.3, 0.2, False)


def test_standard_input_is_json_lines(monkeypatch: pytest.MonkeyPatch):
    text = b'{"log_ratio": [1.0, 2.0]}\n{"log_ratio": [3.0]}\n'
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))

    outcomes = list(analyze_files([Path("-")]))

    assert [o.name for o in outcomes] == ["standard input, line 1", "standard input, line 2"]
    assert [o.result.quantile_reference for o in outcomes] == [2.0, 3.0]


def test_lines_are_read_as_they_come(tmp_path: Path):
    """The second line is damaged, and the first batch is out before it's looked at."""
    path = tmp_path / "lines.jsonl"
    path.write_text('{"log_ratio": [1.0]}\nnot json\n{"log_ratio": [2.0]}\n')

    outcomes = analyze_files([path])

    assert next(outcomes).result.quantile_reference == 1.0
    assert "line 2" in next(outcomes).name
    assert next(outcomes).result.quantile_reference == 2.0


@pytest.mark.parametrize("values", [[], [[], []]])
def test_a_batch_without_tokens_has_an_answer(values: list[Any], analyzed: Analyzed, tmp_path: Path):
    path = tmp_path / "batch.json"
    path.write_text(json.dumps({"log_ratio": values}))

    assert analyzed(path).diagnostics == {"tokens": 0, "nan_tokens": 0, "inf_tokens": 0}


def test_numbers_that_json_lacks(analyzed: Analyzed, tmp_path: Path):
    path = tmp_path / "batch.json"
    path.write_text('{"log_ratio": [0.5, "nan", NaN, "inf", "-inf", -Infinity, 1]}')

    found = analyzed(path).diagnostics

    assert (found["tokens"], found["nan_tokens"], found["inf_tokens"]) == (7, 2, 3)


def test_one_advantage_a_sequence(analyzed: Analyzed, tmp_path: Path):
    spread, each = tmp_path / "spread.json", tmp_path / "each.json"
    batch = {"log_ratio": [0.5, 0.5, -0.5, 0.5], "sequence_lengths": [1, 3]}
    spread.write_text(json.dumps({**batch, "advantage": [1, -1, -1, -1]}))
    each.write_text(json.dumps({**batch, "advantage": [1, -1]}))

    assert analyzed(each).diagnostics == analyzed(spread).diagnostics
    assert analyzed(each).diagnostics["clip_fraction"] == 0.5
