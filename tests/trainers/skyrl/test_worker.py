"""SkyRL's own policy worker with the hook, on two ranks, against a real sidecar."""

from __future__ import annotations

import multiprocessing
import pickle

import torch

from satwatch.hooks.skyrl import METRICS
from tests.trainers.skyrl import worker

RANKS = 2
ACTIVE = worker.SEQUENCES * worker.RESPONSE - 2
MICROBATCHES = worker.SEQUENCES // worker.MICRO


def train(folder, plans):
    """Train on two ranks; returns, a rank, what each plan left."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=worker.run, args=(rank, RANKS, str(folder), plans)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(250)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0] * RANKS
    return [pickle.loads((folder / f"rank{rank}").read_bytes()) for rank in range(RANKS)]


def test_two_ranks_train(tmp_path, sidecar):
    watch = tmp_path / "watch.toml"
    watch.write_text("enabled = false")
    nobody = {"SATWATCH_RUN": "gone", "SATWATCH_ADDRESS": f"unix:{tmp_path}/nobody"}
    plans = {
        "stock": ("regular", {}),
        "guarded": ("sat", {"SATWATCH_RUN": "guarded", "SATWATCH_ADDRESS": sidecar.address}),
        "gone": ("sat", nobody),
        "watched": (
            "sat",
            {"SATWATCH_RUN": "watched", "SATWATCH_ADDRESS": sidecar.address, "SATWATCH_CLIENT_CONFIG": str(watch)},
        ),
    }
    ranks = train(tmp_path, plans)
    found = sidecar.metrics()

    # Rank 1 has no token in the first step: that neither stops the reduction nor changes its names.
    names = {f"loss_metrics/satwatch/{name}" for name in METRICS}
    ours, theirs = (rank["guarded"][0] for rank in ranks)
    assert len(ours) == len(theirs) == worker.STEPS
    for mine, yours in zip(ours, theirs, strict=True):
        assert list(mine) == list(yours)
        assert names <= mine.keys()

    # The sidecar has seen each rank's tokens once.
    for run in ("guarded", "watched"):
        assert found[f'satwatch_tokens_total{{run="{run}"}}'] == ACTIVE * (RANKS * worker.STEPS - 1)
        assert found[f'satwatch_batches_total{{run="{run}"}}'] == RANKS * worker.STEPS * MICROBATCHES
    last = {name.removeprefix("loss_metrics/satwatch/"): value for name, value in ours[-1].items()}
    assert last["tokens"] == ACTIVE / MICROBATCHES
    assert 0 < last["log_ratio_abs_mean"] < 1
    assert last["hook_calls_per_step"] == MICROBATCHES
    assert (last["client_fallbacks"], last["hook_faults"], last["decoupled"]) == (0, 0, 0)

    # Watched, every weight is where the stock loss has it; guarded it is not, sidecar or none.
    weights = {name: ranks[0][name][1] for name in plans}
    assert torch.equal(weights["watched"], weights["stock"])
    assert torch.equal(weights["guarded"], weights["gone"])
    assert weights["guarded"].isfinite().all()
    assert not torch.equal(weights["guarded"], weights["stock"])
    # The last step's microbatches count all before them and themselves; SkyRL takes their mean.
    fallbacks = [worker.STEPS * MICROBATCHES - later for later in range(MICROBATCHES)]
    assert ranks[0]["gone"][0][-1]["loss_metrics/satwatch/client_fallbacks"] == sum(fallbacks) / MICROBATCHES
