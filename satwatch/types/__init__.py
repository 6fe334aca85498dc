"""The values that cross a boundary: frozen, validated when made, made of the standard library only.

Everything here refuses what it can't mean, with an error that names the field. Nothing here computes.
"""

from satwatch.types.batch import (
    ITEM_BYTES,
    MAX_STEP,
    UINT32_MAX,
    BoundsRequest,
    DTypeName,
    LayerRouting,
    PackedFloats,
    PackedSketch,
    Routing,
    TokenBatch,
    VersionRun,
)
from satwatch.types.engine import (
    MAX_CANARY_SEQUENCES,
    MAX_CANARY_TOKENS,
    STATUS_FIELDS,
    Canary,
    CanaryScores,
    EngineKind,
    EnginesReport,
    EngineState,
    EngineStatus,
    Finding,
    FindingKind,
    PublishedVersion,
    TrainerFacts,
    check_engine_name,
    default_canary,
)
from satwatch.types.reply import BoundsReply, GatedTokens
from satwatch.types.rule import RULE_FIELDS, Level, Rule, Scope, is_number
from satwatch.types.runs import RunInfo, RunOpening, ServerInfo, check_run_name

__all__ = [
    "ITEM_BYTES",
    "MAX_CANARY_SEQUENCES",
    "MAX_CANARY_TOKENS",
    "MAX_STEP",
    "RULE_FIELDS",
    "STATUS_FIELDS",
    "UINT32_MAX",
    "BoundsReply",
    "BoundsRequest",
    "Canary",
    "CanaryScores",
    "DTypeName",
    "EngineKind",
    "EngineState",
    "EngineStatus",
    "EnginesReport",
    "Finding",
    "FindingKind",
    "GatedTokens",
    "LayerRouting",
    "Level",
    "PackedFloats",
    "PackedSketch",
    "PublishedVersion",
    "Routing",
    "Rule",
    "RunInfo",
    "RunOpening",
    "Scope",
    "ServerInfo",
    "TokenBatch",
    "TrainerFacts",
    "VersionRun",
    "check_engine_name",
    "check_run_name",
    "default_canary",
    "is_number",
]
