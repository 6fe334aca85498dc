"""The golden cases: inputs with their right answers in float64, and how to compare with them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

FILE = Path(__file__).with_name("sat_cases.json")
RULE = ("quantile", "eps_low", "eps_high", "exponent", "level", "min_reference", "enabled")
# Relative.
TOLERANCE = {"float64": 1e-6, "float32": 1e-5}
DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True)
class Case:
    name: str
    input: Mapping[str, Any]
    expect: Mapping[str, Any]

    def tensor(self, field: str, dtype: torch.dtype) -> torch.Tensor | None:
        values = self.input[field]
        if values is None:
            return None
        flat = torch.tensor([float(value) for value in values], dtype=torch.float64).to(dtype)
        return flat if self.input["shape"] is None else flat.reshape(self.input["shape"])

    def log_ratio(self, dtype: str) -> torch.Tensor:
        values = self.tensor("log_ratio", DTYPES[dtype])
        assert values is not None
        return values

    def advantage(self, dtype: str) -> torch.Tensor | None:
        return self.tensor("advantage", DTYPES[dtype])

    @property
    def mask(self) -> torch.Tensor | None:
        return self.tensor("mask", torch.bool)

    @property
    def rule(self) -> dict[str, Any]:
        return {name: self.input[name] for name in RULE}

    @property
    def layout(self) -> dict[str, Any]:
        return {"mask": self.mask, "sequence_lengths": self.input["sequence_lengths"]}


CASES = [Case(raw["name"], raw["input"], raw["expect"]) for raw in json.loads(FILE.read_text())]


def close(came: float | str | None, expected: float | str | None, tolerance: float) -> bool:
    """Compare numbers as JSON writes them: "inf" and null are themselves."""
    if isinstance(came, float | int) and isinstance(expected, float | int):
        return math.isclose(came, expected, rel_tol=tolerance, abs_tol=0.0)
    return came == expected


def differences(came: Mapping[str, Any], expected: Mapping[str, Any], dtype: str) -> list[str]:
    """Compare an answer's parts with a case's ``expect`` and name each difference; q and the gate compare exactly."""
    tolerance = TOLERANCE[dtype]
    exact = [name for name in ("quantile_reference", "gate") if name in came]
    found = [f"{name}: {came[name]} for {expected[name]}" for name in exact if came[name] != expected[name]]
    for side in ("clip_low", "clip_high"):
        pairs = enumerate(zip(came[side], expected[side], strict=True))
        found += [f"{side}[{i}]: {got} for {want}" for i, (got, want) in pairs if not close(got, want, tolerance)]
    if "diagnostics" in came:
        found += diagnostic_differences(came["diagnostics"], expected["diagnostics"], tolerance)
    return found


def diagnostic_differences(came: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float) -> list[str]:
    """Compare diagnostics, absent ones included."""
    unpaired = [f"{name}: missing or unexpected" for name in sorted(came.keys() ^ expected.keys())]
    pairs = [(name, came[name], expected[name]) for name in sorted(came.keys() & expected.keys())]
    return unpaired + [f"{name}: {got} for {want}" for name, got, want in pairs if not close(got, want, tolerance)]


def json_number(value: float) -> float | str | None:
    """Return a number as a case spells it: NaN q is null, an infinite one a string."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)
