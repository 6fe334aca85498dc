"""The client's word on the canary: said once, said again to a sidecar that was away, and never in the trainer's way."""

from __future__ import annotations

import logging
import socket
import threading

import grpc
import pytest
import torch

from satwatch import errors, wire
from satwatch.client.breaker import Backoff
from satwatch.sat import unpack
from tests.unit.client.faulty import Held, Sidecar, abort

PATIENT = 120.0
NEVER = Backoff(first=3600.0, jitter=0.0)
SOON = Backoff(first=0.01, ceiling=0.05)
D = torch.tensor([0.1] * 9 + [-0.3])
TOKENS = [[11, 12, 13]]
LOGPROBS = [[-1.0, -2.0]]


class Arrivals:
    """Answers rightly, and lets the versions of the scores that came be waited for."""

    def __init__(self, sidecar):
        self.sidecar, self.came = sidecar, {}
        sidecar.faults["ReportCanary"] = self

    def __call__(self, message, context):
        self.of(message.scores.version).set()
        return self.sidecar.answer_ReportCanary(message, context)

    def of(self, version):
        return self.came.setdefault(version, threading.Event())


def stats_after_close(client):
    client.close()  # its workers have ended
    return client.stats


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_scores_arrive_as_they_were_reported(sidecar, connect):
    client = connect(sidecar.address, on_failure="raise", incarnation="i")
    client.report_canary(5, TOKENS, torch.tensor(LOGPROBS), temperature=0.5, top_p=0.9)
    message = sidecar.received("ReportCanary")[-1]
    scores = wire.decode_canary_scores(message.scores)
    assert (message.run, message.incarnation, scores.version) == ("r", "i", 5)
    assert (scores.canary.sequences, scores.temperature, scores.top_p) == (((11, 12, 13),), 0.5, 0.9)
    assert unpack(scores.logprobs).tolist() == [-1.0, -2.0]
    assert (client.stats.canaries_reported, client.stats.canaries_missed) == (1, 0)


def test_reporting_waits_for_nobody(sidecar, connect):
    client = connect(sidecar.address)
    held = sidecar.faults["ReportCanary"] = Held(sidecar, "ReportCanary")
    client.report_canary(1, TOKENS, LOGPROBS)
    assert held.arrived.acquire(timeout=PATIENT), "report_canary did not wait for this"
    assert client.stats.canaries_reported == 0
    held.let_go.set()
    assert stats_after_close(client).canaries_reported + client.stats.canaries_missed == 1


def test_a_sidecar_that_is_slow_to_hear_them_delays_no_batch_and_hears_only_the_latest(sidecar, connect):
    client = connect(sidecar.address)
    client.clip_bounds(D)
    held = sidecar.faults["ReportCanary"] = Held(sidecar, "ReportCanary")
    client.report_canary(0, TOKENS, LOGPROBS)
    assert held.arrived.acquire(timeout=PATIENT)
    for version in range(1, 9):
        client.report_canary(version, TOKENS, LOGPROBS)
        client.publish_version(version)
    batches = [client.submit(D) for _ in range(4)]
    assert all(batch.result(PATIENT) is not None for batch in batches)
    assert client.stats.canaries_reported == 0, "the batches were answered while the canary was not"
    held.let_go.set()
    assert held.arrived.acquire(timeout=PATIENT)
    stats = stats_after_close(client)
    assert [message.scores.version for message in sidecar.received("ReportCanary")] == [0, 8]
    assert {message.version for message in sidecar.received("PublishVersion")} <= {8}
    assert stats.bounds_from_sidecar == 5
    assert stats.canaries_reported + stats.canaries_missed == 9


def test_a_sidecar_that_was_away_hears_the_latest_scores(connect):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    client = connect(f"127.0.0.1:{port}", backoff=SOON)
    client.clip_bounds(D)
    client.report_canary(6, TOKENS, LOGPROBS)
    client.report_canary(7, TOKENS, LOGPROBS)
    late = Sidecar(f"127.0.0.1:{port}")
    try:
        assert Arrivals(late).of(7).wait(PATIENT)
        assert {message.scores.version for message in late.received("ReportCanary")} == {7}
        assert late.requests[0][0] == "OpenRun"
    finally:
        client.close()
        late.stop()
    assert client.stats.canaries_missed >= 1


def test_a_sidecar_that_has_forgotten_the_run_hears_them_when_it_is_opened_again(sidecar, connect):
    client = connect(sidecar.address)
    arrivals = Arrivals(sidecar)
    client.report_canary(3, TOKENS, LOGPROBS)
    assert arrivals.of(3).wait(PATIENT)
    client.clip_bounds(D)
    sidecar.open = False
    before = len(sidecar.requests)
    client.clip_bounds(D)
    methods = [method for method, _ in sidecar.requests[before:]]
    assert methods[-3:] == ["OpenRun", "ReportCanary", "ComputeBounds"]
    assert client.stats.bounds_from_sidecar == 2


def test_of_a_batch_s_deadline_the_scores_take_a_part_when_the_run_is_opened_again(sidecar, connect):
    client, had = connect(sidecar.address), []

    def slow(message, context):
        had.append(context.time_remaining())
        return abort(grpc.StatusCode.DEADLINE_EXCEEDED, "slow")(message, context)

    client.clip_bounds(D)
    client.report_canary(3, TOKENS, LOGPROBS)
    sidecar.faults["ReportCanary"] = slow
    sidecar.open = False
    client.clip_bounds(D)
    assert had[-1] <= PATIENT / 4 + 1
    assert client.stats.bounds_from_sidecar == 2


def test_scores_for_a_run_that_is_forgotten_open_it_again(sidecar, connect):
    client = connect(sidecar.address, on_failure="raise")
    client.clip_bounds(D)
    forgotten = abort(grpc.StatusCode.NOT_FOUND, "run: not open", "UnknownRunError")

    def forget(message, context):
        del sidecar.faults["ReportCanary"]
        return forgotten(message, context)

    sidecar.faults["ReportCanary"] = forget
    client.report_canary(8, TOKENS, LOGPROBS)
    methods = [method for method, _ in sidecar.requests[2:]]
    assert methods[:2] == ["ReportCanary", "OpenRun"]
    assert methods[-1] == "ReportCanary"
    assert client.stats.canaries_reported == 1


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, None),
        (grpc.StatusCode.INTERNAL, None),
        (grpc.StatusCode.INVALID_ARGUMENT, "InvalidBatchError"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "OverloadedError"),
    ],
)
def test_a_sidecar_that_takes_no_canary_still_gives_bounds(sidecar, connect, caplog, status, name):
    sidecar.faults["ReportCanary"] = abort(status, "no", name)
    client = connect(sidecar.address)
    for version in (1, 2):
        client.clip_bounds(D)
        client.report_canary(version, TOKENS, LOGPROBS)
    sidecar.open = False  # so that the run is opened again, with the scores
    client.clip_bounds(D)
    stats = stats_after_close(client)
    assert (stats.bounds_from_sidecar, stats.bounds_from_fallback, stats.breaker) == (3, 0, "closed")
    assert (stats.canaries_reported, stats.canaries_missed) == (0, 2)
    (said,) = warnings(caplog)
    assert said.startswith("The sidecar did not take the canary's scores (")


def test_nobody_there_is_the_breaker_s_to_say_and_counted_once(connect, caplog):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    client = connect(f"127.0.0.1:{port}")
    client.report_canary(1, TOKENS, LOGPROBS)
    assert stats_after_close(client).canaries_missed == 1
    assert not any("canary" in message for message in warnings(caplog))


def test_raise_raises_and_nothing_else_does(sidecar, connect):
    sidecar.faults["ReportCanary"] = abort(grpc.StatusCode.INVALID_ARGUMENT, "canary: no", "InvalidBatchError")
    client = connect(sidecar.address, on_failure="raise")
    with pytest.raises(errors.InvalidBatchError, match="canary: no"):
        client.report_canary(1, TOKENS, LOGPROBS)
    assert client.stats.breaker == "closed"
    connect(sidecar.address).report_canary(1, TOKENS, LOGPROBS)


def test_what_does_not_fit_is_refused_before_anything_is_sent(sidecar, connect):
    client = connect(sidecar.address)
    with pytest.raises(errors.InvalidBatchError, match=r"^logprobs: got 2 rows"):
        client.report_canary(1, TOKENS, LOGPROBS * 2)
    client.close()
    assert sidecar.requests == []


def test_a_closed_client_reports_nothing_and_says_nothing(sidecar, connect, caplog):
    client = connect(sidecar.address)
    client.close()
    client.report_canary(1, TOKENS, LOGPROBS)
    assert sidecar.received("ReportCanary") == []
    assert client.stats.canaries_missed == 1
    assert warnings(caplog) == []
