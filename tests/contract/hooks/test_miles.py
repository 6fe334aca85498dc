"""miles' hook: by signature, the real package is not run here (read: miles 0.1.0, as of August 2026)."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import satwatch.hooks.miles as hook
import satwatch.hooks.slime
from satwatch.hooks import use
from tests.contract.hooks.slime_family import (
    RESPONSES,
    TOTALS,
    Ranks,
    SlimeFamilyContract,
    Trainer,
    arguments,
    make_batch,
    run,
    stand_in,
)


@pytest.fixture
def trainer(monkeypatch):
    """miles' modules, stood in for."""
    losses, slices, parallel = ModuleType("losses"), ModuleType("cp_utils"), ModuleType("parallel")
    trainer = Trainer("miles", losses, hook, Ranks())
    stand_in(trainer, lambda scores: {"log_probs": scores}, lambda scores: scores["log_probs"])
    trainer.spans = []

    def cut(values, total, response, qkv_format="thd", max_token_len=None):
        trainer.spans.append((total, response, qkv_format, max_token_len))
        return trainer.cut(values)

    slices.slice_log_prob_with_cp = cut
    slices.all_gather_with_cp = lambda values, total, response, qkv_format, max_seq_len: trainer.gather(values)
    trainer.replicas = (0, 1)

    def get_parallel_state():
        (rank, size), (context, contexts) = trainer.ranks.data, trainer.ranks.context

        def group(rank, size):
            return SimpleNamespace(rank=rank, size=size)

        return SimpleNamespace(
            intra_dp=group(rank, size),
            intra_dp_cp=group(rank * contexts + context, size * contexts),
            indep_dp=group(*trainer.replicas),
            cp=group(context, contexts),
            tp=group(*trainer.ranks.tensor),
        )

    parallel.get_parallel_state = get_parallel_state
    modules = {
        "miles.backends.training_utils.loss_hub.losses": losses,
        "miles.backends.training_utils.cp_utils": slices,
        "miles.backends.training_utils.parallel": parallel,
    }
    for name, module in modules.items():
        for parent in (name.rsplit(".", n)[0] for n in range(1, name.count(".") + 1)):
            monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(hook, "_loss", hook.MilesLoss())
    yield trainer
    use(None)


class TestMiles(SlimeFamilyContract):
    """What every hook of the family does, for miles'."""

    @pytest.mark.parametrize(("qkv_format", "padded"), [("thd", None), ("bshd", [24] * 4)])
    def test_the_slices_are_told_how_the_batch_is_laid_out(self, trainer, qkv_format, padded):
        run(trainer, arguments(qkv_format=qkv_format), batch=make_batch(trainer, max_seq_lens=padded))
        expected = list(zip(TOTALS, RESPONSES, [qkv_format] * 4, padded or [None] * 4, strict=True))
        assert trainer.spans[:4] == expected

    def test_replicas_that_are_trained_apart_are_data_parallel_ranks(self, trainer):
        trainer.replicas, trainer.ranks.context = (1, 2), (1, 2)
        place = hook.MilesLoss().place()
        assert (place.data, place.tokens, place.context) == ((1, 2), (3, 4), (1, 2))


def test_a_rollout_is_logged_as_slimes_is():
    metrics = {}
    assert hook.log_rollout(0, None, [SimpleNamespace(weight_versions=["4"])], metrics, 0.0) is False
    assert metrics["rollout/satwatch/version_newest"] == 4.0
    assert hook.log_rollout is satwatch.hooks.slime.log_rollout


def test_the_hook_is_found_by_its_path_where_miles_is_not_installed():
    assert importlib.import_module("satwatch.hooks.miles").sat_loss is hook.sat_loss
    assert "miles" not in sys.modules


def test_the_page_names_what_there_is():
    page = (Path(__file__).resolve().parents[3] / "docs" / "hooks" / "miles.md").read_text()
    assert set(re.findall(r"satwatch\.hooks\.miles\.(\w+)", page)) == {"sat_loss", "log_rollout"} == set(hook.__all__)
