"""The values that cross a boundary: frozen, validated when made, made of the standard library only.

Everything here refuses what it can't mean, with an error that names the field. Nothing here computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Final, Literal, TypeAlias, get_args

from satwatch.errors import ConfigError, InvalidBatchError, required

Level: TypeAlias = Literal["token", "sequence"]
Scope: TypeAlias = Literal["microbatch", "step", "window"]
DTypeName: TypeAlias = Literal["float64", "float32", "bfloat16", "float16"]

ITEM_BYTES: Final[Mapping[str, int]] = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
UINT32_MAX: Final = 2**32 - 1
# A float64, as Prometheus has it, still tells this step from the next.
MAX_STEP: Final = 2**53


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


@dataclass(frozen=True, slots=True)
class PackedFloats:
    """An array of floats as little-endian bytes.

    Raises:
        InvalidBatchError: an unknown dtype, or bytes that are no whole number of elements.
    """

    dtype: DTypeName
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        size = ITEM_BYTES.get(self.dtype)
        if size is None:
            raise InvalidBatchError(required("dtype", repr(self.dtype), f"one of {', '.join(ITEM_BYTES)}"))
        if len(self.data) % size:
            raise InvalidBatchError(required("data", f"{len(self.data)} bytes", f"a multiple of {size} ({self.dtype})"))

    def __len__(self) -> int:
        return len(self.data) // ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class VersionRun:
    """Consecutive tokens that one policy version generated; ``version`` None is unknown."""

    tokens: int
    version: int | None


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """A microbatch token by token: its active tokens (n of them), sequence after sequence.

    Attributes:
        log_ratio: d = log pi_train - log mu_rollout, nats, n values.
        sequence_lengths: active tokens of each sequence; adds up to n; empty if unknown.
        advantage: n values, or None.
        sequence_advantage: one value a sequence, or None; never together with ``advantage``.
        behavior_logprob: log mu, n values, or None.
        reference_logprob: log pi(l), the trainer at the rollout weights, n values, or None.
        behavior_versions: the versions that generated the tokens; adds up to n; empty if unknown.

    Raises:
        InvalidBatchError: lengths that do not sum, or a field of another length.
    """

    log_ratio: PackedFloats
    sequence_lengths: tuple[int, ...] = ()
    advantage: PackedFloats | None = None
    sequence_advantage: PackedFloats | None = None
    behavior_logprob: PackedFloats | None = None
    reference_logprob: PackedFloats | None = None
    behavior_versions: tuple[VersionRun, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.log_ratio)
        if self.sequence_lengths and sum(self.sequence_lengths) != n:
            came = f"{len(self.sequence_lengths)} lengths that sum to {sum(self.sequence_lengths)}"
            raise InvalidBatchError(required("sequence_lengths", came, f"a sum of {n}, the tokens of log_ratio"))
        for name in ("advantage", "behavior_logprob", "reference_logprob"):
            _require_length(name, getattr(self, name), n, "token")
        _require_length("sequence_advantage", self.sequence_advantage, len(self.sequence_lengths), "sequence")
        if self.advantage is not None and self.sequence_advantage is not None:
            raise InvalidBatchError(required("advantage", "advantage and sequence_advantage", "at most one of the two"))
        tokens = sum(run.tokens for run in self.behavior_versions)
        if self.behavior_versions and tokens != n:
            came = f"runs of {tokens} tokens"
            raise InvalidBatchError(required("behavior_versions", came, f"{n}, the tokens of log_ratio"))

    @property
    def tokens(self) -> int:
        """The number of active tokens, n."""
        return len(self.log_ratio)


def _require_length(name: str, values: PackedFloats | None, n: int, unit: str) -> None:
    if values is not None and len(values) != n:
        raise InvalidBatchError(required(name, f"{len(values)} values", f"{n}, one a {unit}"))


@dataclass(frozen=True, slots=True)
class LayerRouting:
    """Agreement counts of one MoE layer: the expert sets of engine and trainer, token by token.

    Attributes:
        layer: the layer's index.
        tokens: tokens compared.
        flipped_tokens: tokens whose two sets differ.
        disagreeing_experts: the sum over tokens of top_k - |intersection|.
        top_k: experts a token.

    Raises:
        InvalidBatchError: counts that contradict each other.
    """

    layer: int
    tokens: int
    flipped_tokens: int
    disagreeing_experts: int
    top_k: int

    def __post_init__(self) -> None:
        where = f"routing.layers[{self.layer}]"
        if self.top_k < 1:
            raise InvalidBatchError(required(f"{where}.top_k", self.top_k, "1 or more"))
        if not 0 <= self.flipped_tokens <= self.tokens:
            limits = f"0 to {self.tokens}, its tokens"
            raise InvalidBatchError(required(f"{where}.flipped_tokens", self.flipped_tokens, limits))
        if not self.flipped_tokens <= self.disagreeing_experts <= self.flipped_tokens * self.top_k:
            limits = f"{self.flipped_tokens} to {self.flipped_tokens * self.top_k}, 1 to top_k a flipped token"
            raise InvalidBatchError(required(f"{where}.disagreeing_experts", self.disagreeing_experts, limits))


@dataclass(frozen=True, slots=True)
class Routing:
    """Agreement counts of one batch, all layers.

    Attributes:
        layers: one entry a MoE layer.
        tokens: tokens with a route from both sides.
        flipped_tokens: tokens with at least one differing layer.
        missing_tokens: tokens without a route from one side: unknown, not disagreeing.

    Raises:
        InvalidBatchError: counts that contradict each other, or a layer that comes twice.
    """

    layers: tuple[LayerRouting, ...]
    tokens: int
    flipped_tokens: int
    missing_tokens: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.flipped_tokens <= self.tokens:
            limits = f"0 to {self.tokens}, its tokens"
            raise InvalidBatchError(required("routing.flipped_tokens", self.flipped_tokens, limits))
        seen: set[int] = set()
        for layer in self.layers:
            if layer.layer in seen:
                raise InvalidBatchError(required("routing.layers", f"layer {layer.layer} twice", "each layer once"))
            seen.add(layer.layer)


@dataclass(frozen=True, slots=True)
class PackedSketch:
    """A batch as counts on the wire: the message is in place, the sidecar does not take it yet."""

    code_deltas: tuple[int, ...]
    counts: tuple[int, ...]
    nan_tokens: int
    moments: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BoundsRequest:
    """One microbatch and where it belongs.

    Attributes:
        run: the run's name.
        batch: the tokens.
        incarnation: one life of the run; empty if unknown.
        rank: the data-parallel rank.
        step: the optimizer step, or None: the batch stands alone.
        microbatch: its number within rank and step, or None.
        policy_version: the policy that consumes the tokens, or None.
        routing: agreement counts, or None.
        rule_only: the reply need not name the gated tokens.
        with_diagnostics: the reply carries the diagnostics.
        client_fallbacks: batches this client has answered without the sidecar.
    """

    run: str
    batch: TokenBatch | PackedSketch
    incarnation: str = ""
    rank: int = 0
    step: int | None = None
    microbatch: int | None = None
    policy_version: int | None = None
    routing: Routing | None = None
    rule_only: bool = False
    with_diagnostics: bool = False
    client_fallbacks: int = 0


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


@dataclass(frozen=True, slots=True)
class RunOpening:
    """A rank's announcement of its run.

    Raises:
        ConfigError: an empty or overlong name, or a rank outside the world.
    """

    run: str
    incarnation: str = ""
    rank: int = 0
    world_size: int = 1
    rule: Rule = Rule()

    def __post_init__(self) -> None:
        check_run_name(self.run)
        if len(self.incarnation) > 200:
            raise ConfigError(required("incarnation", f"{len(self.incarnation)} characters", "at most 200"))
        if self.world_size < 1:
            raise ConfigError(required("world_size", self.world_size, "1 or more"))
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(required("rank", self.rank, f"0 to {self.world_size - 1} (world_size {self.world_size})"))


def check_run_name(run: object) -> None:
    """Refuse a run name that can't be a label.

    Raises:
        ConfigError: not a string, empty, longer than 200 characters, or with control characters.
    """
    if not isinstance(run, str) or not 1 <= len(run) <= 200 or not run.isprintable():
        raise ConfigError(required("run", repr(run)[:80], "a name of 1 to 200 printable characters"))


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a sidecar is and what it accepts."""

    version: str
    device: str
    max_message_bytes: int
    max_tokens: int
    metrics_url: str
    started_at: float


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a sidecar knows of one run."""

    run: str
    incarnation: str
    rule: Rule
    world_size: int
    batches: int
    tokens: int
    published_version: int | None
    policy_version: int | None
