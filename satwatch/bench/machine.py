"""The machine that was measured."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch

import satwatch


@dataclass(frozen=True, slots=True)
class Machine:
    """What the numbers depend on.

    Attributes:
        cpu: the processor's name, as far as the system tells.
        cores: cores that this process may use.
        torch_threads: threads of torch in this process while it's measured.
        versions: of satwatch, python, torch, numpy, grpcio and protobuf.
    """

    cpu: str
    cores: int
    torch_threads: int
    versions: dict[str, str]


def this_machine() -> Machine:
    """Describe the machine."""
    versions = {"satwatch": satwatch.__version__, "python": platform.python_version()}
    versions |= {package: version(package) for package in ("torch", "numpy", "grpcio", "protobuf")}
    return Machine(_cpu(), _cores(), torch.get_num_threads(), versions)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
