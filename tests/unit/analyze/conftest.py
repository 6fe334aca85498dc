"""One recorded batch, and a way to analyze what a file says of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from satwatch.analyze import Analysis, analyze_files
from satwatch.errors import SatwatchError


@pytest.fixture
def batch() -> dict[str, Any]:
    """Return arrays of a (6, 20) batch with padding, in float32, and a rule that isn't the default."""
    generator = np.random.default_rng(7)
    return {
        "log_ratio": (generator.standard_t(2, (6, 20)) * 0.02).astype(np.float32),
        "mask": generator.random((6, 20)) < 0.8,
        "advantage": generator.standard_normal((6, 20)).astype(np.float32),
        "quantile": 0.8,
        "eps_low": 0.1,
        "eps_high": 0.3,
        "level": "token",
    }


@pytest.fixture
def analyzed() -> Callable[..., Analysis]:
    """Return the analysis of a file's only batch."""

    def analyze(path: Path, **overrides: Any) -> Analysis:
        (outcome,) = analyze_files([path], overrides)
        assert isinstance(outcome.result, Analysis), outcome.result
        return outcome.result

    return analyze


@pytest.fixture
def refused() -> Callable[[Path], str]:
    """Return what is said of a file's only batch, which is refused."""

    def analyze(path: Path) -> str:
        (outcome,) = analyze_files([path])
        assert isinstance(outcome.result, SatwatchError), outcome.result
        return f"{outcome.name}: {outcome.result}"

    return analyze
