"""An engine's status as one line of JSON."""

from __future__ import annotations

import json
import math
from typing import Final

from satwatch.types import EngineStatus
from satwatch.types.engine import STATUS_FIELDS

# The order is API: these first, then whatever else is known.
FIRST: Final = (
    "engine",
    "state",
    "version_served",
    "version_published",
    "version_lag",
    "weight_age_seconds",
    "sync_seconds",
    "requests_waiting",
    "requests_running",
    "canary_log_ratio_abs_mean",
)
KEYS: Final = (*FIRST, *(name for name in STATUS_FIELDS if name not in FIRST))


def json_line(status: EngineStatus) -> str:
    """Return a status as a JSON object; what is unknown is null, and so is a number that is not finite.

    >>> json_line(EngineStatus("a:1", reason="no answer"))[:69]
    '{"engine": "a:1", "state": "unknown", "version_served": null, "versio'
    """
    values = {name: _plain(getattr(status, name)) for name in KEYS}
    values["findings"] = [{"kind": finding.kind, "message": finding.message} for finding in status.findings]
    return json.dumps(values, allow_nan=False)


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
