"""Rows that ``satwatch export`` has written: steps, whose sums are analyzed, and what has none."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from satwatch.analyze.analysis import Analysis
from satwatch.analyze.histogram import Histogram
from satwatch.analyze.sources import Fields
from satwatch.analyze.values import described, scalar
from satwatch.errors import InvalidBatchError, required
from satwatch.sat import StepTotals
from satwatch.sat.codec import decode_totals
from satwatch.types import Rule

STEP: Final = "step"
# What else an exported row may call itself.
WITHOUT_SUMS: Final = ("batch", "version", "event", "engine")
LABEL_NAMES: Final = ("run", "incarnation", "life", "step")

_RULE_FIELDS: Final = frozenset(f.name for f in fields(Rule))


def is_exported(fields: Fields) -> bool:
    """Tell whether fields are those of an exported row, and not of a recorded batch."""
    record = fields.get("record")
    is_named = isinstance(record, str) and record in (STEP, *WITHOUT_SUMS)
    return (is_named or isinstance(fields.get("totals"), str)) and "log_ratio" not in fields


def analyze_exported(row: Fields, overrides: Mapping[str, Any] | None = None) -> Analysis:
    """Read what an exported step adds up to; its tokens are gone, and with them their bounds.

    Args:
        row: the fields that the export has written; all but ``totals`` may be missing.
        overrides: fields of the rule; there can be none.

    Raises:
        ConfigError: a rule that can't be meant.
        InvalidBatchError: an exported row of another kind, sums that can't be read, or overrides.
    """
    if row.get("record", STEP) != STEP:
        wanted = "a step (satwatch export --what steps), or a recorded batch with its log-ratios"
        raise InvalidBatchError(required("record", f"an exported {row['record']}", wanted))
    for name, value in (overrides or {}).items():
        wanted = "the run's own rule: the export has a step's sums, and not its tokens"
        raise InvalidBatchError(required(name, f"{value} for an exported step", wanted))
    totals = _totals(row.get("totals"))
    return Analysis(
        rule=_rule(row.get("rule")),
        bounds=None,
        totals=totals,
        diagnostics=totals.values(),
        histogram=Histogram.of_sketch(totals.summary.sketch),
        labels={name: scalar(row[name]) for name in LABEL_NAMES if row.get(name) not in (None, "")},
    )


def _totals(text: object) -> StepTotals:
    if not isinstance(text, str):
        raise InvalidBatchError(required("totals", described(text), "the sums of an exported step"))
    try:
        return decode_totals(base64.b64decode(text, validate=True))
    except binascii.Error as error:
        raise InvalidBatchError(required("totals", f"no base64 ({error})", "the sums of an exported step")) from error


def _rule(given: object) -> Rule | None:
    """Return the rule that the sums were taken under; None: it isn't known."""
    if not isinstance(given, Mapping):
        return None
    return Rule(**{name: value for name, value in given.items() if name in _RULE_FIELDS and value is not None})
