"""What the tests in a trainer's environment share: a real sidecar, in a process and an environment of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

os.environ.update(
    HF_HUB_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1", CUDA_VISIBLE_DEVICES="", TOKENIZERS_PARALLELISM="false"
)


@dataclass
class Sidecar:
    """A sidecar's process."""

    popen: subprocess.Popen
    address: str
    metrics_url: str

    def metrics(self):
        """Scrape, and return the value of each sample by its text."""
        with urllib.request.urlopen(self.metrics_url, timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    def kill(self):
        """End it at once."""
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait(timeout=60)


@pytest.fixture
def start_sidecar():
    """Starts sidecars; what still runs after the test is ended."""
    started = []

    def start(*arguments):
        python = os.environ.get("SATWATCH_PYTHON") or str(ROOT / ".venv/bin/python")
        popen = subprocess.Popen(
            [python, "-m", "satwatch", "serve", "--listen", "127.0.0.1:0", "--metrics-port", "0", *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(popen)
        named = dict(part.split("=", 1) for part in popen.stdout.readline().split() if "=" in part)
        return Sidecar(popen, named["grpc"], named["metrics"])

    yield start
    for popen in started:
        if popen.poll() is None:
            popen.terminate()
        popen.communicate(timeout=60)


@pytest.fixture
def sidecar(start_sidecar):
    """A real sidecar with the defaults."""
    return start_sidecar()
