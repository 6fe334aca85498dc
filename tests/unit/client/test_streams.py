from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch

from satwatch.client import FakeClient
from satwatch.client.streams import CallerStream
from satwatch.sat import ClipBounds


def test_on_a_cpu_there_is_nothing_to_order():
    assert CallerStream.of(torch.zeros(1)) is None


def test_the_order_on_a_device(monkeypatch):
    """What is queued where, on a device that only takes notes."""
    notes = []

    def tensor(name, kind="cuda"):
        return SimpleNamespace(
            device=SimpleNamespace(type=kind),
            record_stream=lambda stream: notes.append(f"{name} kept for {stream.name}"),
        )

    class Stream(SimpleNamespace):
        def wait_event(self, event):
            notes.append(f"{self.name} waits for {event}")

        def synchronize(self):
            notes.append(f"{self.name} done")

    caller = Stream(name="caller", device="cuda:0", record_event=lambda: "snapshot")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: caller)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream(name="side"))

    @contextlib.contextmanager
    def on(stream):
        notes.append(f"on {stream.name}")
        yield
        notes.append(f"off {stream.name}")

    monkeypatch.setattr(torch.cuda, "stream", on)

    def work():
        notes.append("work")
        return ClipBounds(*map(tensor, ("low", "high", "gate", "q")))

    taken = CallerStream.of(tensor("log_ratio"))
    taken.run_aside([tensor("log_ratio"), tensor("mask", "cpu")], work)
    assert notes == [
        "side waits for snapshot",
        "log_ratio kept for side",
        "on side",
        "work",
        "off side",
        "side done",
        *(f"{name} kept for caller" for name in ("low", "high", "gate", "q")),
    ]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_real_device():
    d = torch.randn(1 << 20, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        queued = d.mul(2)
        taken = queued.clone()
        caller = CallerStream.of(taken)
        queued.zero_()
        bounds = caller.run_aside([taken], lambda: FakeClient().clip_bounds(taken))
        expected = FakeClient().clip_bounds(d.cpu().mul(2))
        assert torch.equal(bounds.low.cpu(), expected.low)
