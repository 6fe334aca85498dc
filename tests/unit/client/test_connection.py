from __future__ import annotations

import grpc
import pytest

from satwatch import errors
from satwatch.client.connection import Connection
from satwatch.client.deadline import Deadline
from satwatch.client.misses import Missed
from satwatch.types import Canary, CanaryScores, EnginesReport, PackedFloats, RunOpening, TrainerFacts
from tests.clock import Clock
from tests.unit.client.faulty import INFO, abort

PATIENT = 120.0


@pytest.fixture
def connection(sidecar):
    made = Connection(sidecar.address, PATIENT)
    yield made
    made.close()


def test_a_deadline_is_one_for_all_parts():
    clock = Clock(100.0)
    deadline = Deadline.after(2.0, clock)
    clock.now += 1.5
    assert deadline.remaining == 0.5
    clock.now += 1.0
    assert deadline.remaining == 0.0


def test_a_deadline_that_has_passed_sends_nothing(sidecar, connection):
    clock = Clock(100.0)
    deadline = Deadline.after(2.0, clock)
    clock.now += 2.0
    with pytest.raises(Missed, match=r"GetServerInfo at .*: no answer within 2 s") as caught:
        connection.server_info(deadline)
    assert caught.value.kind == "deadline"
    assert isinstance(caught.value.error, errors.DeadlineError)
    assert sidecar.requests == []


def test_opening_a_run_tells_what_the_sidecar_is(connection):
    assert connection.server is None
    connection.open_run(RunOpening("r"), Deadline.after(PATIENT))
    assert connection.server == INFO


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("OpenRun", lambda connection: connection.open_run(RunOpening("r"), Deadline.after(PATIENT))),
        ("GetServerInfo", lambda connection: connection.server_info(Deadline.after(PATIENT))),
        ("ComputeBounds", lambda connection: connection.compute_bounds(b"", Deadline.after(PATIENT))),
        (
            "ReportEngines",
            lambda connection: connection.report_engines(EnginesReport("p", (), 1.0), Deadline.after(PATIENT)),
        ),
    ],
)
def test_garbage_is_a_wrong_reply(sidecar, connection, method, call):
    sidecar.faults[method] = lambda *_: b"\xff\xff\xff"
    with pytest.raises(Missed, match=r"reply\.request: got 3 bytes that do not parse") as caught:
        call(connection)
    assert caught.value.kind == "reply"
    assert isinstance(caught.value.error, errors.UnavailableError)


def test_a_closed_connection_is_a_miss(connection):
    connection.close()
    with pytest.raises(Missed, match="the connection is closed") as caught:
        connection.server_info(Deadline.after(PATIENT))
    assert caught.value.kind == "unavailable"


def test_a_closed_connection_watches_nothing(connection):
    connection.close()
    with pytest.raises(Missed, match=r"WatchEngines at .*: the connection is closed"):
        connection.watch_engines("r")


def test_an_answer_above_grpc_s_own_limit_is_taken(sidecar, connection):
    # A canary of the largest size, scored often: 16 MiB.
    canary = Canary(((1,) * 16_384,))
    scores = [CanaryScores(canary, version, PackedFloats("float32", bytes(4 * 16_383))) for version in range(256)]
    sidecar.facts = TrainerFacts("r", (), tuple(scores))
    facts = connection.report_engines(EnginesReport("p", (), 1.0), Deadline.after(PATIENT))
    assert facts == sidecar.facts


def test_a_miss_does_not_hold_on_to_what_grpc_frees(sidecar, connection):
    """It would be freed outside of the gate, where a fork may happen."""
    sidecar.faults["GetServerInfo"] = abort(grpc.StatusCode.INTERNAL, "broken")
    with pytest.raises(Missed) as caught:
        connection.server_info(Deadline.after(PATIENT))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_miss_can_be_raised_again_by_another_thread():
    miss = Missed(errors.DeadlineError("late"))
    again = miss.again()
    assert (again.kind, str(again), type(again.error)) == ("deadline", "late", errors.DeadlineError)
    assert again.error is not miss.error
