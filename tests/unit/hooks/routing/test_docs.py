"""docs/hooks/routing.md: its examples run as they stand."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from satwatch.client import FakeClient
from satwatch.hooks import torch as hook
from satwatch.hooks import use
from satwatch.hooks.core import settings
from tests.unit.hooks.routing.moe import Moe

TEXT = (Path(__file__).resolve().parents[4] / "docs/hooks/routing.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


class Model(Moe):
    """Called as transformers' are."""

    def forward(self, input_ids, attention_mask):
        return SimpleNamespace(logits=super().forward(input_ids))


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setattr(settings, "_process_client", [])
    monkeypatch.setattr(hook, "_from_environment", [])
    client = FakeClient()
    use(client)
    return client


def run(example, names):
    exec(compile(example, "docs/hooks/routing.md", "exec"), names)
    return names


def test_the_snippet_is_short_and_sends_the_counts(client):
    torch.manual_seed(0)
    model = Model()
    mask = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]])
    names = {
        "model": model,
        "input_ids": torch.arange(8).reshape(2, 4),
        "attention_mask": torch.ones(2, 4),
        "engine_routes": [np.full((3, 4, 2), [0, 1]), None],
        "response_mask": mask,
        "mask": mask,
        "logprob": torch.full((2, 4), -1.0),
        "rollout_logprob": torch.full((2, 4), -1.1),
        "clip_radii": hook.clip_radii,
    }
    assert len(EXAMPLES[0].splitlines()) <= 10
    assert run(EXAMPLES[0], names)["eps_low"].shape == (2, 4)
    sent = client.calls[0].batch.routing
    assert (sent.tokens, sent.missing_tokens, [layer.layer for layer in sent.layers]) == (2, 3, [1, 3])


def test_an_answer_of_sglang_is_read():
    rows = np.tile(np.arange(8, dtype="<i4"), (3, 48, 1))
    spans = [{"version": "6", "start": 0, "end": 1}, {"version": "7", "start": 1, "end": 2}]
    info = {"prompt_tokens": 2, "completion_tokens": 2, "weight_version": "7", "weight_versions": spans}
    names = {"answer": {"meta_info": {**info, "routed_experts": base64.b64encode(rows.tobytes()).decode()}}}
    (routes,) = run(EXAMPLES[1], names)["engine_routes"]
    assert (routes.shape, routes[-1].max()) == ((4, 48, 8), -1)
    assert run(EXAMPLES[2], names)["behavior_version"] == [6, 7]


def test_every_example_is_run_above():
    assert len(EXAMPLES) == 3
