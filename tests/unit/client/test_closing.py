"""The end of a rank: said once it has spoken, after what is in flight, and never for long."""

from __future__ import annotations

import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import torch

from satwatch import errors
from satwatch.client import Client, HistoryClient
from satwatch.client.breaker import Backoff
from satwatch.client.connection import Connection
from satwatch.client.link import Link
from satwatch.client.settings import Settings
from satwatch.client.workers import Workers
from satwatch.types import RunOpening
from satwatch.v1 import satwatch_pb2 as pb
from tests.unit.client.faulty import Held, Sidecar, abort

PATIENT = 120.0
NEVER = Backoff(first=3600.0, jitter=0.0)
D = torch.tensor([0.1] * 9 + [-0.3])


def closings(sidecar):
    return [(message.run, message.incarnation, message.rank) for message in sidecar.received("CloseRun")]


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_rank_that_has_sent_a_batch_says_that_it_sends_no_more(sidecar, connect):
    client = connect(sidecar.address, incarnation="i", rank=1, world_size=2)
    client.clip_bounds(D, step=1)
    client.close()
    client.close()
    assert closings(sidecar) == [("r", "i", 1)]


def test_so_does_one_that_has_only_reported_and_after_its_report(sidecar, connect):
    client = connect(sidecar.address)
    client.report(1, reward=0.5)
    client.close()
    assert [name for name, _ in sidecar.requests] == ["OpenRun", "ReportStep", "CloseRun"]


def test_leaving_the_block_closes_whatever_ends_it(sidecar):
    settings = Settings(sidecar.address, RunOpening("r"), "local", PATIENT)
    with pytest.raises(ZeroDivisionError), Client(settings) as client:
        client.clip_bounds(D)
        raise ZeroDivisionError
    assert closings(sidecar) == [("r", "", 0)]


def test_who_only_publishes_scores_or_looks_ends_no_run(sidecar, connect):
    client = connect(sidecar.address, on_failure="raise")
    client.publish_version(3)
    client.report_canary(3, [[10, 11, 12]], [[-1.0, -2.0]])
    client.server_info()
    client.close()
    sidecar.kept["QueryRuns"] = pb.QueryRunsResponse()
    with HistoryClient(sidecar.address) as history:
        history.runs()
    assert closings(sidecar) == []


def test_a_client_that_was_never_used_connects_to_nobody(sidecar, connect):
    connect(sidecar.address).close()
    assert sidecar.requests == []


def test_it_is_said_after_the_batches_in_flight(sidecar, connect):
    client = connect(sidecar.address)
    client.clip_bounds(D)
    batches = [client.submit(D, step=step) for step in range(20)]
    client.close()
    assert all(batch.result(PATIENT).gate.any() for batch in batches)
    names = [name for name, _ in sidecar.requests]
    assert names.index("CloseRun") == len(names) - 1


def test_a_batch_that_is_not_answered_holds_the_end_up_for_a_moment_only(sidecar, connect):
    client = connect(sidecar.address)
    client.clip_bounds(D)
    held = sidecar.faults["ComputeBounds"] = Held(sidecar)
    batch = client.submit(D)
    assert held.arrived.acquire(timeout=PATIENT)
    client.close()
    assert batch.result(PATIENT).gate.any()
    assert client.stats.bounds_from_fallback == 1
    assert closings(sidecar) == [("r", "", 0)]
    held.let_go.set()


def test_a_sidecar_that_does_not_answer_it_is_waited_for_half_a_second_at_most(sidecar, connect, caplog, monkeypatch):
    deadlines = []
    close_run = Connection.close_run

    def noted(connection, opening, deadline):
        deadlines.append(deadline.seconds)
        close_run(connection, opening, deadline)

    monkeypatch.setattr(Connection, "close_run", noted)
    client = connect(sidecar.address)
    client.clip_bounds(D)
    held = sidecar.faults["CloseRun"] = Held(sidecar, "CloseRun")
    client.close()
    assert held.arrived.acquire(timeout=PATIENT)
    held.let_go.set()
    assert deadlines == [0.5]
    assert warnings(caplog) == []


def test_whoever_closes_client_after_client_waits_for_a_silent_sidecar_once(sidecar, connect, monkeypatch):
    deadlines = []
    close_run = Connection.close_run

    def noted(connection, opening, deadline):
        deadlines.append(deadline.seconds)
        close_run(connection, opening, deadline)

    monkeypatch.setattr(Connection, "close_run", noted)
    clients = [connect(sidecar.address, rank=rank, world_size=5) for rank in range(5)]
    for client in clients:
        client.clip_bounds(D)
    held = sidecar.faults["CloseRun"] = Held(sidecar, "CloseRun")
    for client in clients[:2]:
        client.close()
    del sidecar.faults["CloseRun"]
    held.let_go.set()
    monkeypatch.setattr("satwatch.client.parting.UNHEARD_SECONDS", PATIENT)  # it answers, but how soon on this machine?
    for client in clients[2:4]:
        client.close()
    assert deadlines == [0.5, 0.05, PATIENT, 0.5]


def test_it_is_said_after_a_batch_that_another_thread_waits_for(sidecar, connect, monkeypatch):
    answered = []
    shut, close_run = Link.shut, Connection.close_run

    def shut_and_answer(link):
        shut(link)
        held.let_go.set()

    def noted(connection, opening, deadline):
        answered.append(client.stats.bounds_from_sidecar)
        close_run(connection, opening, deadline)

    monkeypatch.setattr("satwatch.client.parting.PARTING_SECONDS", PATIENT)
    monkeypatch.setattr(Connection, "close_run", noted)
    client = connect(sidecar.address)
    client.clip_bounds(D)
    held = sidecar.faults["ComputeBounds"] = Held(sidecar)
    thread = threading.Thread(target=client.clip_bounds, args=(D,))
    thread.start()
    assert held.arrived.acquire(timeout=PATIENT)
    monkeypatch.setattr(Link, "shut", shut_and_answer)
    client.close()
    thread.join(PATIENT)
    assert answered == [2]


def test_a_batch_that_closes_its_own_client_does_not_wait_for_itself(sidecar, connect, monkeypatch):
    monkeypatch.setattr("satwatch.client.parting.PARTING_SECONDS", PATIENT)
    client = connect(sidecar.address)
    client.clip_bounds(D)
    compute_bounds = Connection.compute_bounds

    def interrupted(connection, request, deadline):
        client.close()  # as a signal's handler does
        return compute_bounds(connection, request, deadline)

    monkeypatch.setattr(Connection, "compute_bounds", interrupted)
    assert client.clip_bounds(D).gate.any()
    assert closings(sidecar) == [("r", "", 0)]
    assert client.stats.bounds_from_fallback == 1


def test_a_handler_may_close_a_client_in_the_midst_of_a_submit(sidecar, connect, monkeypatch):
    client = connect(sidecar.address)
    client.clip_bounds(D)
    add_thread = ThreadPoolExecutor._adjust_thread_count
    batches, said = [], []

    def interrupted(pool):  # whose lock is held
        if threading.current_thread() is thread and not batches:
            batches.append(None)
            client.close()
        add_thread(pool)

    monkeypatch.setattr(ThreadPoolExecutor, "_adjust_thread_count", interrupted)
    # The sidecar here is of the same process, and of no use while a lock of all pools is held.
    monkeypatch.setattr(Connection, "close_run", lambda *_: said.append("closed"))
    thread = threading.Thread(target=lambda: batches.append(client.submit(D)), daemon=True)
    thread.start()
    thread.join(PATIENT)
    assert batches[1].result(PATIENT).gate.any()
    assert said == ["closed"]


def test_a_handler_that_closes_a_client_does_not_wait_for_whom_it_has_interrupted(monkeypatch):
    monkeypatch.setattr("satwatch.client.workers._JOIN_SECONDS", 0.01)
    goes_on = threading.Event()
    workers = Workers(1)
    work = workers.submit(lambda: goes_on.wait(PATIENT))
    workers.close()
    assert not work.done()
    goes_on.set()
    assert work.result(PATIENT)


@pytest.mark.parametrize(
    "refusal",
    [
        abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!"),
        abort(grpc.StatusCode.NOT_FOUND, "run: got 'r', required a run that OpenRun has opened", "UnknownRunError"),
        abort(grpc.StatusCode.INTERNAL, "a defect"),
    ],
)
@pytest.mark.parametrize("on_failure", ["local", "raise"])
def test_a_sidecar_that_does_not_take_it_is_no_news(sidecar, connect, caplog, refusal, on_failure):
    client = connect(sidecar.address, on_failure=on_failure)
    client.clip_bounds(D)
    sidecar.faults["CloseRun"] = refusal
    client.close()
    assert len(closings(sidecar)) == 1
    assert warnings(caplog) == []


def test_a_sidecar_that_is_gone_is_no_news_either(connect, caplog):
    sidecar = Sidecar()
    client = connect(sidecar.address)
    client.clip_bounds(D)
    sidecar.stop()
    client.close()
    assert warnings(caplog) == []


def test_a_sidecar_that_was_too_slow_for_a_batch_hears_of_the_end(sidecar, connect):
    client = connect(sidecar.address, timeout=0.2)
    client.clip_bounds(D)
    held = sidecar.faults["ComputeBounds"] = Held(sidecar)
    client.clip_bounds(D)
    assert client.stats.breaker == "open"
    held.let_go.set()
    client.close()
    assert closings(sidecar) == [("r", "", 0)]


def test_nothing_is_sent_after_it(sidecar, connect):
    client = connect(sidecar.address, on_failure="raise")
    client.clip_bounds(D)
    client.close()
    with pytest.raises(errors.UnavailableError, match="the client is closed"):
        client.clip_bounds(D)
    assert [name for name, _ in sidecar.requests][-1] == "CloseRun"


def test_a_close_that_is_interrupted_says_it_all_the_same(sidecar, connect, monkeypatch):
    client = connect(sidecar.address)
    client.clip_bounds(D)

    def interrupt(reports):
        raise KeyboardInterrupt

    monkeypatch.setattr("satwatch.client.reports.Reports.finish", interrupt)
    with pytest.raises(KeyboardInterrupt):
        client.close()
    monkeypatch.undo()
    assert closings(sidecar) == [("r", "", 0)]


def test_two_threads_that_close_at_once(sidecar, connect):
    client = connect(sidecar.address)
    client.clip_bounds(D)
    threads = [threading.Thread(target=client.close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENT)
    assert set(closings(sidecar)) == {("r", "", 0)}


def test_where_the_run_was_never_opened_there_is_nobody_to_tell(connect, monkeypatch):
    monkeypatch.setattr(Connection, "close_run", lambda *_: pytest.fail("nobody is there"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = connect(f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.1)
        client.clip_bounds(D)
        client.close()
    assert client.stats.bounds_from_fallback == 1
