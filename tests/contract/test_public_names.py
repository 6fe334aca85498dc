"""The names that others build on: a change here is a change of the interface, and goes into the changelog."""

from __future__ import annotations

import importlib

import pytest

PUBLIC = {
    "satwatch": ["__version__", "connect"],
    "satwatch.client": [
        "BoundsClient",
        "Call",
        "Client",
        "ClientStats",
        "EngineReporter",
        "FakeClient",
        "HistoryClient",
        "Microbatch",
        "connect",
        "default_canary",
        "watch_engines",
    ],
    "satwatch.engines": [
        "logprobs_from_meta_info",
        "read_label",
        "routed_experts_from_sglang",
        "routed_experts_from_vllm",
        "versions_from_meta_info",
        "versions_per_token",
    ],
    "satwatch.hooks": ["Attachment", "ClipRadii", "use"],
    "satwatch.hooks.canary": ["canary_logprobs", "report_canary"],
    "satwatch.probe": [
        "EngineSnapshot",
        "EngineStatus",
        "HttpEngine",
        "ProbeSettings",
        "Watcher",
        "attach",
        "watching",
    ],
    "satwatch.sat": [
        "BatchSummary",
        "Bracket",
        "ClipBounds",
        "Deltas",
        "Gap",
        "Scores",
        "Sketch",
        "StepTotals",
        "TAIL_EDGES",
        "VersionLag",
        "align_routes",
        "clip_bounds",
        "compare_routes",
        "diagnostics",
        "lag_0_tokens",
        "lag_by_length",
        "layer_flip_rates",
        "merge_routing",
        "pack",
        "predicting_positions",
        "quantile_reference",
        "refine",
        "routing_diagnostics",
        "score_batch",
        "split_deltas",
        "summarize",
        "surrogate",
        "tail_counts",
        "unpack",
        "version_lag",
        "worst_tokens",
    ],
    "satwatch.server": ["RunningServer", "Settings", "load_settings", "running", "serve"],
}


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_are_these(module):
    assert sorted(importlib.import_module(module).__all__) == PUBLIC[module]


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_there(module):
    loaded = importlib.import_module(module)
    assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []
