from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Level(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEVEL_UNSPECIFIED: _ClassVar[Level]
    LEVEL_TOKEN: _ClassVar[Level]
    LEVEL_SEQUENCE: _ClassVar[Level]

class Scope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCOPE_UNSPECIFIED: _ClassVar[Scope]
    SCOPE_MICROBATCH: _ClassVar[Scope]
    SCOPE_STEP: _ClassVar[Scope]
    SCOPE_WINDOW: _ClassVar[Scope]

class Dtype(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DTYPE_UNSPECIFIED: _ClassVar[Dtype]
    DTYPE_FLOAT32: _ClassVar[Dtype]
    DTYPE_FLOAT64: _ClassVar[Dtype]
    DTYPE_BFLOAT16: _ClassVar[Dtype]
    DTYPE_FLOAT16: _ClassVar[Dtype]
LEVEL_UNSPECIFIED: Level
LEVEL_TOKEN: Level
LEVEL_SEQUENCE: Level
SCOPE_UNSPECIFIED: Scope
SCOPE_MICROBATCH: Scope
SCOPE_STEP: Scope
SCOPE_WINDOW: Scope
DTYPE_UNSPECIFIED: Dtype
DTYPE_FLOAT32: Dtype
DTYPE_FLOAT64: Dtype
DTYPE_BFLOAT16: Dtype
DTYPE_FLOAT16: Dtype

class Rule(_message.Message):
    __slots__ = ("quantile", "eps_low", "eps_high", "exponent", "level", "scope", "min_reference", "enabled")
    QUANTILE_FIELD_NUMBER: _ClassVar[int]
    EPS_LOW_FIELD_NUMBER: _ClassVar[int]
    EPS_HIGH_FIELD_NUMBER: _ClassVar[int]
    EXPONENT_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    MIN_REFERENCE_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    quantile: float
    eps_low: float
    eps_high: float
    exponent: float
    level: Level
    scope: Scope
    min_reference: float
    enabled: bool
    def __init__(self, quantile: _Optional[float] = ..., eps_low: _Optional[float] = ..., eps_high: _Optional[float] = ..., exponent: _Optional[float] = ..., level: _Optional[_Union[Level, str]] = ..., scope: _Optional[_Union[Scope, str]] = ..., min_reference: _Optional[float] = ..., enabled: bool = ...) -> None: ...

class OpenRunRequest(_message.Message):
    __slots__ = ("run", "incarnation", "rank", "world_size", "rule")
    RUN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    run: str
    incarnation: str
    rank: int
    world_size: int
    rule: Rule
    def __init__(self, run: _Optional[str] = ..., incarnation: _Optional[str] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., rule: _Optional[_Union[Rule, _Mapping]] = ...) -> None: ...

class OpenRunResponse(_message.Message):
    __slots__ = ("rule", "server")
    RULE_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    rule: Rule
    server: ServerInfo
    def __init__(self, rule: _Optional[_Union[Rule, _Mapping]] = ..., server: _Optional[_Union[ServerInfo, _Mapping]] = ...) -> None: ...

class PackedFloats(_message.Message):
    __slots__ = ("dtype", "data")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    dtype: Dtype
    data: bytes
    def __init__(self, dtype: _Optional[_Union[Dtype, str]] = ..., data: _Optional[bytes] = ...) -> None: ...

class VersionRun(_message.Message):
    __slots__ = ("tokens", "version")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    version: int
    def __init__(self, tokens: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class TokenBatch(_message.Message):
    __slots__ = ("log_ratio", "sequence_lengths", "advantage", "sequence_advantage", "behavior_logprob", "reference_logprob", "behavior_versions")
    LOG_RATIO_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    ADVANTAGE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ADVANTAGE_FIELD_NUMBER: _ClassVar[int]
    BEHAVIOR_LOGPROB_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_LOGPROB_FIELD_NUMBER: _ClassVar[int]
    BEHAVIOR_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    log_ratio: PackedFloats
    sequence_lengths: _containers.RepeatedScalarFieldContainer[int]
    advantage: PackedFloats
    sequence_advantage: PackedFloats
    behavior_logprob: PackedFloats
    reference_logprob: PackedFloats
    behavior_versions: _containers.RepeatedCompositeFieldContainer[VersionRun]
    def __init__(self, log_ratio: _Optional[_Union[PackedFloats, _Mapping]] = ..., sequence_lengths: _Optional[_Iterable[int]] = ..., advantage: _Optional[_Union[PackedFloats, _Mapping]] = ..., sequence_advantage: _Optional[_Union[PackedFloats, _Mapping]] = ..., behavior_logprob: _Optional[_Union[PackedFloats, _Mapping]] = ..., reference_logprob: _Optional[_Union[PackedFloats, _Mapping]] = ..., behavior_versions: _Optional[_Iterable[_Union[VersionRun, _Mapping]]] = ...) -> None: ...

class Sketch(_message.Message):
    __slots__ = ("code_deltas", "counts", "nan_tokens", "moments")
    CODE_DELTAS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    NAN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MOMENTS_FIELD_NUMBER: _ClassVar[int]
    code_deltas: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    nan_tokens: int
    moments: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, code_deltas: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., nan_tokens: _Optional[int] = ..., moments: _Optional[_Iterable[float]] = ...) -> None: ...

class LayerRouting(_message.Message):
    __slots__ = ("layer", "tokens", "flipped_tokens", "disagreeing_experts", "top_k")
    LAYER_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FLIPPED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DISAGREEING_EXPERTS_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    layer: int
    tokens: int
    flipped_tokens: int
    disagreeing_experts: int
    top_k: int
    def __init__(self, layer: _Optional[int] = ..., tokens: _Optional[int] = ..., flipped_tokens: _Optional[int] = ..., disagreeing_experts: _Optional[int] = ..., top_k: _Optional[int] = ...) -> None: ...

class Routing(_message.Message):
    __slots__ = ("layers", "tokens", "flipped_tokens", "missing_tokens")
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FLIPPED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MISSING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    layers: _containers.RepeatedCompositeFieldContainer[LayerRouting]
    tokens: int
    flipped_tokens: int
    missing_tokens: int
    def __init__(self, layers: _Optional[_Iterable[_Union[LayerRouting, _Mapping]]] = ..., tokens: _Optional[int] = ..., flipped_tokens: _Optional[int] = ..., missing_tokens: _Optional[int] = ...) -> None: ...

class ComputeBoundsRequest(_message.Message):
    __slots__ = ("run", "incarnation", "rank", "step", "microbatch", "policy_version", "tokens", "sketch", "routing", "rule_only", "with_diagnostics", "client_fallbacks")
    RUN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MICROBATCH_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SKETCH_FIELD_NUMBER: _ClassVar[int]
    ROUTING_FIELD_NUMBER: _ClassVar[int]
    RULE_ONLY_FIELD_NUMBER: _ClassVar[int]
    WITH_DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FALLBACKS_FIELD_NUMBER: _ClassVar[int]
    run: str
    incarnation: str
    rank: int
    step: int
    microbatch: int
    policy_version: int
    tokens: TokenBatch
    sketch: Sketch
    routing: Routing
    rule_only: bool
    with_diagnostics: bool
    client_fallbacks: int
    def __init__(self, run: _Optional[str] = ..., incarnation: _Optional[str] = ..., rank: _Optional[int] = ..., step: _Optional[int] = ..., microbatch: _Optional[int] = ..., policy_version: _Optional[int] = ..., tokens: _Optional[_Union[TokenBatch, _Mapping]] = ..., sketch: _Optional[_Union[Sketch, _Mapping]] = ..., routing: _Optional[_Union[Routing, _Mapping]] = ..., rule_only: bool = ..., with_diagnostics: bool = ..., client_fallbacks: _Optional[int] = ...) -> None: ...

class GatedTokens(_message.Message):
    __slots__ = ("index", "factor")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    index: _containers.RepeatedScalarFieldContainer[int]
    factor: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, index: _Optional[_Iterable[int]] = ..., factor: _Optional[_Iterable[float]] = ...) -> None: ...

class ComputeBoundsResponse(_message.Message):
    __slots__ = ("rule", "quantile_reference", "tokens", "gated_low", "gated_high", "diagnostics")
    class DiagnosticsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RULE_FIELD_NUMBER: _ClassVar[int]
    QUANTILE_REFERENCE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    GATED_LOW_FIELD_NUMBER: _ClassVar[int]
    GATED_HIGH_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    rule: Rule
    quantile_reference: float
    tokens: int
    gated_low: GatedTokens
    gated_high: GatedTokens
    diagnostics: _containers.ScalarMap[str, float]
    def __init__(self, rule: _Optional[_Union[Rule, _Mapping]] = ..., quantile_reference: _Optional[float] = ..., tokens: _Optional[int] = ..., gated_low: _Optional[_Union[GatedTokens, _Mapping]] = ..., gated_high: _Optional[_Union[GatedTokens, _Mapping]] = ..., diagnostics: _Optional[_Mapping[str, float]] = ...) -> None: ...

class StreamBoundsRequest(_message.Message):
    __slots__ = ("request_id", "request")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    request: ComputeBoundsRequest
    def __init__(self, request_id: _Optional[int] = ..., request: _Optional[_Union[ComputeBoundsRequest, _Mapping]] = ...) -> None: ...

class StreamBoundsResponse(_message.Message):
    __slots__ = ("request_id", "response", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    response: ComputeBoundsResponse
    error: BatchError
    def __init__(self, request_id: _Optional[int] = ..., response: _Optional[_Union[ComputeBoundsResponse, _Mapping]] = ..., error: _Optional[_Union[BatchError, _Mapping]] = ...) -> None: ...

class BatchError(_message.Message):
    __slots__ = ("code", "kind", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    kind: str
    message: str
    def __init__(self, code: _Optional[int] = ..., kind: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class PublishVersionRequest(_message.Message):
    __slots__ = ("run", "incarnation", "version")
    RUN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    run: str
    incarnation: str
    version: int
    def __init__(self, run: _Optional[str] = ..., incarnation: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class PublishVersionResponse(_message.Message):
    __slots__ = ("previous_version",)
    PREVIOUS_VERSION_FIELD_NUMBER: _ClassVar[int]
    previous_version: int
    def __init__(self, previous_version: _Optional[int] = ...) -> None: ...

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerInfoResponse(_message.Message):
    __slots__ = ("server", "runs")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    server: ServerInfo
    runs: _containers.RepeatedCompositeFieldContainer[RunInfo]
    def __init__(self, server: _Optional[_Union[ServerInfo, _Mapping]] = ..., runs: _Optional[_Iterable[_Union[RunInfo, _Mapping]]] = ...) -> None: ...

class ServerInfo(_message.Message):
    __slots__ = ("version", "device", "max_message_bytes", "max_tokens", "metrics_url", "started_at")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    METRICS_URL_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    version: str
    device: str
    max_message_bytes: int
    max_tokens: int
    metrics_url: str
    started_at: float
    def __init__(self, version: _Optional[str] = ..., device: _Optional[str] = ..., max_message_bytes: _Optional[int] = ..., max_tokens: _Optional[int] = ..., metrics_url: _Optional[str] = ..., started_at: _Optional[float] = ...) -> None: ...

class RunInfo(_message.Message):
    __slots__ = ("run", "incarnation", "rule", "world_size", "batches", "tokens", "published_version", "policy_version")
    RUN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_VERSION_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    run: str
    incarnation: str
    rule: Rule
    world_size: int
    batches: int
    tokens: int
    published_version: int
    policy_version: int
    def __init__(self, run: _Optional[str] = ..., incarnation: _Optional[str] = ..., rule: _Optional[_Union[Rule, _Mapping]] = ..., world_size: _Optional[int] = ..., batches: _Optional[int] = ..., tokens: _Optional[int] = ..., published_version: _Optional[int] = ..., policy_version: _Optional[int] = ...) -> None: ...
