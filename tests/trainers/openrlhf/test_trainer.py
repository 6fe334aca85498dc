"""The hook in OpenRLHF's own trainer, and in an actor of the documented launch script, in a Ray worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from satwatch.client import FakeClient, connect
from satwatch.hooks.openrlhf import install
from satwatch.types import Rule
from tests.trainers.openrlhf.trainer import CLIPS, LENGTHS, MICROBATCH, PROMPT, fill, make_trainer, train, weights

ROOT = Path(__file__).resolve().parents[3]
MICROBATCHES = len(LENGTHS) // MICROBATCH
TOKENS = sum(LENGTHS) - PROMPT * len(LENGTHS)
RULE = Rule(eps_low=0.2, eps_high=0.28)
MASKS = CLIPS | {"is_correction_mode": "mask"}


def active(values, mask):
    return sorted(values[mask].tolist())


def test_every_microbatch_is_sent_with_each_tokens_own_log_ratio():
    trainer = make_trainer()
    trainer.actor_optim.param_groups[0]["lr"] = 0.0  # so that pi_now is pi_old in every microbatch
    batch = fill(trainer)
    client = FakeClient(rule=RULE)
    install(trainer, client)
    train(trainer)
    assert len(client.calls) == MICROBATCHES
    sent = sorted(d for call in client.calls for d in call.batch.log_ratio[call.batch.mask].tolist())
    right = active(batch.action_log_probs - batch.rollout_log_probs, batch.action_mask)
    assert len(sent) == TOKENS
    assert sent == pytest.approx(right, abs=1e-5)
    assert [call.batch.step for call in client.calls] == [0, 1]
    assert [call.batch.reference_logprob for call in client.calls] == [None, None]


def test_a_token_that_the_trainer_likes_better_has_a_log_ratio_above_zero():
    trainer = make_trainer(is_async=False)
    batch = fill(trainer, drift=0.0)
    for item in trainer.replay_buffer.items:
        item.rollout_log_probs -= 0.5 * item.action_mask
    client = FakeClient(rule=RULE)
    install(trainer, client)
    train(trainer)
    first = client.calls[0].batch
    sent = first.log_ratio[first.mask]
    assert torch.allclose(sent, torch.full_like(sent, 0.5), atol=1e-5)
    # In turns with vLLM, the trainer's score of a rollout is that of the weights it came from.
    scores = active(batch.action_log_probs, batch.action_mask)
    found = sorted(s for call in client.calls for s in call.batch.reference_logprob[call.batch.mask].tolist())
    assert found == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize(
    "correction", [CLIPS, MASKS, CLIPS | {"is_correction_level": "seq", "is_correction_mode": "mask"}]
)
@pytest.mark.parametrize("unit", ["ppo", "gspo"])
def test_only_watching_trains_the_same_weights_bit_for_bit(correction, unit):
    rule = Rule(eps_low=0.2, eps_high=0.28, level="sequence" if unit == "gspo" else "token", enabled=False)
    results = []
    for client in (None, FakeClient(rule=rule)):
        trainer = make_trainer(correction, policy_loss_type=unit, dual_clip=3.0)
        fill(trainer)
        if client is not None:
            install(trainer, client)
        results.append((train(trainer), weights(trainer)))
    (stock, stock_weights), (status, watched) = results
    assert len(client.calls) == MICROBATCHES
    assert all(torch.equal(watched[name], value) for name, value in stock_weights.items())
    assert {name: value for name, value in status.items() if "satwatch/" not in name} == stock
    assert status["satwatch/tokens"] == TOKENS


@pytest.mark.parametrize("correction", [CLIPS, MASKS])
def test_guarding_trains_other_weights_and_clips_more(correction):
    results = []
    for client in (None, FakeClient(rule=Rule(eps_low=0.2, eps_high=0.28, quantile=0.5))):
        trainer = make_trainer(correction)
        fill(trainer, drift=0.15)
        if client is not None:
            install(trainer, client)
        results.append((train(trainer), weights(trainer)))
    (stock, stock_weights), (status, guarded) = results
    assert status["ppo_clip_ratio"] > stock["ppo_clip_ratio"]
    assert any(not torch.equal(guarded[name], value) for name, value in stock_weights.items())
    assert status["satwatch/gate_rate"] > 0
    assert status["satwatch/decoupled"] == (correction is MASKS)
    assert status["vllm_kl"] != 0  # the trainer's own measure of pi_old against mu is that also where it is handed mu
    assert stock.keys() == {name for name in status if "satwatch/" not in name}


def test_without_the_engines_log_probs_nothing_is_sent(caplog):
    trainer = make_trainer({})
    fill(trainer, has_rollout=False)
    client = FakeClient(rule=RULE)
    install(trainer, client)
    with caplog.at_level("WARNING", logger="satwatch"):
        status = train(trainer)
    assert client.calls == []
    assert not [name for name in status if "satwatch/" in name]
    (message,) = [message for message in caplog.messages if "rollout_log_probs" in message]
    assert "is_correction_level" in message


def test_a_real_sidecar_sees_the_run(sidecar):
    trainer = make_trainer()
    fill(trainer)
    with connect(sidecar.address, run="openrlhf", eps_high=0.28, on_failure="raise", timeout=60) as client:
        install(trainer, client)
        status = train(trainer)
        assert client.stats.bounds_from_sidecar == MICROBATCHES
    seen = sidecar.metrics()
    assert seen['satwatch_batches_total{run="openrlhf"}'] == MICROBATCHES
    assert seen['satwatch_tokens_total{run="openrlhf"}'] == TOKENS
    assert status["satwatch/client_fallbacks"] == 0


def test_a_sidecar_that_dies_ends_no_training(sidecar):
    trainer = make_trainer()
    fill(trainer)
    with connect(sidecar.address, run="openrlhf", eps_high=0.28, timeout=5) as client:
        install(trainer, client)
        train(trainer)
        sidecar.kill()
        status = train(trainer)
    assert status["satwatch/client_fallbacks"] == MICROBATCHES
    assert status["satwatch/hook_faults"] == 0
    assert all(value.isfinite().all() for value in weights(trainer).values())


# Runs the documented script up to where OpenRLHF's command line would take over: there, an actor is made of the class
# that it would make, in a Ray worker, and trains. Only its model is not loaded the way that needs a GPU.
LAUNCHER = """
import os, runpy, sys
import ray
from packages import stand_in
stand_in()
from openrlhf.trainer.ray import ppo_actor

def init_model_from_pretrained(self):
    import torch
    from trainer import fill, make_trainer
    torch.cuda.synchronize = lambda: None
    self.trainer = make_trainer()
    self.actor = self.trainer.actor
    fill(self.trainer)
    torch.cuda.current_device = lambda: "cpu"

def run_module(name, run_name):
    assert (name, run_name) == ("openrlhf.cli.train_ppo_ray", "__main__")
    from openrlhf.trainer.ray.ppo_actor import PolicyModelActor  # as that module does
    ray.init(
        num_cpus=1,
        num_gpus=0,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        runtime_env={"worker_process_setup_hook": "packages.stand_in"},
    )
    actor = PolicyModelActor.options(num_cpus=1, num_gpus=0).remote(1, 0, None, None)
    ray.get(actor.init_model_from_pretrained.remote())
    print("status", sorted(ray.get(actor.fit.remote())), flush=True)

ppo_actor.PolicyModelActor.__ray_metadata__.modified_class.init_model_from_pretrained = init_model_from_pretrained
runpy.run_module, run_path = run_module, runpy.run_path
run_path(sys.argv[1], run_name="__main__")
"""


@pytest.fixture
def run_script(tmp_path):
    """Run the documented script by a launcher."""
    page = (ROOT / "docs/hooks/openrlhf.md").read_text()
    (script,) = re.findall(r"```python\n(# train_sat\.py.*?)```", page, re.DOTALL)
    assert len([line for line in script.splitlines() if line.strip() and not line.startswith("#")]) <= 10
    (tmp_path / "train_sat.py").write_text(script)

    def run_script(launcher, *arguments, **variables):
        (tmp_path / "launcher.py").write_text(launcher)
        # Not as tests.trainers...: OpenRLHF's wheel brings a package "tests" of its own.
        path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
        ran = subprocess.run(
            [sys.executable, tmp_path / "launcher.py", tmp_path / "train_sat.py", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )
        assert ran.returncode == 0, ran.stdout
        return ran

    return run_script


def test_the_documented_script_ends_in_openrlhfs_own_command_line(run_script):
    launcher = """
import runpy, sys
from packages import stand_in
stand_in()
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    assert "--algo.advantage.is_correction_mode" in run_script(launcher, "--help").stdout


def test_the_documented_script_attaches_in_the_ray_worker(run_script, sidecar):
    ran = run_script(LAUNCHER, SATWATCH_RUN="documented", SATWATCH_ADDRESS=sidecar.address)
    assert "'satwatch/tokens'" in re.search("^status (.*)$", ran.stdout, re.MULTILINE).group(1)
    assert sidecar.metrics()['satwatch_batches_total{run="documented"}'] == MICROBATCHES
