"""What a probe knows of its engines.

An engine may answer with anything, and the probe passes on what it says: text is cut to a bound on both sides, and what
is no text of Unicode is replaced. A figure that no message can carry, such as a sum of absurd counts, is left out: it
costs its engine that figure, and not the others their report. What a later release adds is left out: a state of its own
is read as ``unknown``, and a finding of a kind of its own is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any, Final

from satwatch import types as t
from satwatch.errors import InvalidBatchError, required
from satwatch.v1 import satwatch_pb2 as pb
from satwatch.wire.reading import cut, read_each, require_at_most

MAX_ENGINES: Final = 4096
MAX_FINDINGS: Final = 64

_STATES: Final[dict[t.EngineState, pb.EngineState]] = {
    "serving": pb.ENGINE_STATE_SERVING,
    "lagging": pb.ENGINE_STATE_LAGGING,
    "wrong_weights": pb.ENGINE_STATE_WRONG_WEIGHTS,
    "paused": pb.ENGINE_STATE_PAUSED,
    "unknown": pb.ENGINE_STATE_UNKNOWN,
}
_STATE_NAMES: Final[dict[int, t.EngineState]] = {number: name for name, number in _STATES.items()}
_KINDS: Final[dict[t.EngineKind, pb.EngineKind]] = {"sglang": pb.ENGINE_KIND_SGLANG, "vllm": pb.ENGINE_KIND_VLLM}
_KIND_NAMES: Final[dict[int, t.EngineKind]] = {number: name for name, number in _KINDS.items()}
_FINDINGS: Final[dict[t.FindingKind, pb.FindingKind]] = {
    "canary_differs": pb.FINDING_KIND_CANARY_DIFFERS,
    "canary_not_comparable": pb.FINDING_KIND_CANARY_NOT_COMPARABLE,
    "canary_older_version": pb.FINDING_KIND_CANARY_OLDER_VERSION,
    "checksum_differs": pb.FINDING_KIND_CHECKSUM_DIFFERS,
    "engines_disagree": pb.FINDING_KIND_ENGINES_DISAGREE,
    "label_differs": pb.FINDING_KIND_LABEL_DIFFERS,
    "label_only": pb.FINDING_KIND_LABEL_ONLY,
    "left_behind": pb.FINDING_KIND_LEFT_BEHIND,
    "restarted": pb.FINDING_KIND_RESTARTED,
    "version_ahead": pb.FINDING_KIND_VERSION_AHEAD,
}
_FINDING_NAMES: Final[dict[int, t.FindingKind]] = {number: name for name, number in _FINDINGS.items()}

_TEXTS: Final = ("release", "version_label", "checksum")
_WHOLE: Final = (
    "version_labelled",
    "version_served",
    "version_published",
    "version_canary",
    "version_lag",
    "requests_running",
    "requests_waiting",
    "canary_version",
)
_AMOUNTS: Final = (
    "seen_at",
    "weight_age_seconds",
    "sync_seconds",
    "queue_seconds",
    "drain_seconds",
    "generation_tokens_per_second",
    "version_lag_generation_expected",
)
# An engine that gives a canary token a probability of 0 differs without bound.
_LOG_RATIOS: Final = ("canary_log_ratio_abs_mean", "canary_log_ratio_abs_max")
_VERSIONS: Final = tuple(name for name in _WHOLE if name.startswith(("version_", "canary_")) and name != "version_lag")
_TOTALS: Final = ("looks", "failed_looks", "canary_requests", "version_changes")


def encode_status(status: t.EngineStatus) -> pb.EngineStatus:
    """Encode what is known of an engine; None stays absent."""
    message = pb.EngineStatus(engine=status.engine, state=_STATES[status.state], reason=cut(status.reason))
    if status.kind is not None:
        message.kind = _KINDS[status.kind]
    for name in (*_TEXTS, *_WHOLE, *_AMOUNTS, *_LOG_RATIOS, *_TOTALS):
        value = getattr(status, name)
        if value is not None and (name in _TEXTS or _fits(name, value)):
            setattr(message, name, cut(value) if name in _TEXTS else value)
    for finding in status.findings[:MAX_FINDINGS]:
        message.findings.add(kind=_FINDINGS[finding.kind], message=cut(finding.message))
    return message


def decode_status(message: pb.EngineStatus) -> t.EngineStatus:
    """Decode what is known of an engine; absent becomes None.

    Raises:
        InvalidBatchError: a name that can't be a label, too many findings, or a number that can't be meant.
    """
    require_at_most("findings", len(message.findings), "findings", MAX_FINDINGS)
    given: dict[str, Any] = {
        name: getattr(message, name) for name in (*_TEXTS, *_WHOLE, *_AMOUNTS, *_LOG_RATIOS) if message.HasField(name)
    }
    for name in (*_AMOUNTS, *_LOG_RATIOS):
        _check_amount(name, given.get(name))
    given |= {name: cut(given[name]) for name in _TEXTS if name in given}
    return t.EngineStatus(
        engine=message.engine,
        state=_STATE_NAMES.get(message.state, "unknown"),
        reason=cut(message.reason),
        kind=_KIND_NAMES.get(message.kind),
        findings=tuple(
            t.Finding(_FINDING_NAMES[finding.kind], cut(finding.message))
            for finding in message.findings
            if finding.kind in _FINDING_NAMES
        ),
        **given,
        **{name: getattr(message, name) for name in _TOTALS},
    )


def encode_statuses(statuses: Iterable[t.EngineStatus]) -> list[pb.EngineStatus]:
    """Encode what is known of several engines."""
    return [encode_status(status) for status in statuses]


def decode_statuses(messages: Collection[pb.EngineStatus]) -> tuple[t.EngineStatus, ...]:
    """Decode what is known of several engines.

    Raises:
        InvalidBatchError: too many, or one that can't be meant.
    """
    return read_each("engines", messages, MAX_ENGINES, decode_status)


def encode_report(report: t.EnginesReport) -> pb.ReportEnginesRequest:
    """Encode one round of a probe."""
    return pb.ReportEnginesRequest(
        run=report.run,
        probe=report.probe,
        engines=encode_statuses(report.engines),
        period_seconds=report.period_seconds,
    )


def decode_report(message: pb.ReportEnginesRequest) -> t.EnginesReport:
    """Decode one round of a probe.

    Raises:
        ConfigError: a run name that can't be meant.
        InvalidBatchError: a probe's name or a period that can't be meant, or engines as in :func:`decode_statuses`.
    """
    return t.EnginesReport(
        run=message.run,
        probe=message.probe,
        engines=decode_statuses(message.engines),
        period_seconds=message.period_seconds,
    )


def _check_amount(name: str, value: float | None) -> None:
    if value is None or _fits(name, value):
        return
    raise InvalidBatchError(required(name, value, f"a {'' if name in _LOG_RATIOS else 'finite '}number, 0 or more"))


def _fits(name: str, value: float) -> bool:
    """Tell whether a number can be carried, and meant."""
    if name in _VERSIONS:
        return -(2**63) <= value < 2**63
    if name in _AMOUNTS or name in _LOG_RATIOS:
        return 0 <= value < math.inf or (value == math.inf and name in _LOG_RATIOS)
    return 0 <= value < 2**64
