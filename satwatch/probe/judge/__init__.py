"""The judge: what an engine said is remembered, and concluded from. Pure: values and a clock in, values out."""

from satwatch.probe.judge.conclude import conclude
from satwatch.probe.judge.limits import JudgeConfig
from satwatch.probe.judge.memory import (
    EngineMemory,
    observe,
    observe_canary,
    observe_canary_failure,
    observe_checksum,
    observe_response,
)
from satwatch.probe.judge.pace import next_look, wants_canary, wants_checksum

__all__ = [
    "EngineMemory",
    "JudgeConfig",
    "conclude",
    "next_look",
    "observe",
    "observe_canary",
    "observe_canary_failure",
    "observe_checksum",
    "observe_response",
    "wants_canary",
    "wants_checksum",
]
