"""The columns of each kind of row, by the types of what they hold; steps and batches have diagnostics beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args, get_type_hints

from satwatch.types import EngineStatus, Event, LengthLag, Rule, VersionRecord, WorstToken

Kind: TypeAlias = Literal["steps", "batches", "versions", "events", "engines"]

KINDS: Final = get_args(Kind)
# What a row calls itself.
RECORDS: Final[Mapping[Kind, str]] = {
    "steps": "step",
    "batches": "batch",
    "versions": "version",
    "events": "event",
    "engines": "engine",
}


@dataclass(frozen=True, slots=True)
class LagTokens:
    """Tokens of one version lag."""

    lag: int
    tokens: int


@dataclass(frozen=True, slots=True)
class VersionTokens:
    """Tokens that one version has generated."""

    version: int
    tokens: int


@dataclass(frozen=True, slots=True)
class LayerFlipRate:
    """The router flip rate of one layer."""

    layer: int
    rate: float


_ORIGIN: Final = {"record": str, "run": str, "incarnation": str, "life": int}

COLUMNS: Final[Mapping[Kind, Mapping[str, Any]]] = {
    "steps": {
        **_ORIGIN,
        "rule": Rule,
        "step": int,
        "at": float,
        "is_closed": bool,
        "ranks": int,
        "batches": int,
        "policy_version": int,
        "heat": tuple[int, ...],
        "lags": tuple[LagTokens, ...],
        "generation_lags": tuple[LagTokens, ...],
        "queue_lags": tuple[LagTokens, ...],
        "behavior_version_tokens": tuple[VersionTokens, ...],
        "length_lags": tuple[LengthLag, ...],
        "layer_flip_rates": tuple[LayerFlipRate, ...],
        "totals": str,
    },
    "batches": {
        **_ORIGIN,
        "step": int,
        "rank": int,
        "microbatch": int,
        "at": float,
        "policy_version": int,
        "worst": tuple[WorstToken, ...],
    },
    "versions": {**_ORIGIN, **get_type_hints(VersionRecord)},
    "events": {"record": str, **get_type_hints(Event)},
    "engines": {"record": str, "run": str, "at": float, **get_type_hints(EngineStatus)},
}
