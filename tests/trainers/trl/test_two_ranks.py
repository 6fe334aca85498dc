"""Two data-parallel ranks of each trainer, in processes of their own, and one sidecar."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import tests.trainers.trl.two_ranks as two_ranks


def test_two_ranks_are_two_to_the_sidecar_and_agree_on_versions(sidecar):
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    popen = subprocess.Popen(
        [sys.executable, *command, "--rdzv-endpoint", "127.0.0.1:0", two_ranks.__file__],
        env={**os.environ, "SATWATCH_ADDRESS": sidecar.address, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = popen.communicate(timeout=240)
    finally:
        if popen.poll() is None:
            os.killpg(popen.pid, signal.SIGKILL)
    assert popen.returncode == 0, output
    told = sorted(line for line in output.splitlines() if line.startswith("rank "))
    sync = "[0.0, 1.0, 0.0, 1.0] 0.0"
    assert [line for line in told if sync in line] == [f"rank 0: {sync}", f"rank 1: {sync}"], output
    # The asynchronous trainer counts its weight syncs on one rank only; the other has to hear of them.
    lagged = [line for line in told if sync not in line]
    assert len(lagged) == 2, output
    for rank, line in enumerate(lagged):
        assert line.startswith(f"rank {rank}: [0.0, 1.0, ") and line.endswith("] 0.0"), output
    metrics = sidecar.metrics()
    for name, batches, published in (("sync", 8, 2), ("async", 10, 3)):
        assert metrics[f'satwatch_batches_total{{run="{name}"}}'] == batches
        assert metrics[f'satwatch_duplicate_batches_total{{run="{name}"}}'] == 0
        assert metrics[f'satwatch_published_version{{run="{name}"}}'] == published
        assert metrics[f'satwatch_version_coverage_ratio{{run="{name}"}}'] == 1
        assert metrics[f'satwatch_negative_lag_tokens_total{{run="{name}"}}'] == 0
