"""SAT's rule, and what a number is."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Real
from typing import Final, Literal, TypeAlias, get_args

from satwatch.errors import ConfigError, required

Level: TypeAlias = Literal["token", "sequence"]
Scope: TypeAlias = Literal["microbatch", "step", "window"]


def is_number(value: object) -> bool:
    """Tell whether a value is a real number a setting may have: no bool, no NaN, nothing that a double can't hold."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return not math.isnan(float(value))
    except OverflowError:
        return False


def _inside_unit(name: str, value: object) -> None:
    if not (is_number(value) and 0 < float(value) < 1):  # type: ignore[arg-type]
        raise ConfigError(required(name, repr(value), "a number inside (0, 1)"))


def _one_of(name: str, value: object, choices: object) -> None:
    allowed = get_args(choices)
    if value not in allowed:
        raise ConfigError(required(name, repr(value), f"one of {', '.join(allowed)}"))


@dataclass(frozen=True, slots=True)
class Rule:
    """SAT's rule (arXiv 2607.18722, eqs. 13-20): what turns scores into clip bounds.

    Attributes:
        quantile: alpha, inside (0, 1); where the tail begins.
        eps_low: PPO's lower radius, inside (0, 1).
        eps_high: PPO's upper radius, inside (0, 1).
        exponent: m of the Hill kernel, finite and above 0.
        level: what a score is taken over, ``token`` or ``sequence``.
        scope: the tokens that q is taken over: ``microbatch``, ``step`` or ``window``.
        min_reference: q is at least this; finite, 0 or more; 0 is the paper.
        enabled: False gives PPO's interval everywhere; q is still reported.

    Raises:
        ConfigError: a value is outside its range.
    """

    quantile: float = 0.9
    eps_low: float = 0.2
    eps_high: float = 0.2
    exponent: float = 2.0
    level: Level = "token"
    scope: Scope = "microbatch"
    min_reference: float = 0.0
    enabled: bool = True

    def __post_init__(self) -> None:
        for name in ("quantile", "eps_low", "eps_high"):
            _inside_unit(name, getattr(self, name))
        if not (is_number(self.exponent) and 0 < self.exponent < math.inf):
            raise ConfigError(required("exponent", repr(self.exponent), "a finite number above 0"))
        if not (is_number(self.min_reference) and 0 <= self.min_reference < math.inf):
            raise ConfigError(required("min_reference", repr(self.min_reference), "a finite number, 0 or more"))
        _one_of("level", self.level, Level)
        _one_of("scope", self.scope, Scope)
        if not isinstance(self.enabled, bool):
            raise ConfigError(required("enabled", repr(self.enabled), "True or False"))
        for name in ("quantile", "eps_low", "eps_high", "exponent", "min_reference"):
            # A numpy scalar is as good as a float, and no two spellings of a rule may differ.
            object.__setattr__(self, name, float(getattr(self, name)))


RULE_FIELDS: Final = tuple(f.name for f in fields(Rule))
