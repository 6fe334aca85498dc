"""The rule that bounds a batch, as the sidecar answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from satwatch.types.rule import Rule


@dataclass(frozen=True, slots=True)
class GatedTokens:
    """Indices (ascending, into the active tokens) and contraction factors (in [0, 1)) of one side."""

    index: tuple[int, ...] = ()
    factor: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundsReply:
    """The rule that bounds a batch.

    Attributes:
        rule: the rule applied; ``rule.scope`` is the scope that was used.
        quantile_reference: q, or None when no token had a score.
        tokens: the tokens as received.
        gated_low: tokens whose lower bound is 1 - eps_low * factor.
        gated_high: tokens whose upper bound is 1 + eps_high * factor.
        diagnostics: by name, if asked for.
    """

    rule: Rule
    quantile_reference: float | None
    tokens: int
    gated_low: GatedTokens = GatedTokens()
    gated_high: GatedTokens = GatedTokens()
    diagnostics: Mapping[str, float] | None = None
