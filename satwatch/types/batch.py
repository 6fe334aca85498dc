"""A microbatch: its tokens, its routing agreement, and where it belongs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from satwatch.errors import InvalidBatchError, required

DTypeName: TypeAlias = Literal["float64", "float32", "bfloat16", "float16"]

ITEM_BYTES: Final[Mapping[str, int]] = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
UINT32_MAX: Final = 2**32 - 1
# A float64, as Prometheus has it, still tells this step from the next.
MAX_STEP: Final = 2**53


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
class EngineRun:
    """Consecutive tokens that one engine generated; ``engine`` empty is unknown."""

    tokens: int
    engine: str


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
        behavior_engines: the engines that generated them, by the probe's names; adds up to n; empty if unknown.
        versions_by_sequence: the versions were given one a sequence, or one for the batch: which ones passed while a
            sequence was generated is unknown.

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
    behavior_engines: tuple[EngineRun, ...] = ()
    versions_by_sequence: bool = False

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
        _require_sum("behavior_versions", self.behavior_versions, n)
        _require_sum("behavior_engines", self.behavior_engines, n)

    @property
    def tokens(self) -> int:
        """The number of active tokens, n."""
        return len(self.log_ratio)


def _require_sum(name: str, runs: Sequence[VersionRun | EngineRun], n: int) -> None:
    tokens = sum(run.tokens for run in runs)
    if runs and tokens != n:
        raise InvalidBatchError(required(name, f"runs of {tokens} tokens", f"{n}, the tokens of log_ratio"))


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
