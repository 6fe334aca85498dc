"""The end of a run, from the trainer's word to what is told of it: by real clients, of a real sidecar."""

from __future__ import annotations

import subprocess
import sys

import grpc
import pytest
import torch

import satwatch
from satwatch.client import HistoryClient
from satwatch.v1 import satwatch_pb2 as pb
from tests.integration.test_server_history import refusal, until

D = torch.tensor([0.1, -0.2, 0.3])
IS_OPEN = 'satwatch_run_open{run="r"}'


@pytest.fixture
def connect():
    def make(address, **opening):
        return satwatch.connect(address, **{"run": "r", "on_failure": "raise", "timeout": 60.0, **opening})

    return make


@pytest.fixture
def look(serve):
    """Starts a sidecar, and returns it with what its history says of the lives: whether each is open, and has ended."""
    sidecar = serve()
    with HistoryClient(sidecar.address, timeout=60.0) as history:

        def lives():
            return [(run.run, run.is_open, run.ended_at is not None) for run in history.runs()]

        yield sidecar, lives, history


def test_a_run_ends_with_its_client(look, connect):
    sidecar, lives, history = look
    with connect(sidecar.address, incarnation="a") as client:
        client.clip_bounds(D, step=1)
        client.clip_bounds(torch.tensor([float("nan"), 0.1]), step=2)
        until(lives, lambda seen: seen == [("r", True, False)])
        assert sidecar.metrics()[IS_OPEN] == 1
    until(lives, lambda seen: seen == [("r", False, True)])
    # What belongs to it was stored before: its last step is closed, its alert raised and resolved.
    assert [(point.last_step, point.is_closed) for point in history.steps("r")] == [(1, True), (2, True)]
    assert [(event.state, event.evidence) for event in history.events("r")][1:] == [("resolved", "the run has ended")]
    samples = sidecar.metrics()
    assert samples[IS_OPEN] == 0
    assert samples['satwatch_batches_total{run="r"}'] == 2
    assert samples['satwatch_requests_total{kind="CloseRun"}'] == 1


def test_a_run_of_two_ranks_ends_with_the_last(look, connect):
    sidecar, lives, _ = look
    ranks = [connect(sidecar.address, rank=rank, world_size=2) for rank in range(2)]
    for client in ranks:
        client.clip_bounds(D, step=1)
    with connect(sidecar.address, rank=0, world_size=2) as publisher:
        publisher.publish_version(1)
    ranks[1].close()
    assert sidecar.metrics()[IS_OPEN] == 1
    ranks[0].close()
    until(lives, lambda seen: seen == [("r", False, True)])


def test_a_run_goes_on_with_another_client_of_the_same_life(look, connect):
    sidecar, lives, history = look
    for step in (1, 2):
        with connect(sidecar.address, incarnation="a") as client:
            client.clip_bounds(D, step=step)
            until(lives, lambda seen: seen == [("r", True, False)])
        until(lives, lambda seen: seen == [("r", False, True)])
    assert [(point.last_step, point.batches) for point in history.steps("r")] == [(1, 1), (2, 1)]


def test_after_a_restart_an_ended_life_goes_on_too(serve, connect, tmp_path):
    for step in (1, 2):
        sidecar = serve(store=str(tmp_path / "h.sqlite"))
        with connect(sidecar.address, incarnation="a") as client:
            client.clip_bounds(D, step=step)
        with HistoryClient(sidecar.address, timeout=60.0) as history:
            (run,) = until(history.runs, lambda runs, step=step: runs and runs[0].last_step == step)
            assert (run.life, run.is_open, run.ended_at is None) == (1, False, False)
        sidecar.stop()


def test_batches_that_are_computed_when_their_run_ends_do_not_open_it_again(serve, held, connect):
    sidecar = serve()
    sidecar.wire.open()
    with HistoryClient(sidecar.address, timeout=60.0) as history:
        held.released.set()
        sidecar.wire.bounds(sidecar.wire.request(step=1))
        held.released.clear()
        held.begun.clear()
        late = sidecar.wire.stub.ComputeBounds.future(sidecar.wire.request(step=2), timeout=60)
        assert held.begun.wait(60)
        sidecar.wire.stub.CloseRun(pb.CloseRunRequest(run="r"), timeout=60)
        held.released.set()
        assert late.result().tokens == 3
        (run,) = until(history.runs, lambda runs: runs and runs[0].batches == 2)
        (run,) = until(history.runs, lambda runs: runs[0].ended_at is not None)
        assert not run.is_open
        points = until(lambda: history.steps("r"), lambda points: all(point.is_closed for point in points))
        assert [point.last_step for point in points] == [1, 2]
    assert sidecar.metrics()[IS_OPEN] == 0


def test_what_can_not_be_meant_is_refused_by_name(sidecar):
    def close(**fields):
        return refusal(lambda: sidecar.wire.stub.CloseRun(pb.CloseRunRequest(**fields), timeout=60))

    assert close() == (grpc.StatusCode.NOT_FOUND, "run: got '', required a run that OpenRun has opened")
    assert close(run="other")[1] == "run: got 'other', required a run that OpenRun has opened"
    assert close(run="r", incarnation="x")[0] is grpc.StatusCode.NOT_FOUND
    assert close(run="r", rank=7) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "rank: got 7, required 0 to 0 (world_size 1)",
    )
    garbage = refusal(lambda: sidecar.wire.raw("CloseRun", b"\xff\xff"))
    assert garbage[1] == "request: got 2 bytes that do not parse, required a CloseRunRequest"


TRAINER = """
import sys
import torch
import satwatch

client = satwatch.connect(sys.argv[1], run="r", incarnation="a", timeout=60.0)
client.clip_bounds(torch.tensor([0.1, -0.2]), step=1)
print("sent", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("ending", ["exit", "killed"])
def test_a_trainer_that_is_killed_leaves_its_run_open_and_one_that_exits_does_not(look, ending):
    sidecar, lives, _ = look
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, sidecar.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert trainer.stdout.readline() == b"sent\n"
    until(lives, lambda seen: seen == [("r", True, False)])
    if ending == "killed":
        trainer.kill()
    trainer.communicate()
    if ending == "exit":
        until(lives, lambda seen: seen == [("r", False, True)])
    else:
        # The word of a second life's end, said and stored later, shows that none came for the first.
        sidecar.wire.open("other")
        sidecar.wire.bounds(sidecar.wire.request(run="other", step=1))
        sidecar.wire.stub.CloseRun(pb.CloseRunRequest(run="other"), timeout=60)
        until(lives, lambda seen: set(seen) == {("r", True, False), ("other", False, True)})
