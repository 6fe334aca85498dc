"""The main job: a small policy trained by asynchronous GRPO, with clip bounds from a sidecar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satwatch.demo.config import DemoConfig
from satwatch.demo.summary import DemoSummary, StepRecord

if TYPE_CHECKING:
    from satwatch.demo.run import run_demo as run_demo

__all__ = ["DemoConfig", "DemoSummary", "StepRecord", "run_demo"]


def __getattr__(name: str) -> object:
    # Loaded on first use: a command line reads the settings without torch, the rollout process needs no gRPC.
    if name == "run_demo":
        from satwatch.demo.run import run_demo

        return run_demo
    raise AttributeError(f"module 'satwatch.demo' has no attribute {name!r}")  # noqa: TRY003 (Python's own words)
