"""The hook in AReaL's own actor: FSDP engine, packing, microbatches and loss are AReaL's."""

from __future__ import annotations

import importlib
import re
import socket
import subprocess
import sys
from pathlib import Path

import areal.engine
import pytest
import torch
from areal.api.cli_args import RejectionSamplingConfig
from areal.trainer.ppo import actor as actors

from satwatch.client import FakeClient, connect
from satwatch.hooks.areal import install, place
from satwatch.hooks.core import notices
from satwatch.types import Rule
from tests.trainers.areal.actor import PROMPT, VERSION, make_actor, trajectories, update, weights

ROOT = Path(__file__).resolve().parents[3]
MICROBATCHES = 4


def active(actor, rollouts):
    """Return (log-ratio, version, advantage's sign) of every token that is trained on, as the rollouts say it."""
    scores = actor.compute_logp(rollouts)
    rows = []
    for row, score in zip(rollouts, scores, strict=True):
        now = torch.roll(score, 1, -1)
        rows += zip((now - row["logprobs"])[0, PROMPT:].tolist(), row["versions"][0, PROMPT:].tolist(), strict=True)
    return sorted(rows)


def test_every_microbatch_is_sent_with_each_tokens_own_log_ratio_and_version(path):
    actor = make_actor(path, ppo_n_minibatches=1)
    rollouts = trajectories(actor)
    right = active(actor, rollouts)
    client = FakeClient()
    install(client)
    stats = update(actor, rollouts)
    batches = [call.batch for call in client.calls]
    assert len(batches) == stats["ppo_actor/update/num_micro_batches"] == 2
    sent = []
    for batch in batches:
        mask = batch.mask
        sent += zip(batch.log_ratio[mask].tolist(), batch.behavior_versions.values[mask].tolist(), strict=True)
        assert sum(batch.sequence_lengths) == len(mask)
        assert batch.policy_version == VERSION
        assert batch.step == 0
    assert len(sent) == len(right) == sum(row["loss_mask"].sum().item() for row in rollouts)
    for (d, version), (own, own_version) in zip(sorted(sent), right, strict=True):
        assert d == pytest.approx(own, abs=1e-5)
        assert version == own_version


def test_a_token_that_the_actor_likes_better_has_a_log_ratio_above_zero(path):
    actor = make_actor(path, ppo_n_minibatches=1)
    rollouts = trajectories(actor, drift=0.0)
    for row in rollouts:
        row["logprobs"] -= 0.5 * row["loss_mask"]
    client = FakeClient()
    install(client)
    update(actor, rollouts)
    for call in client.calls:
        sent = call.batch.log_ratio[call.batch.mask]
        assert torch.allclose(sent, torch.full_like(sent, 0.5), atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_decoupled_loss": True},
        {"use_decoupled_loss": True, "rejection_sampling": RejectionSamplingConfig(upper=5.0)},
        {"c_clip": 3.0, "eps_clip_higher": 0.28},
        {"importance_sampling_level": "sequence"},
    ],
)
def test_only_watching_trains_the_same_weights_bit_for_bit(path, settings):
    def train(rule=None):
        actor = make_actor(path, **settings)
        rollouts = trajectories(actor)
        client = FakeClient(rule=rule)
        if rule is not None:
            install(client)
        stats = update(actor, rollouts)
        return weights(actor), stats, client

    rule = Rule(
        eps_high=settings.get("eps_clip_higher", 0.2),
        level=settings.get("importance_sampling_level", "token"),
        enabled=False,
    )
    stock, stock_stats, _ = train()
    watched, stats, client = train(rule)
    assert len(client.calls) == MICROBATCHES
    assert all(torch.equal(watched[name], value) for name, value in stock.items())
    own = {name: value for name, value in stats.items() if "satwatch" not in name}
    assert own == stock_stats
    assert stats["ppo_actor/satwatch/decoupled"] == ("use_decoupled_loss" in settings)


def test_guarding_trains_other_weights_and_clips_more(path):
    def train(guarded):
        actor = make_actor(path)
        rollouts = trajectories(actor)
        if guarded:
            install(FakeClient(rule=Rule(quantile=0.5)))
        return update(actor, rollouts), weights(actor)

    stock, stock_weights = train(guarded=False)
    guarded, guarded_weights = train(guarded=True)
    assert guarded["ppo_actor/update/clip_ratio/avg"] > stock["ppo_actor/update/clip_ratio/avg"]
    assert any(not torch.equal(guarded_weights[name], value) for name, value in stock_weights.items())
    assert guarded["ppo_actor/satwatch/gate_rate"] > 0
    assert guarded["ppo_actor/eps_clip"] == stock["ppo_actor/eps_clip"]


def test_where_areal_overwrites_the_engines_log_probs_nothing_is_sent(path, caplog):
    actor = make_actor(path, recompute_logprob=True)
    rollouts = trajectories(actor)
    client = FakeClient()
    install(client)
    # Not by the logger's name: AReaL starts Python's logging anew with every logger of its own.
    notices.logger.addHandler(caplog.handler)
    stats = update(actor, rollouts)
    notices.logger.removeHandler(caplog.handler)
    assert client.calls == []
    (message,) = caplog.messages
    assert "recompute_logprob" in message
    assert not [name for name in stats if "satwatch" in name]


def test_a_real_sidecar_sees_the_run(path, sidecar):
    actor = make_actor(path)
    rollouts = trajectories(actor)
    client = connect(sidecar.address, run="areal", on_failure="raise", timeout=60)
    install(client)
    stats = update(actor, rollouts)
    assert client.stats.bounds_from_sidecar == MICROBATCHES
    client.close()
    seen = sidecar.metrics()
    assert seen['satwatch_batches_total{run="areal"}'] == MICROBATCHES
    assert seen['satwatch_tokens_total{run="areal"}'] == sum(row["loss_mask"].sum().item() for row in rollouts)
    assert seen['satwatch_version_coverage_ratio{run="areal"}'] == 1
    assert seen['satwatch_version_lag_max{run="areal"}'] == 2
    assert seen['satwatch_policy_version{run="areal"}'] == VERSION
    assert stats["ppo_actor/satwatch/version_lag_max"] == 2
    assert stats["ppo_actor/satwatch/client_fallbacks"] == 0


def test_a_sidecar_that_dies_ends_no_training(path, sidecar):
    actor = make_actor(path)
    rollouts = trajectories(actor)
    with connect(sidecar.address, run="areal", timeout=5) as client:
        install(client)
        update(actor, rollouts)
        sidecar.kill()
        stats = update(actor, rollouts)
    assert stats["ppo_actor/satwatch/client_fallbacks"] == MICROBATCHES
    assert stats["ppo_actor/satwatch/hook_faults"] == 0
    assert all(value.isfinite().all() for value in weights(actor).values())


@pytest.fixture
def snippet(tmp_path, monkeypatch):
    """The documentation's module, as a user saves it."""
    page = (ROOT / "docs/hooks/areal.md").read_text()
    (code,) = re.findall(r"```python\n(# sat_actor\.py.*?)```", page, re.DOTALL)
    (tmp_path / "sat_actor.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(areal.engine, "FSDPPPOActor", areal.engine.FSDPPPOActor)
    yield code
    sys.modules.pop("sat_actor", None)


def test_the_documented_module_attaches_wherever_its_actor_is_made(path, snippet, sidecar, monkeypatch):
    assert len([line for line in snippet.splitlines() if line.strip()]) <= 10
    monkeypatch.setenv("SATWATCH_RUN", "documented")
    monkeypatch.setenv("SATWATCH_ADDRESS", sidecar.address)
    stock = actors.grpo_loss_fn
    sat_actor = importlib.import_module("sat_actor")
    # What AReaL's trainer looks up, and the name by which its workers import it.
    assert areal.engine.FSDPPPOActor is sat_actor.SatActor
    assert (sat_actor.SatActor.__module__, sat_actor.SatActor.__name__) == ("sat_actor", "SatActor")
    actor = make_actor(path, areal.engine.FSDPPPOActor)
    assert actors.grpo_loss_fn is not stock
    update(actor, trajectories(actor))
    assert sidecar.metrics()['satwatch_batches_total{run="documented"}'] == MICROBATCHES


PLACES = """
import os, sys
from tests.trainers.areal.packages import stand_in
stand_in()
from tests.trainers.areal.actor import config_of
from areal.engine.fsdp_engine import FSDPPPOActor
from satwatch.hooks.areal import place

os.environ.update(RANK=sys.argv[2], WORLD_SIZE="2", LOCAL_RANK=sys.argv[2], MASTER_PORT=sys.argv[3])
found = []
for backend in ("fsdp:d2", "fsdp:d1t2"):
    actor = FSDPPPOActor(config_of(sys.argv[1], backend=backend))
    actor.create_process_group()
    found.append(place(actor))
print("places", found, flush=True)
"""


def test_of_the_ranks_with_the_same_tokens_one_sends(path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PLACES, path, str(rank), str(port)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=240) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    places = [re.search(r"places (.*)", out).group(1) for out, _ in said]
    assert places == ["[(0, 2, True), (0, 1, True)]", "[(1, 2, True), (0, 1, False)]"]


def test_alone_a_rank_is_the_first_of_one(path):
    assert place(make_actor(path)) == (0, 1, True)
