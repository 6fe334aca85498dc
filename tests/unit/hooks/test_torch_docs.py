"""docs/hooks/torch.md: its examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from satwatch.client import FakeClient
from satwatch.hooks import torch as hook
from satwatch.hooks import use
from satwatch.hooks.core import settings

TEXT = (Path(__file__).resolve().parents[3] / "docs/hooks/torch.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def names(monkeypatch):
    """What the reader's loop has when the examples begin."""
    monkeypatch.setattr(settings, "_process_client", [])
    monkeypatch.setattr(hook, "_from_environment", [])
    logged = []
    return {
        "torch": torch,
        "logprob": torch.full((2, 5), -1.0, requires_grad=True),
        "rollout_logprob": torch.full((2, 5), -1.1),
        "mask": torch.ones(2, 5, dtype=torch.bool),
        "advantage": torch.ones(2, 1),
        "step": 3,
        "rollout_version": [1, 2],
        "rank": 0,
        "world_size": 1,
        "logger": SimpleNamespace(log=lambda values, step: logged.append((values, step))),
        "logged": logged,
        "clip_radii": hook.clip_radii,
    }


def test_the_snippet_is_short_and_runs(names):
    client = FakeClient()
    use(client)
    (snippet, *_) = EXAMPLES
    assert len(snippet.splitlines()) <= 10
    exec(compile(snippet, "docs/hooks/torch.md", "exec"), names)
    names["loss"].backward()
    assert names["logprob"].grad is not None
    ((values, step),) = names["logged"]
    assert step == 3
    assert values["satwatch/version_lag_mean"] == 1.5
    assert client.calls[0].batch.log_ratio.mean().item() == pytest.approx(0.1)


@pytest.mark.parametrize("example", EXAMPLES[1:])
def test_the_other_examples_run(names, example):
    use(FakeClient())
    exec(compile(example, "docs/hooks/torch.md", "exec"), names)


def test_there_are_examples():
    assert len(EXAMPLES) == 4
