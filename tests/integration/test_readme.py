"""The README's first screen is what a trainer pastes: it runs, against a real sidecar, and its claims hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from satwatch.sat import clip_bounds

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
HOOK = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]


@pytest.fixture
def trainer():
    """What the README says that a trainer has at that place."""
    generator = torch.Generator().manual_seed(4)
    behavior_logp = -torch.rand(4, 32, generator=generator)
    drift = torch.randn(4, 32, generator=generator).pow(3) * 0.02
    return {
        "logp": (behavior_logp + drift).requires_grad_(),
        "behavior_logp": behavior_logp,
        "mask": torch.rand(4, 32, generator=generator) < 0.8,
        "advantage": torch.randn(4, generator=generator),
        "step": 0,
    }


def test_the_hook_runs_as_it_stands(sidecar, trainer):
    code = HOOK.replace("127.0.0.1:4820", sidecar.address)
    assert sidecar.address in code
    exec(code, trainer)
    client, bounds = trainer["client"], trainer["bounds"]
    with client:
        assert client.stats.bounds_from_sidecar == 1
    local = clip_bounds(trainer["log_ratio"], mask=trainer["mask"], min_reference=1e-3)
    assert torch.equal(bounds.low, local.low)
    assert torch.equal(bounds.high, local.high)
    assert bounds.gate.any()
    trainer["loss"].backward()
    gradient = trainer["logp"].grad
    assert gradient.isfinite().all()
    assert (gradient[trainer["mask"]] != 0).any()
    assert (gradient[~trainer["mask"]] == 0).all()


def test_the_hook_is_six_lines():
    assert len([line for line in HOOK.splitlines() if line.strip()]) == 6


def test_every_link_into_the_repository_leads_somewhere():
    root = Path(__file__).resolve().parents[2]
    for page in (root / "README.md", *root.glob("docs/*.md")):
        targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8"))
        missing = [target for target in targets if not (page.parent / target).exists()]
        assert not missing, f"{page.name}: {missing}"
