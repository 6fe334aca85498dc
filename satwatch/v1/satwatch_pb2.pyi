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

class EngineState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENGINE_STATE_UNSPECIFIED: _ClassVar[EngineState]
    ENGINE_STATE_SERVING: _ClassVar[EngineState]
    ENGINE_STATE_LAGGING: _ClassVar[EngineState]
    ENGINE_STATE_WRONG_WEIGHTS: _ClassVar[EngineState]
    ENGINE_STATE_PAUSED: _ClassVar[EngineState]
    ENGINE_STATE_UNKNOWN: _ClassVar[EngineState]

class EngineKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENGINE_KIND_UNSPECIFIED: _ClassVar[EngineKind]
    ENGINE_KIND_SGLANG: _ClassVar[EngineKind]
    ENGINE_KIND_VLLM: _ClassVar[EngineKind]

class FindingKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINDING_KIND_UNSPECIFIED: _ClassVar[FindingKind]
    FINDING_KIND_CANARY_DIFFERS: _ClassVar[FindingKind]
    FINDING_KIND_CANARY_NOT_COMPARABLE: _ClassVar[FindingKind]
    FINDING_KIND_CANARY_OLDER_VERSION: _ClassVar[FindingKind]
    FINDING_KIND_CHECKSUM_DIFFERS: _ClassVar[FindingKind]
    FINDING_KIND_ENGINES_DISAGREE: _ClassVar[FindingKind]
    FINDING_KIND_LABEL_DIFFERS: _ClassVar[FindingKind]
    FINDING_KIND_LABEL_ONLY: _ClassVar[FindingKind]
    FINDING_KIND_LEFT_BEHIND: _ClassVar[FindingKind]
    FINDING_KIND_RESTARTED: _ClassVar[FindingKind]
    FINDING_KIND_VERSION_AHEAD: _ClassVar[FindingKind]

class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEVERITY_UNSPECIFIED: _ClassVar[Severity]
    SEVERITY_INFO: _ClassVar[Severity]
    SEVERITY_WARNING: _ClassVar[Severity]
    SEVERITY_CRITICAL: _ClassVar[Severity]
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
ENGINE_STATE_UNSPECIFIED: EngineState
ENGINE_STATE_SERVING: EngineState
ENGINE_STATE_LAGGING: EngineState
ENGINE_STATE_WRONG_WEIGHTS: EngineState
ENGINE_STATE_PAUSED: EngineState
ENGINE_STATE_UNKNOWN: EngineState
ENGINE_KIND_UNSPECIFIED: EngineKind
ENGINE_KIND_SGLANG: EngineKind
ENGINE_KIND_VLLM: EngineKind
FINDING_KIND_UNSPECIFIED: FindingKind
FINDING_KIND_CANARY_DIFFERS: FindingKind
FINDING_KIND_CANARY_NOT_COMPARABLE: FindingKind
FINDING_KIND_CANARY_OLDER_VERSION: FindingKind
FINDING_KIND_CHECKSUM_DIFFERS: FindingKind
FINDING_KIND_ENGINES_DISAGREE: FindingKind
FINDING_KIND_LABEL_DIFFERS: FindingKind
FINDING_KIND_LABEL_ONLY: FindingKind
FINDING_KIND_LEFT_BEHIND: FindingKind
FINDING_KIND_RESTARTED: FindingKind
FINDING_KIND_VERSION_AHEAD: FindingKind
SEVERITY_UNSPECIFIED: Severity
SEVERITY_INFO: Severity
SEVERITY_WARNING: Severity
SEVERITY_CRITICAL: Severity

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

class EngineRun(_message.Message):
    __slots__ = ("tokens", "engine")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    engine: str
    def __init__(self, tokens: _Optional[int] = ..., engine: _Optional[str] = ...) -> None: ...

class TokenBatch(_message.Message):
    __slots__ = ("log_ratio", "sequence_lengths", "advantage", "sequence_advantage", "behavior_logprob", "reference_logprob", "behavior_versions", "behavior_engines", "versions_by_sequence")
    LOG_RATIO_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    ADVANTAGE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ADVANTAGE_FIELD_NUMBER: _ClassVar[int]
    BEHAVIOR_LOGPROB_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_LOGPROB_FIELD_NUMBER: _ClassVar[int]
    BEHAVIOR_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    BEHAVIOR_ENGINES_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_BY_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    log_ratio: PackedFloats
    sequence_lengths: _containers.RepeatedScalarFieldContainer[int]
    advantage: PackedFloats
    sequence_advantage: PackedFloats
    behavior_logprob: PackedFloats
    reference_logprob: PackedFloats
    behavior_versions: _containers.RepeatedCompositeFieldContainer[VersionRun]
    behavior_engines: _containers.RepeatedCompositeFieldContainer[EngineRun]
    versions_by_sequence: bool
    def __init__(self, log_ratio: _Optional[_Union[PackedFloats, _Mapping]] = ..., sequence_lengths: _Optional[_Iterable[int]] = ..., advantage: _Optional[_Union[PackedFloats, _Mapping]] = ..., sequence_advantage: _Optional[_Union[PackedFloats, _Mapping]] = ..., behavior_logprob: _Optional[_Union[PackedFloats, _Mapping]] = ..., reference_logprob: _Optional[_Union[PackedFloats, _Mapping]] = ..., behavior_versions: _Optional[_Iterable[_Union[VersionRun, _Mapping]]] = ..., behavior_engines: _Optional[_Iterable[_Union[EngineRun, _Mapping]]] = ..., versions_by_sequence: bool = ...) -> None: ...

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
    __slots__ = ("run", "incarnation", "version", "age_seconds")
    RUN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    run: str
    incarnation: str
    version: int
    age_seconds: float
    def __init__(self, run: _Optional[str] = ..., incarnation: _Optional[str] = ..., version: _Optional[int] = ..., age_seconds: _Optional[float] = ...) -> None: ...

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

class Canary(_message.Message):
    __slots__ = ("tokens", "sequence_lengths")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    sequence_lengths: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, tokens: _Optional[_Iterable[int]] = ..., sequence_lengths: _Optional[_Iterable[int]] = ...) -> None: ...

class CanaryScores(_message.Message):
    __slots__ = ("canary", "version", "logprobs", "temperature", "top_p")
    CANARY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    canary: Canary
    version: int
    logprobs: PackedFloats
    temperature: float
    top_p: float
    def __init__(self, canary: _Optional[_Union[Canary, _Mapping]] = ..., version: _Optional[int] = ..., logprobs: _Optional[_Union[PackedFloats, _Mapping]] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ...) -> None: ...

class PublishedVersion(_message.Message):
    __slots__ = ("version", "age_seconds")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    version: int
    age_seconds: float
    def __init__(self, version: _Optional[int] = ..., age_seconds: _Optional[float] = ...) -> None: ...

class TrainerFacts(_message.Message):
    __slots__ = ("run", "published", "canary", "canaries")
    RUN_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    CANARIES_FIELD_NUMBER: _ClassVar[int]
    run: str
    published: _containers.RepeatedCompositeFieldContainer[PublishedVersion]
    canary: Canary
    canaries: _containers.RepeatedCompositeFieldContainer[CanaryScores]
    def __init__(self, run: _Optional[str] = ..., published: _Optional[_Iterable[_Union[PublishedVersion, _Mapping]]] = ..., canary: _Optional[_Union[Canary, _Mapping]] = ..., canaries: _Optional[_Iterable[_Union[CanaryScores, _Mapping]]] = ...) -> None: ...

class ReportCanaryRequest(_message.Message):
    __slots__ = ("run", "incarnation", "scores")
    RUN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    run: str
    incarnation: str
    scores: CanaryScores
    def __init__(self, run: _Optional[str] = ..., incarnation: _Optional[str] = ..., scores: _Optional[_Union[CanaryScores, _Mapping]] = ...) -> None: ...

class ReportCanaryResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Finding(_message.Message):
    __slots__ = ("kind", "message")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    kind: FindingKind
    message: str
    def __init__(self, kind: _Optional[_Union[FindingKind, str]] = ..., message: _Optional[str] = ...) -> None: ...

class EngineStatus(_message.Message):
    __slots__ = ("engine", "state", "reason", "kind", "release", "seen_at", "version_label", "version_labelled", "version_served", "version_published", "version_canary", "version_lag", "weight_age_seconds", "sync_seconds", "requests_running", "requests_waiting", "queue_seconds", "drain_seconds", "generation_tokens_per_second", "canary_log_ratio_abs_mean", "canary_log_ratio_abs_max", "canary_version", "checksum", "findings", "looks", "failed_looks", "canary_requests", "version_changes", "version_lag_generation_expected")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    SEEN_AT_FIELD_NUMBER: _ClassVar[int]
    VERSION_LABEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_LABELLED_FIELD_NUMBER: _ClassVar[int]
    VERSION_SERVED_FIELD_NUMBER: _ClassVar[int]
    VERSION_PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    VERSION_CANARY_FIELD_NUMBER: _ClassVar[int]
    VERSION_LAG_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SYNC_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_WAITING_FIELD_NUMBER: _ClassVar[int]
    QUEUE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    CANARY_LOG_RATIO_ABS_MEAN_FIELD_NUMBER: _ClassVar[int]
    CANARY_LOG_RATIO_ABS_MAX_FIELD_NUMBER: _ClassVar[int]
    CANARY_VERSION_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    LOOKS_FIELD_NUMBER: _ClassVar[int]
    FAILED_LOOKS_FIELD_NUMBER: _ClassVar[int]
    CANARY_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_CHANGES_FIELD_NUMBER: _ClassVar[int]
    VERSION_LAG_GENERATION_EXPECTED_FIELD_NUMBER: _ClassVar[int]
    engine: str
    state: EngineState
    reason: str
    kind: EngineKind
    release: str
    seen_at: float
    version_label: str
    version_labelled: int
    version_served: int
    version_published: int
    version_canary: int
    version_lag: int
    weight_age_seconds: float
    sync_seconds: float
    requests_running: int
    requests_waiting: int
    queue_seconds: float
    drain_seconds: float
    generation_tokens_per_second: float
    canary_log_ratio_abs_mean: float
    canary_log_ratio_abs_max: float
    canary_version: int
    checksum: str
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    looks: int
    failed_looks: int
    canary_requests: int
    version_changes: int
    version_lag_generation_expected: float
    def __init__(self, engine: _Optional[str] = ..., state: _Optional[_Union[EngineState, str]] = ..., reason: _Optional[str] = ..., kind: _Optional[_Union[EngineKind, str]] = ..., release: _Optional[str] = ..., seen_at: _Optional[float] = ..., version_label: _Optional[str] = ..., version_labelled: _Optional[int] = ..., version_served: _Optional[int] = ..., version_published: _Optional[int] = ..., version_canary: _Optional[int] = ..., version_lag: _Optional[int] = ..., weight_age_seconds: _Optional[float] = ..., sync_seconds: _Optional[float] = ..., requests_running: _Optional[int] = ..., requests_waiting: _Optional[int] = ..., queue_seconds: _Optional[float] = ..., drain_seconds: _Optional[float] = ..., generation_tokens_per_second: _Optional[float] = ..., canary_log_ratio_abs_mean: _Optional[float] = ..., canary_log_ratio_abs_max: _Optional[float] = ..., canary_version: _Optional[int] = ..., checksum: _Optional[str] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., looks: _Optional[int] = ..., failed_looks: _Optional[int] = ..., canary_requests: _Optional[int] = ..., version_changes: _Optional[int] = ..., version_lag_generation_expected: _Optional[float] = ...) -> None: ...

class ReportEnginesRequest(_message.Message):
    __slots__ = ("run", "probe", "engines", "period_seconds")
    RUN_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    run: str
    probe: str
    engines: _containers.RepeatedCompositeFieldContainer[EngineStatus]
    period_seconds: float
    def __init__(self, run: _Optional[str] = ..., probe: _Optional[str] = ..., engines: _Optional[_Iterable[_Union[EngineStatus, _Mapping]]] = ..., period_seconds: _Optional[float] = ...) -> None: ...

class ReportEnginesResponse(_message.Message):
    __slots__ = ("facts",)
    FACTS_FIELD_NUMBER: _ClassVar[int]
    facts: TrainerFacts
    def __init__(self, facts: _Optional[_Union[TrainerFacts, _Mapping]] = ...) -> None: ...

class WatchEnginesRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class WatchEnginesResponse(_message.Message):
    __slots__ = ("engines", "at")
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    engines: _containers.RepeatedCompositeFieldContainer[EngineStatus]
    at: float
    def __init__(self, engines: _Optional[_Iterable[_Union[EngineStatus, _Mapping]]] = ..., at: _Optional[float] = ...) -> None: ...

class Total(_message.Message):
    __slots__ = ("total", "count", "nan_count")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    NAN_COUNT_FIELD_NUMBER: _ClassVar[int]
    total: float
    count: int
    nan_count: int
    def __init__(self, total: _Optional[float] = ..., count: _Optional[int] = ..., nan_count: _Optional[int] = ...) -> None: ...

class ReportStepRequest(_message.Message):
    __slots__ = ("run", "incarnation", "rank", "step", "measures", "ended")
    class MeasuresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Total
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Total, _Mapping]] = ...) -> None: ...
    RUN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MEASURES_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    run: str
    incarnation: str
    rank: int
    step: int
    measures: _containers.MessageMap[str, Total]
    ended: bool
    def __init__(self, run: _Optional[str] = ..., incarnation: _Optional[str] = ..., rank: _Optional[int] = ..., step: _Optional[int] = ..., measures: _Optional[_Mapping[str, Total]] = ..., ended: bool = ...) -> None: ...

class ReportStepResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CloseRunRequest(_message.Message):
    __slots__ = ("run", "incarnation", "rank")
    RUN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    run: str
    incarnation: str
    rank: int
    def __init__(self, run: _Optional[str] = ..., incarnation: _Optional[str] = ..., rank: _Optional[int] = ...) -> None: ...

class CloseRunResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RunRecord(_message.Message):
    __slots__ = ("life", "run", "incarnation", "rule", "world_size", "opened_at", "last_at", "first_step", "last_step", "stored_step", "steps", "batches", "tokens", "version_published", "is_open", "ended_at")
    LIFE_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    OPENED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    STORED_STEP_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    VERSION_PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    IS_OPEN_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    life: int
    run: str
    incarnation: str
    rule: Rule
    world_size: int
    opened_at: float
    last_at: float
    first_step: int
    last_step: int
    stored_step: int
    steps: int
    batches: int
    tokens: int
    version_published: int
    is_open: bool
    ended_at: float
    def __init__(self, life: _Optional[int] = ..., run: _Optional[str] = ..., incarnation: _Optional[str] = ..., rule: _Optional[_Union[Rule, _Mapping]] = ..., world_size: _Optional[int] = ..., opened_at: _Optional[float] = ..., last_at: _Optional[float] = ..., first_step: _Optional[int] = ..., last_step: _Optional[int] = ..., stored_step: _Optional[int] = ..., steps: _Optional[int] = ..., batches: _Optional[int] = ..., tokens: _Optional[int] = ..., version_published: _Optional[int] = ..., is_open: bool = ..., ended_at: _Optional[float] = ...) -> None: ...

class QueryRunsRequest(_message.Message):
    __slots__ = ("known",)
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    known: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, known: _Optional[_Iterable[int]] = ...) -> None: ...

class QueryRunsResponse(_message.Message):
    __slots__ = ("runs", "stamps")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    STAMPS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[RunRecord]
    stamps: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, runs: _Optional[_Iterable[_Union[RunRecord, _Mapping]]] = ..., stamps: _Optional[_Iterable[int]] = ...) -> None: ...

class LengthLag(_message.Message):
    __slots__ = ("longest", "responses", "length", "tokens", "lag", "split_tokens", "generation_lag", "queue_lag")
    LONGEST_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    SPLIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_LAG_FIELD_NUMBER: _ClassVar[int]
    QUEUE_LAG_FIELD_NUMBER: _ClassVar[int]
    longest: int
    responses: int
    length: int
    tokens: int
    lag: int
    split_tokens: int
    generation_lag: int
    queue_lag: int
    def __init__(self, longest: _Optional[int] = ..., responses: _Optional[int] = ..., length: _Optional[int] = ..., tokens: _Optional[int] = ..., lag: _Optional[int] = ..., split_tokens: _Optional[int] = ..., generation_lag: _Optional[int] = ..., queue_lag: _Optional[int] = ...) -> None: ...

class StepPoint(_message.Message):
    __slots__ = ("life", "first_step", "last_step", "steps", "at", "is_closed", "ranks", "batches", "policy_version", "values", "heat", "lags", "generation_lags", "queue_lags", "versions", "length_lags", "layer_flip_rates")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class LagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class GenerationLagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class QueueLagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class VersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class LayerFlipRatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    LIFE_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    IS_CLOSED_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    HEAT_FIELD_NUMBER: _ClassVar[int]
    LAGS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_LAGS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_LAGS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_LAGS_FIELD_NUMBER: _ClassVar[int]
    LAYER_FLIP_RATES_FIELD_NUMBER: _ClassVar[int]
    life: int
    first_step: int
    last_step: int
    steps: int
    at: float
    is_closed: bool
    ranks: int
    batches: int
    policy_version: int
    values: _containers.ScalarMap[str, float]
    heat: _containers.RepeatedScalarFieldContainer[int]
    lags: _containers.ScalarMap[int, int]
    generation_lags: _containers.ScalarMap[int, int]
    queue_lags: _containers.ScalarMap[int, int]
    versions: _containers.ScalarMap[int, int]
    length_lags: _containers.RepeatedCompositeFieldContainer[LengthLag]
    layer_flip_rates: _containers.ScalarMap[int, float]
    def __init__(self, life: _Optional[int] = ..., first_step: _Optional[int] = ..., last_step: _Optional[int] = ..., steps: _Optional[int] = ..., at: _Optional[float] = ..., is_closed: bool = ..., ranks: _Optional[int] = ..., batches: _Optional[int] = ..., policy_version: _Optional[int] = ..., values: _Optional[_Mapping[str, float]] = ..., heat: _Optional[_Iterable[int]] = ..., lags: _Optional[_Mapping[int, int]] = ..., generation_lags: _Optional[_Mapping[int, int]] = ..., queue_lags: _Optional[_Mapping[int, int]] = ..., versions: _Optional[_Mapping[int, int]] = ..., length_lags: _Optional[_Iterable[_Union[LengthLag, _Mapping]]] = ..., layer_flip_rates: _Optional[_Mapping[int, float]] = ...) -> None: ...

class QueryStepsRequest(_message.Message):
    __slots__ = ("run", "life", "first_step", "last_step", "max_points", "known")
    RUN_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    MAX_POINTS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    run: str
    life: int
    first_step: int
    last_step: int
    max_points: int
    known: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, run: _Optional[str] = ..., life: _Optional[int] = ..., first_step: _Optional[int] = ..., last_step: _Optional[int] = ..., max_points: _Optional[int] = ..., known: _Optional[_Iterable[int]] = ...) -> None: ...

class QueryStepsResponse(_message.Message):
    __slots__ = ("points", "stamps")
    POINTS_FIELD_NUMBER: _ClassVar[int]
    STAMPS_FIELD_NUMBER: _ClassVar[int]
    points: _containers.RepeatedCompositeFieldContainer[StepPoint]
    stamps: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, points: _Optional[_Iterable[_Union[StepPoint, _Mapping]]] = ..., stamps: _Optional[_Iterable[int]] = ...) -> None: ...

class WorstToken(_message.Message):
    __slots__ = ("log_ratio", "position", "sequence", "behavior_logprob", "policy_logprob", "reference_logprob", "advantage", "version", "engine")
    LOG_RATIO_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BEHAVIOR_LOGPROB_FIELD_NUMBER: _ClassVar[int]
    POLICY_LOGPROB_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_LOGPROB_FIELD_NUMBER: _ClassVar[int]
    ADVANTAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    log_ratio: float
    position: int
    sequence: int
    behavior_logprob: float
    policy_logprob: float
    reference_logprob: float
    advantage: float
    version: int
    engine: str
    def __init__(self, log_ratio: _Optional[float] = ..., position: _Optional[int] = ..., sequence: _Optional[int] = ..., behavior_logprob: _Optional[float] = ..., policy_logprob: _Optional[float] = ..., reference_logprob: _Optional[float] = ..., advantage: _Optional[float] = ..., version: _Optional[int] = ..., engine: _Optional[str] = ...) -> None: ...

class BatchRecord(_message.Message):
    __slots__ = ("life", "step", "rank", "microbatch", "at", "policy_version", "values", "worst")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    LIFE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    MICROBATCH_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    WORST_FIELD_NUMBER: _ClassVar[int]
    life: int
    step: int
    rank: int
    microbatch: int
    at: float
    policy_version: int
    values: _containers.ScalarMap[str, float]
    worst: _containers.RepeatedCompositeFieldContainer[WorstToken]
    def __init__(self, life: _Optional[int] = ..., step: _Optional[int] = ..., rank: _Optional[int] = ..., microbatch: _Optional[int] = ..., at: _Optional[float] = ..., policy_version: _Optional[int] = ..., values: _Optional[_Mapping[str, float]] = ..., worst: _Optional[_Iterable[_Union[WorstToken, _Mapping]]] = ...) -> None: ...

class QueryBatchesRequest(_message.Message):
    __slots__ = ("run", "life", "step", "known")
    RUN_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    run: str
    life: int
    step: int
    known: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, run: _Optional[str] = ..., life: _Optional[int] = ..., step: _Optional[int] = ..., known: _Optional[_Iterable[int]] = ...) -> None: ...

class QueryBatchesResponse(_message.Message):
    __slots__ = ("batches", "stamps")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    STAMPS_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[BatchRecord]
    stamps: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, batches: _Optional[_Iterable[_Union[BatchRecord, _Mapping]]] = ..., stamps: _Optional[_Iterable[int]] = ...) -> None: ...

class VersionRecord(_message.Message):
    __slots__ = ("life", "version", "at", "step")
    LIFE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    life: int
    version: int
    at: float
    step: int
    def __init__(self, life: _Optional[int] = ..., version: _Optional[int] = ..., at: _Optional[float] = ..., step: _Optional[int] = ...) -> None: ...

class QueryVersionsRequest(_message.Message):
    __slots__ = ("run", "life", "limit", "known")
    RUN_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    run: str
    life: int
    limit: int
    known: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, run: _Optional[str] = ..., life: _Optional[int] = ..., limit: _Optional[int] = ..., known: _Optional[_Iterable[int]] = ...) -> None: ...

class QueryVersionsResponse(_message.Message):
    __slots__ = ("versions", "stamps")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    STAMPS_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[VersionRecord]
    stamps: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, versions: _Optional[_Iterable[_Union[VersionRecord, _Mapping]]] = ..., stamps: _Optional[_Iterable[int]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("id", "alert", "severity", "resolved", "at", "evidence", "run", "life", "engine", "step", "version", "value", "threshold")
    ID_FIELD_NUMBER: _ClassVar[int]
    ALERT_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    id: int
    alert: str
    severity: Severity
    resolved: bool
    at: float
    evidence: str
    run: str
    life: int
    engine: str
    step: int
    version: int
    value: float
    threshold: float
    def __init__(self, id: _Optional[int] = ..., alert: _Optional[str] = ..., severity: _Optional[_Union[Severity, str]] = ..., resolved: bool = ..., at: _Optional[float] = ..., evidence: _Optional[str] = ..., run: _Optional[str] = ..., life: _Optional[int] = ..., engine: _Optional[str] = ..., step: _Optional[int] = ..., version: _Optional[int] = ..., value: _Optional[float] = ..., threshold: _Optional[float] = ...) -> None: ...

class QueryEventsRequest(_message.Message):
    __slots__ = ("run", "life", "after", "only_active", "limit", "known")
    RUN_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    ONLY_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    run: str
    life: int
    after: int
    only_active: bool
    limit: int
    known: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, run: _Optional[str] = ..., life: _Optional[int] = ..., after: _Optional[int] = ..., only_active: bool = ..., limit: _Optional[int] = ..., known: _Optional[_Iterable[int]] = ...) -> None: ...

class QueryEventsResponse(_message.Message):
    __slots__ = ("events", "stamps")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    STAMPS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    stamps: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., stamps: _Optional[_Iterable[int]] = ...) -> None: ...

class EngineRecord(_message.Message):
    __slots__ = ("at", "status", "run")
    AT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    at: float
    status: EngineStatus
    run: str
    def __init__(self, at: _Optional[float] = ..., status: _Optional[_Union[EngineStatus, _Mapping]] = ..., run: _Optional[str] = ...) -> None: ...

class QueryEnginesRequest(_message.Message):
    __slots__ = ("run", "since", "until", "limit", "known")
    RUN_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    run: str
    since: float
    until: float
    limit: int
    known: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, run: _Optional[str] = ..., since: _Optional[float] = ..., until: _Optional[float] = ..., limit: _Optional[int] = ..., known: _Optional[_Iterable[int]] = ...) -> None: ...

class QueryEnginesResponse(_message.Message):
    __slots__ = ("engines", "stamps")
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    STAMPS_FIELD_NUMBER: _ClassVar[int]
    engines: _containers.RepeatedCompositeFieldContainer[EngineRecord]
    stamps: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, engines: _Optional[_Iterable[_Union[EngineRecord, _Mapping]]] = ..., stamps: _Optional[_Iterable[int]] = ...) -> None: ...
