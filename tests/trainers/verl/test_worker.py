"""Runs of verl's own worker and FSDP engine: one process a rank, a real sidecar, several optimizer steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
STEPS, MINIBATCHES, ROWS, MICROBATCH = 3, 2, 8, 2


@pytest.fixture
def train(tmp_path):
    """Runs ranks side by side and returns what each of them has printed, and its log."""

    def run(ranks=1, environment=None, **arguments):
        path = os.pathsep.join(map(str, (ROOT, HERE)))
        plugins = {"PYTHONPATH": path, "VERL_USE_EXTERNAL_MODULES": "cpu_platform,satwatch.hooks.verl"}
        store = tmp_path / f"store-{len(list(tmp_path.iterdir()))}"
        store.touch()
        shared = {"world_size": ranks, "store": str(store), "steps": STEPS, "rows": ROWS, "minibatches": MINIBATCHES}
        processes = [
            subprocess.Popen(
                [sys.executable, HERE / "engine.py", json.dumps(shared | arguments | {"rank": rank})],
                env={**os.environ, **plugins, **(environment or {})},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        outputs = [process.communicate(timeout=280) for process in processes]
        assert [process.returncode for process in processes] == [0] * ranks, outputs
        return [(json.loads(out.splitlines()[-1]), log) for out, log in outputs]

    return run


def asking(sidecar, run, tmp_path, **settings):
    """Return the environment that a user exports."""
    settings = {"timeout": 20.0} | settings
    file = tmp_path / f"{run}.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    return {"SATWATCH_RUN": run, "SATWATCH_ADDRESS": sidecar.address, "SATWATCH_CLIENT_CONFIG": str(file)}


def said(log):
    return [line for line in log.splitlines() if "verl: " in line or "Falling back" in line or "sidecar" in line]


def test_two_ranks_of_a_run(train, sidecar, tmp_path):
    (first, log), (second, log_2) = train(ranks=2, environment=asking(sidecar, "two", tmp_path))
    assert not said(log) and not said(log_2)
    assert first["weights"] == second["weights"]
    found = sidecar.metrics()
    count = 2 * STEPS * ROWS // MICROBATCH
    assert found['satwatch_batches_total{run="two"}'] == count
    # Ranks, steps and microbatches have numbers of their own: none passes for another's retry.
    assert found.get('satwatch_duplicate_batches_total{run="two"}', 0) == 0
    assert found.get('satwatch_client_fallbacks_total{run="two"}', 0) == 0
    steps = first["steps"]
    assert len(steps) == STEPS
    microbatches = ROWS // MICROBATCH
    logged = sum(step["satwatch/tokens"] * microbatches * 2 for step in steps)
    assert found['satwatch_tokens_total{run="two"}'] == pytest.approx(logged)
    # The rollouts are one version old where they are of one, and begun one earlier in every fourth row.
    assert found['satwatch_policy_version{run="two"}'] == STEPS
    assert found['satwatch_version_lag_max{run="two"}'] == 2
    assert 1 < found['satwatch_version_lag_mean{run="two"}'] < 1.5
    assert 0.6 < found['satwatch_version_coverage_ratio{run="two"}'] < 1
    assert all(step["satwatch/version_lag_mean"] >= 1 for step in steps)
    assert all(0.05 < step["satwatch/log_ratio_abs_mean"] < 0.5 for step in steps)


def test_watching_changes_no_bit_and_guarding_does(train, sidecar, tmp_path):
    noise = {"noise": 0.1, "recomputed": True}
    [(stock, _)] = train(loss_mode="vanilla", **noise)
    [(watched, log)] = train(environment=asking(sidecar, "watched", tmp_path, enabled=False), **noise)
    [(guarded, log_2)] = train(environment=asking(sidecar, "guarded", tmp_path), **noise)
    assert stock["weights"] == watched["weights"] != guarded["weights"]
    assert not said(log) and "bypass_mode=true" in log_2
    losses = [[step["actor/pg_loss"] for step in found["steps"]] for found in (stock, watched)]
    assert losses[0] == losses[1]
    assert not any("satwatch" in name for name in stock["steps"][0])
    found = sidecar.metrics()
    assert found['satwatch_batches_total{run="watched"}'] == found['satwatch_batches_total{run="guarded"}'] == 12
    # What is sent is pi / mu in both, whatever the loss's own denominator is.
    assert found['satwatch_log_ratio_abs_mean{run="watched"}'] > 0.05


def test_a_sidecar_that_is_not_there_changes_no_bit(train, sidecar, tmp_path):
    [(alive, _)] = train(environment=asking(sidecar, "alive", tmp_path), noise=0.1)
    sidecar.kill()
    [(dead, log)] = train(environment=asking(sidecar, "alive", tmp_path), noise=0.1)
    assert alive["weights"] == dead["weights"]
    assert [step["actor/pg_loss"] for step in alive["steps"]] == [step["actor/pg_loss"] for step in dead["steps"]]
    assert alive["steps"][-1]["satwatch/client_fallbacks"] == 0 < dead["steps"][-1]["satwatch/client_fallbacks"]
    assert len(said(log)) == 1
    # One deadline at most, and none of it with nobody at the port.
    assert sum(dead["seconds"]) < 20.0
