"""slime's hook: by signature, the real package is not run here (read: slime 0.3.1, as of August 2026)."""

from __future__ import annotations

import importlib
import logging
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

import satwatch.hooks.rollout_versions
import satwatch.hooks.slime as hook
from satwatch.client import FakeClient
from satwatch.errors import ConfigError
from satwatch.hooks import use
from satwatch.hooks.slime_family import METRICS
from tests.contract.hooks.slime_family import (
    RULE,
    Ranks,
    SlimeFamilyContract,
    Trainer,
    arguments,
    run,
    stand_in,
)


@pytest.fixture
def trainer(monkeypatch):
    """slime's modules and Megatron's parallel state, stood in for."""
    losses, slices, parallel = ModuleType("loss"), ModuleType("cp_utils"), ModuleType("parallel_state")
    trainer = Trainer("slime", losses, hook, Ranks())
    stand_in(trainer, lambda scores: (torch.empty(0), {"log_probs": scores}), lambda scores: scores[1]["log_probs"])
    slices.slice_log_prob_with_cp = lambda values, total, response: trainer.cut(values)
    slices.all_gather_with_cp = lambda values, total, response: trainer.gather(values)
    ranks = trainer.ranks

    def data_parallel(number):
        def of(with_context_parallel=False):
            (rank, size), (context, contexts) = ranks.data, ranks.context
            return (rank * contexts + context, size * contexts)[number] if with_context_parallel else ranks.data[number]

        return of

    parallel.get_data_parallel_rank, parallel.get_data_parallel_world_size = data_parallel(0), data_parallel(1)
    parallel.get_context_parallel_rank = lambda: ranks.context[0]
    parallel.get_context_parallel_world_size = lambda: ranks.context[1]
    parallel.get_tensor_model_parallel_rank = lambda: ranks.tensor[0]
    modules = {
        "slime.backends.megatron_utils.loss": losses,
        "slime.backends.megatron_utils.cp_utils": slices,
        "megatron.core.parallel_state": parallel,
    }
    for name, module in modules.items():
        for parent in (name.rsplit(".", n)[0] for n in range(1, name.count(".") + 1)):
            monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(hook, "_loss", hook.SlimeLoss())
    yield trainer
    use(None)


class TestSlime(SlimeFamilyContract):
    """What every hook of the family does, for slime's."""

    def test_cispo_can_be_watched_and_not_guarded(self, trainer):
        args = arguments(advantage_estimator="cispo", eps_clip=1.0, eps_clip_high=4.0)
        with pytest.raises(ConfigError, match="cispo"):
            run(trainer, args)
        assert run(trainer, args, client=FakeClient(rule=replace(RULE, enabled=False))).client.calls


class TestLogRollout:
    """What is logged of a rollout's versions."""

    def rollout(self):
        return [SimpleNamespace(weight_versions=versions) for versions in (["4"], ["3", "5"], ["default"], [], None)]

    def test_versions_join_the_rollouts_own_metrics_and_the_trainer_goes_on(self):
        metrics = {"own": 1}
        assert hook.log_rollout(0, arguments(), self.rollout(), metrics, 0.1) is False
        assert metrics == {
            "own": 1,
            "rollout/satwatch/version_coverage": 0.4,
            "rollout/satwatch/version_oldest": 3.0,
            "rollout/satwatch/version_newest": 5.0,
            "rollout/satwatch/version_behind_mean": 1.5,
            "rollout/satwatch/version_mixed_ratio": 0.5,
            "rollout/satwatch/version_span_max": 2.0,
        }

    @pytest.mark.parametrize("version", [1.5, True, object(), 2**80, "9" * 40, None, -1])
    def test_what_is_no_version_is_unknown(self, version):
        metrics = {}
        hook.log_rollout(0, None, [SimpleNamespace(weight_versions=[version])], metrics, 0.0)
        assert metrics == {"rollout/satwatch/version_coverage": 0.0}

    def test_an_empty_rollout_says_nothing(self):
        metrics = {}
        assert hook.log_rollout(0, None, [], metrics, 0.0) is False
        assert metrics == {}

    def test_a_rollout_without_metrics_is_said_once(self, monkeypatch, caplog):
        monkeypatch.setattr(satwatch.hooks.rollout_versions, "_said", set())
        with caplog.at_level(logging.WARNING, "satwatch"):
            for _ in range(2):
                assert hook.log_rollout(0, None, self.rollout(), None, 0.0) is False
        assert len(caplog.records) == 1


def test_the_hook_is_found_by_its_path_where_slime_is_not_installed():
    assert importlib.import_module("satwatch.hooks.slime").sat_loss is hook.sat_loss
    assert "slime" not in sys.modules


def test_the_page_names_what_there_is():
    page = (Path(__file__).resolve().parents[3] / "docs" / "hooks" / "slime.md").read_text()
    paths = set(re.findall(r"satwatch\.hooks\.slime\.(\w+)", page))
    assert paths == {"sat_loss", "log_rollout"} == set(hook.__all__)
    assert all(f"`{name}`" in page for name in METRICS)
    metrics = {}
    hook.log_rollout(0, None, [SimpleNamespace(weight_versions=["1"])], metrics, 0.0)
    assert all(f"`{name.removeprefix('rollout/satwatch/')}`" in page for name in metrics)
