"""What came of a step: said in order and at most once, behind the step's batches, and never in the trainer's way."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import threading
from concurrent.futures import Future

import grpc
import pytest
import torch

from satwatch import errors, wire
from satwatch.client.breaker import Backoff
from satwatch.client.reports import MAX_PENDING
from satwatch.types import StepReport, Total
from tests.unit.client.faulty import Held, abort

PATIENT = 120.0
HASTY = 0.05
NEVER = Backoff(first=3600.0, jitter=0.0)
D = torch.tensor([0.1] * 9 + [-0.3])


@pytest.fixture
def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def said(sidecar):
    """What arrived, as (step, ended)."""
    return [(message.step, message.ended) for message in sidecar.received("ReportStep")]


def counts(client):
    return client.stats.reports_sent, client.stats.reports_missed


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("on_failure", ["local", "nominal", "raise"])
def test_a_step_arrives_as_it_was_reported(sidecar, connect, on_failure):
    client = connect(sidecar.address, on_failure=on_failure, incarnation="i", rank=1, world_size=2)
    client.report(7, reward=[1.0, 0.5], loss=torch.tensor(0.25), response_lengths=[3, 4])
    client.end_step(7)
    client.close()
    totals = {"reward": Total(1.5, 2), "loss": Total(0.25, 1), "response_length": Total(7.0, 2)}
    assert [wire.decode_step_report(message) for message in sidecar.received("ReportStep")] == [
        StepReport("r", 7, "i", 1, totals),
        StepReport("r", 7, "i", 1, ended=True),
    ]
    assert counts(client) == (2, 0)


def test_nothing_to_report_is_not_sent(sidecar, connect):
    client = connect(sidecar.address, on_failure="raise")
    client.report(7)
    client.report(7, reward=None, loss=[])
    assert (sidecar.requests, counts(client)) == ([], (0, 0))


def test_reporting_waits_for_nobody_and_keeps_the_order(sidecar, connect):
    client = connect(sidecar.address)
    held = sidecar.faults["ReportStep"] = Held(sidecar, "ReportStep")
    for step in range(5):
        client.report(step, reward=1.0)
        client.end_step(step)
    assert held.arrived.acquire(timeout=PATIENT), "report did not wait for this"
    client.publish_version(3)
    assert client.clip_bounds(D).gate.any(), "neither does a batch"
    assert counts(client) == (0, 0)
    held.let_go.set()
    client.close()
    assert said(sidecar) == [(step, ended) for step in range(5) for ended in (False, True)]
    assert counts(client) == (10, 0)


def test_of_too_many_the_oldest_are_dropped_and_counted(sidecar, connect):
    client = connect(sidecar.address)
    held = sidecar.faults["ReportStep"] = Held(sidecar, "ReportStep")
    client.report(0, reward=1.0)
    assert held.arrived.acquire(timeout=PATIENT)
    for step in range(1, MAX_PENDING + 4):
        client.end_step(step)
    assert counts(client) == (0, 3)
    held.let_go.set()
    client.close()
    assert [step for step, _ in said(sidecar)] == [0, *range(4, MAX_PENDING + 4)]
    assert counts(client) == (MAX_PENDING + 1, 3)


def test_a_step_ends_after_the_batches_in_flight(sidecar, connect):
    client = connect(sidecar.address)
    client.clip_bounds(D)
    held = sidecar.faults["ComputeBounds"] = Held(sidecar)
    batches = [client.submit(D, step=7) for _ in range(4)]
    assert held.arrived.acquire(timeout=PATIENT)
    client.end_step(7)
    held.let_go.set()
    for batch in batches:
        assert batch.result(PATIENT).gate.any()
    client.close()
    methods = [method for method, _ in sidecar.requests if method != "OpenRun"]
    assert methods == ["ComputeBounds"] * 5 + ["ReportStep", "CloseRun"]


def test_a_step_waits_for_batches_no_longer_than_the_deadline(sidecar, connect):
    client = connect(sidecar.address, timeout=HASTY)
    reports = client._here()._reports
    reports.add(StepReport("r", 7, ended=True), [Future()])  # a batch that is never answered
    reports._errand.wait(PATIENT)
    assert sum(counts(client)) == 1


def test_a_sidecar_that_has_forgotten_the_run_hears_it_once_it_is_open_again(sidecar, connect):
    client = connect(sidecar.address, on_failure="raise")
    client.report(1, reward=1.0)
    sidecar.open = False
    client.end_step(1)
    assert [method for method, _ in sidecar.requests] == [
        "OpenRun",
        "ReportStep",
        "ReportStep",
        "OpenRun",
        "ReportStep",
    ]
    assert counts(client) == (2, 0)


def test_an_older_sidecar_is_told_once_and_left_alone(sidecar, connect, caplog):
    sidecar.faults["ReportStep"] = abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
    client = connect(sidecar.address)
    client.report(1, reward=1.0)
    for step in range(1, 4):
        client.end_step(step)
    client.close()
    assert len(sidecar.received("ReportStep")) == 1
    assert counts(client) == (0, 4)
    (warning,) = warnings(caplog)
    assert "the sidecar there is older than this client and takes no reports of steps" in warning
    assert client.stats.breaker == "closed"


def test_an_older_sidecar_that_is_replaced_is_told_again(sidecar, connect):
    sidecar.faults["ReportStep"] = abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
    client = connect(sidecar.address, on_failure="raise")
    with pytest.raises(errors.UnavailableError, match="older than this client"):
        client.end_step(1)
    del sidecar.faults["ReportStep"]
    with pytest.raises(errors.UnavailableError, match="older than this client"):
        client.end_step(2)
    sidecar.open = False  # as after a restart, which a batch notices
    client.clip_bounds(D)
    client.end_step(3)
    assert said(sidecar) == [(1, True), (3, True)]


def test_what_got_no_answer_is_not_said_again(sidecar, connect):
    """It may have been added up."""

    def break_once(message, context):
        del sidecar.faults["ReportStep"]
        context.abort(grpc.StatusCode.UNAVAILABLE, "going")

    sidecar.faults["ReportStep"] = break_once
    client = connect(sidecar.address)
    client.report(1, reward=1.0)
    client.report(2, reward=1.0)
    client.close()
    assert said(sidecar) == [(1, False), (2, False)]
    assert counts(client) == (1, 1)
    assert client.stats.breaker == "closed", "what it makes of reports says nothing about its bounds"


def test_refusals_are_said_once(sidecar, connect, caplog):
    sidecar.faults["ReportStep"] = abort(grpc.StatusCode.INVALID_ARGUMENT, "rank: got 1", "InvalidBatchError")
    client = connect(sidecar.address)
    for step in range(3):
        client.end_step(step)
    client.close()
    assert counts(client) == (0, 3)
    expected = (
        "The sidecar did not take a report of a step (invalid_batch: rank: got 1); further refusals are only counted."
    )
    assert warnings(caplog) == [expected]


def test_without_a_sidecar_they_are_counted(free_port, connect):
    client = connect(f"127.0.0.1:{free_port}")
    client.report(1, reward=1.0)
    client.end_step(1)
    client.close()
    client.end_step(2)
    assert counts(client) == (0, 3)


def test_reporting_raises_only_where_it_is_asked_to(free_port, connect):
    client = connect(f"127.0.0.1:{free_port}", on_failure="raise")
    with pytest.raises(errors.UnavailableError):
        client.report(1, reward=1.0)
    with pytest.raises(errors.UnavailableError):
        client.end_step(1)
    assert counts(client) == (0, 2)


def test_closing_waits_no_longer_than_one_call(sidecar, connect):
    client = connect(sidecar.address, timeout=HASTY)
    held = sidecar.faults["ReportStep"] = Held(sidecar, "ReportStep")
    for step in range(MAX_PENDING):
        client.end_step(step)
    client.close()
    held.let_go.set()
    assert counts(client) == (0, MAX_PENDING)
    assert len(said(sidecar)) < MAX_PENDING


@pytest.mark.parametrize("on_failure", ["local", "raise"])
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda client: client.report(None, reward=1.0), "step: got None, required a whole number from 0 to"),
        (lambda client: client.report(-1, reward=1.0), "step: got -1"),
        (lambda client: client.report(1, reward="high"), "reward: got 'high'"),
        (lambda client: client.report(1, response_lengths=[-2]), "response_lengths: got -2"),
        (lambda client: client.end_step(1.5), "step: got 1.5"),
        (lambda client: client.end_step(2**53 + 1), "step: got 9007199254740993"),
    ],
)
def test_what_can_t_be_meant_is_refused_before_it_is_sent(sidecar, connect, on_failure, call, words):
    client = connect(sidecar.address, on_failure=on_failure)
    with pytest.raises(errors.InvalidBatchError, match=f"^{words}"):
        call(client)
    client.close()
    assert (sidecar.requests, counts(client)) == ([], (0, 0))


def test_the_engines_of_a_batch_arrive(sidecar, connect):
    client = connect(sidecar.address, on_failure="raise")
    client.clip_bounds(torch.zeros(2, 3), behavior_engine=["e:1", "e:2"])
    client.submit(torch.zeros(2, 3), behavior_engine="e:1").result(PATIENT)
    first, second = (wire.decode_request(message).batch for message in sidecar.received("ComputeBounds"))
    assert [(run.tokens, run.engine) for run in first.behavior_engines] == [(3, "e:1"), (3, "e:2")]
    assert [(run.tokens, run.engine) for run in second.behavior_engines] == [(6, "e:1")]
    with pytest.raises(errors.InvalidBatchError, match=r"^behavior_engine: got 3 names"):
        client.clip_bounds(torch.zeros(2, 3), behavior_engine=["e:1"] * 3)


def test_a_pickled_client_reports_anew(sidecar, connect):
    client = connect(sidecar.address, on_failure="raise")
    client.end_step(1)
    with pickle.loads(pickle.dumps(client)) as copy:
        assert counts(copy) == (0, 0)
        copy.end_step(2)
        assert counts(copy) == (1, 0)
    assert said(sidecar) == [(1, True), (2, True)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python's own, of forks beside threads
def test_a_child_says_its_own_reports_and_not_its_parent_s(sidecar, connect):
    client = connect(sidecar.address)
    client.clip_bounds(D)
    # The parent's own report, which its worker does not get to say before the fork.
    waiting = threading.Event()
    client._here()._reports._worker.submit(lambda: waiting.wait(PATIENT))
    client.end_step(1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(60)  # ends a child that hangs
            client.end_step(2)
            client.close()
            code = 0 if counts(client) == (1, 0) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    waiting.set()
    assert (os.WIFEXITED(status), os.WEXITSTATUS(status)) == (True, 0)
    client.close()
    assert said(sidecar) == [(2, True), (1, True)]
    assert counts(client) == (1, 0)
