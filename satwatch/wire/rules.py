"""A rule and the opening of a run."""

from __future__ import annotations

from typing import Final

from satwatch import types as t
from satwatch.errors import ConfigError, required
from satwatch.v1 import satwatch_pb2 as pb

_LEVELS: Final[dict[t.Level, pb.Level]] = {"token": pb.LEVEL_TOKEN, "sequence": pb.LEVEL_SEQUENCE}
_LEVEL_NAMES: Final[dict[int, t.Level]] = {
    pb.LEVEL_UNSPECIFIED: "token",
    pb.LEVEL_TOKEN: "token",
    pb.LEVEL_SEQUENCE: "sequence",
}
_SCOPES: Final[dict[t.Scope, pb.Scope]] = {
    "microbatch": pb.SCOPE_MICROBATCH,
    "step": pb.SCOPE_STEP,
    "window": pb.SCOPE_WINDOW,
}
_SCOPE_NAMES: Final[dict[int, t.Scope]] = {
    pb.SCOPE_UNSPECIFIED: "microbatch",
    pb.SCOPE_MICROBATCH: "microbatch",
    pb.SCOPE_STEP: "step",
    pb.SCOPE_WINDOW: "window",
}


def encode_rule(rule: t.Rule) -> pb.Rule:
    """Encode a rule with every field set."""
    return pb.Rule(
        quantile=rule.quantile,
        eps_low=rule.eps_low,
        eps_high=rule.eps_high,
        exponent=rule.exponent,
        level=_LEVELS[rule.level],
        scope=_SCOPES[rule.scope],
        min_reference=rule.min_reference,
        enabled=rule.enabled,
    )


def decode_rule(message: pb.Rule) -> t.Rule:
    """Decode a rule; absent fields take their defaults.

    Raises:
        ConfigError: a value outside its range, or an unknown level or scope.
    """
    level, scope = _LEVEL_NAMES.get(message.level), _SCOPE_NAMES.get(message.scope)
    if level is None:
        raise ConfigError(required("rule.level", f"number {message.level}", "a Level of this version"))
    if scope is None:
        raise ConfigError(required("rule.scope", f"number {message.scope}", "a Scope of this version"))
    names = ("quantile", "eps_low", "eps_high", "exponent", "min_reference", "enabled")
    given = {name: getattr(message, name) for name in names if message.HasField(name)}
    return t.Rule(level=level, scope=scope, **given)


def encode_opening(opening: t.RunOpening) -> pb.OpenRunRequest:
    """Encode a rank's announcement of its run."""
    return pb.OpenRunRequest(
        run=opening.run,
        incarnation=opening.incarnation,
        rank=opening.rank,
        world_size=opening.world_size,
        rule=encode_rule(opening.rule),
    )


def decode_opening(message: pb.OpenRunRequest) -> t.RunOpening:
    """Decode a rank's announcement of its run.

    Raises:
        ConfigError: a name, rank or rule that can't be meant.
    """
    return t.RunOpening(
        run=message.run,
        incarnation=message.incarnation,
        rank=message.rank,
        world_size=message.world_size or 1,
        rule=decode_rule(message.rule),
    )
