"""A real sidecar, in this process or in one of its own, and the bare wire to it."""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field

import grpc
import pytest
import torch

from satwatch import types, wire
from satwatch.sat import pack
from satwatch.server import RunningServer, Settings, answers, running
from satwatch.v1 import satwatch_pb2_grpc as rpc


def local(**given):
    """Settings of a sidecar that takes free ports."""
    return Settings(**{"listen": ("127.0.0.1:0",), "metrics_port": 0, "drain_seconds": 60.0, **given})


@dataclass
class Wire:
    """A bare client: messages as the proto has them, nothing checked, nothing caught."""

    address: str
    channel: grpc.Channel
    stub: rpc.SatwatchServiceStub = field(init=False)

    def __post_init__(self):
        self.stub = rpc.SatwatchServiceStub(self.channel)

    def raw(self, method, data):
        return self.channel.unary_unary(f"/{wire.SERVICE}/{method}")(data, timeout=60)

    def open(self, run="r", **fields):
        return self.stub.OpenRun(wire.encode_opening(types.RunOpening(run, **fields)), timeout=60)

    def bounds(self, message):
        return self.stub.ComputeBounds(message, timeout=60)

    @staticmethod
    def request(log_ratio=(0.1, -0.2, 0.3), run="r", dtype=torch.float64, batch=None, **place):
        """A request of these tokens; ``batch`` has the other fields of a TokenBatch."""
        tokens = types.TokenBatch(pack(torch.as_tensor(log_ratio, dtype=dtype)), **(batch or {}))
        return wire.encode_request(types.BoundsRequest(run, tokens, **place))


@dataclass
class Sidecar:
    """A sidecar that serves in this process."""

    server: RunningServer
    wire: Wire
    stop: object

    @property
    def address(self):
        return self.server.address

    @property
    def metrics_url(self):
        return self.server.metrics_url

    def metrics(self):
        """Scrape, and return the value of each sample by its text."""
        with urllib.request.urlopen(self.metrics_url, timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


@pytest.fixture
def serve():
    """Starts sidecars in this process, with settings given by name."""
    with ExitStack() as stack:

        def start(**settings):
            own = stack.enter_context(ExitStack())
            server = own.enter_context(running(local(**settings)))
            channel = stack.enter_context(grpc.insecure_channel(server.address))
            return Sidecar(server, Wire(server.address, channel), own.close)

        yield start


@pytest.fixture
def sidecar(serve):
    """A sidecar with the defaults, and the run "r" open."""
    started = serve()
    started.wire.open()
    return started


class Held:
    """Batches that are being computed, until they are released."""

    def __init__(self, score):
        self._score = score
        self.begun, self.released = threading.Event(), threading.Event()

    def __call__(self, *arguments):
        self.begun.set()
        self.released.wait()
        return self._score(*arguments)


@pytest.fixture
def held(monkeypatch, serve):
    """Every batch computed from now on waits, in the thread for large ones."""
    hold = Held(answers.score)
    monkeypatch.setattr(answers, "score", hold)
    monkeypatch.setattr(answers, "INLINE_BYTES", 0)
    yield hold
    hold.released.set()


SERVE = "import sys; from satwatch.server import load_settings, serve; sys.exit(serve(load_settings(sys.argv[1])))"


@dataclass
class Process:
    """A sidecar in a process of its own."""

    popen: subprocess.Popen
    announcement: str

    def named(self, name):
        return next(part.partition("=")[2] for part in self.announcement.split() if part.startswith(f"{name}="))


@pytest.fixture
def spawn(tmp_path):
    """Starts sidecars as processes, with settings given as TOML; ended by the test, or killed after it."""
    processes = []

    def start(toml='listen = ["127.0.0.1:0"]\nmetrics_port = 0\n'):
        path = tmp_path / f"{len(processes)}.toml"
        path.write_text(toml)
        popen = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        processes.append(popen)
        return Process(popen, popen.stdout.readline().rstrip("\n"))

    yield start
    for popen in processes:
        popen.kill()
        popen.communicate()
