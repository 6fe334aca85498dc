"""What the TRL hook costs a step of TRL, measured in TRL's own environment where there is one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from satwatch.bench.children import child
from satwatch.bench.timing import Timing

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PYTHON: Final = ROOT / ".venv-trainers/trl/bin/python"
MISSING: Final = "not measured: no TRL at .venv-trainers/trl of the checkout; `make trainers` installs it"
# Offline and on the CPU: read by TRL's dependencies when they are imported.
_ENVIRONMENT: Final = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRL_EXPERIMENTAL_SILENCE": "1",
}


@dataclass(frozen=True, slots=True)
class DeadSidecar:
    """The TRL hook while something that never answers stands where the sidecar was.

    Attributes:
        deadline: the client's timeout, seconds.
        steps: steps trained.
        equal: whether losses and weights are, bit for bit, those of bounds computed in the trainer.
        first_call_seconds: what the first microbatch waited.
        call_seconds: a later microbatch's time in the hook, the breaker open; median.
        local_seconds: the same with a client that computes in the trainer; median.
        overhead_seconds: the difference.
    """

    deadline: float
    steps: int
    equal: bool
    first_call_seconds: float
    call_seconds: float
    local_seconds: float
    overhead_seconds: float


@dataclass(frozen=True, slots=True)
class TrlStep:
    """TRL's own GRPOTrainer and SatGRPOTrainer, step by step in turns.

    Attributes:
        versions: of trl, transformers and torch.
        parameters: of the model.
        microbatches: in a step.
        rows: completions in a microbatch.
        tokens: in a completion.
        stock: a step of TRL's own.
        hooked: a step with the hook and a sidecar.
        share: what the hooked step took more than the stock one beside it, as a share of that; median.
        share_quartiles: the first and the third: how much the machine makes of it.
        hook_seconds: of a step, asking for bounds and waiting for them; median.
        hook_share: that as a share of the step; median.
        fallbacks: microbatches that the sidecar did not answer; above 0 the numbers mean nothing.
        dead: without a sidecar.
    """

    versions: Mapping[str, str]
    parameters: int
    microbatches: int
    rows: int
    tokens: int
    stock: Timing
    hooked: Timing
    share: float
    share_quartiles: tuple[float, float]
    hook_seconds: float
    hook_share: float
    fallbacks: int
    dead: DeadSidecar


def measure_trl(*, quick: bool, python: Path = PYTHON) -> TrlStep | str:
    """Measure in TRL's environment; where that can't be, say why.

    Args:
        quick: few steps of a small model.
        python: the environment's interpreter.

    Raises:
        UnavailableError: the sidecar did not start.
    """
    if not python.exists():
        return MISSING
    listen = ("--listen", "127.0.0.1:0", "--metrics-port", "0", "--device", "cpu", "--log-level", "warning")
    with child("satwatch", "serve", *listen) as sidecar:
        command = [str(python), "-m", "satwatch.bench.trl_step", sidecar["grpc"][0], *(["--quick"] if quick else [])]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, **_ENVIRONMENT, "PYTHONPATH": path}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing on standard error"])[-1]
        return f"not measured: satwatch.bench.trl_step ended with exit code {done.returncode}: {last}"
    return read_step(json.loads(done.stdout.splitlines()[-1]))


def read_step(result: dict[str, Any]) -> TrlStep:
    """Read what the program printed."""
    nested = {
        "stock": Timing(**result["stock"]),
        "hooked": Timing(**result["hooked"]),
        "share_quartiles": tuple(result["share_quartiles"]),
        "dead": DeadSidecar(**result["dead"]),
    }
    return TrlStep(**(result | nested))
