"""An analysis as one line of strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from satwatch.analyze.analysis import Analysis, lag_diagnostics


def json_line(analysis: Analysis, **origin: object) -> str:
    """Return one object on one line: q, the bounds token by token, the diagnostics, and where the batch comes from.

    An exported step has no tokens, and no bounds.

    Every float has all its digits. Non-finite numbers are the strings nan, inf and -inf; q is null when no token had
    a score; a diagnostic without a value is left out.

    Args:
        analysis: the analysis.
        origin: more keys, such as the file.
    """
    bounds, q = analysis.bounds, analysis.quantile_reference
    line: dict[str, Any] = {"quantile_reference": None if math.isnan(q) else _number(q)}
    if bounds is not None:
        line["clip_low"] = bounds.low.reshape(-1).tolist()
        line["clip_high"] = bounds.high.reshape(-1).tolist()
        line["gate"] = bounds.gate.reshape(-1).tolist()
    line["diagnostics"] = {name: _number(value) for name, value in analysis.diagnostics.items()}
    if analysis.version_lag is not None:
        line["version_lag"] = lag_diagnostics(analysis.version_lag)
    return json.dumps({**line, **_plain(origin), **_plain(analysis.labels)}, allow_nan=False)


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _plain(values: Mapping[str, object]) -> dict[str, object]:
    """Keep what JSON can hold; a label is whatever the file had there."""
    return {
        name: _number(value) if isinstance(value, float) else value if isinstance(value, str | int) else str(value)
        for name, value in values.items()
        if value is not None
    }
