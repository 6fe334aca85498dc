"""The README's first screen is what a trainer pastes: it runs, against a real sidecar, and its claims hold."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from satwatch.client import EngineReporter, HistoryClient, connect, default_canary
from satwatch.errors import UnknownRunError
from satwatch.sat import clip_bounds

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
# The first is TRL's, which tests/trainers/trl/test_readme.py runs.
TRL_HOOK, LOOP_HOOK, STEP_LINES, CANARY_HOOK = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


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
        "advantage": torch.randn(4, 1, generator=generator),
        "step": 0,
        "torch": torch,
    }


def test_the_hook_of_a_loop_runs_as_it_stands(sidecar, trainer):
    with connect(sidecar.address, run="my-run", min_reference=1e-3) as client:
        trainer["client"] = client
        exec(LOOP_HOOK, trainer)
        assert client.stats.bounds_from_sidecar == 1
    log_ratio = (trainer["logp"] - trainer["behavior_logp"]).detach()
    local = clip_bounds(log_ratio, mask=trainer["mask"], min_reference=1e-3)
    assert torch.equal(1 - trainer["eps_low"], local.low)
    assert torch.equal(1 + trainer["eps_high"], local.high)
    assert local.gate.any()
    trainer["loss"].backward()
    gradient = trainer["logp"].grad
    assert gradient.isfinite().all()
    assert (gradient[trainer["mask"]] != 0).any()
    assert (gradient[~trainer["mask"]] == 0).all()


def test_the_lines_of_a_step_bring_reward_loss_lengths_and_its_end(sidecar, trainer):
    with connect(sidecar.address, run="steps", on_failure="raise", timeout=30.0) as client:
        client.clip_bounds(trainer["logp"] - trainer["behavior_logp"], step=7)
        trainer |= {"client": client, "step": 7}
        exec(STEP_LINES, trainer | {"rewards": torch.tensor([0.0, 1.0, 1.0]), "loss": 0.25, "lengths": [3, 5]})
    with HistoryClient(sidecar.address, timeout=30.0) as history:
        point = closed_step(history, "steps")
    assert point.last_step == 7
    assert (point.values["reward_mean"], point.values["loss_mean"]) == (pytest.approx(2 / 3), 0.25)
    assert point.values["response_length_mean"] == 4.0


def closed_step(history, run):
    """Wait for a run's first closed step; what a trainer was told is on disk within the second."""
    for _ in range(600):
        with suppress(UnknownRunError):
            closed = [point for point in history.steps(run) if point.is_closed]
            if closed:
                return closed[0]
        time.sleep(0.1)
    pytest.fail("no step was closed within a minute")


class Bigram(torch.nn.Module):
    """A model that a trainer might publish."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(256, 256)

    def forward(self, input_ids):
        return self.table(input_ids)


def test_the_lines_of_a_publishing_trainer_tell_the_sidecar_version_and_canary(sidecar):
    model = Bigram()
    with connect(sidecar.address, run="r", on_failure="raise", timeout=30.0) as client:
        exec(CANARY_HOOK, {"client": client, "model": model, "version": 6})
        client.server_info()
    with EngineReporter(sidecar.address, run="r", probe="p", period_seconds=60.0, timeout=30.0) as report:
        facts = report(())
    assert facts.version_published == 6
    assert [(scores.version, scores.canary) for scores in facts.canaries] == [(6, default_canary())]


def test_the_hook_of_the_first_screen_is_five_lines():
    assert len([line for line in TRL_HOOK.splitlines() if line.strip()]) == 5


def test_every_link_into_the_repository_leads_somewhere():
    root = Path(__file__).resolve().parents[2]
    for page in (root / "README.md", *root.glob("docs/**/*.md")):
        targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8"))
        missing = [target for target in targets if not (page.parent / target).exists()]
        assert not missing, f"{page.name}: {missing}"
