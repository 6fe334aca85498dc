"""A dashboard's client: what a sidecar keeps comes as it is kept, and why it does not come is said."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from satwatch import errors, wire
from satwatch import types as t
from satwatch.client import HistoryClient
from satwatch.v1 import satwatch_pb2 as pb
from tests.unit.client.faulty import INFO, Sidecar, abort
from tests.unit.wire.test_history import BATCH, ENGINE, EVENT, POINT, RUN, VERSION

PATIENT = 120.0


@pytest.fixture
def sidecar():
    started = Sidecar()
    started.kept = {
        "QueryRuns": pb.QueryRunsResponse(runs=wire.encode_run_records([RUN])),
        "QuerySteps": pb.QueryStepsResponse(points=wire.encode_step_points([POINT, POINT])),
        "QueryBatches": pb.QueryBatchesResponse(batches=wire.encode_batch_records([BATCH])),
        "QueryVersions": pb.QueryVersionsResponse(versions=wire.encode_version_records([VERSION])),
        "QueryEvents": pb.QueryEventsResponse(events=wire.encode_events([EVENT])),
        "QueryEngines": pb.QueryEnginesResponse(engines=wire.encode_engine_records([ENGINE])),
    }
    yield started
    started.stop()


@pytest.fixture
def history(sidecar):
    with HistoryClient(sidecar.address, timeout=PATIENT) as client:
        yield client


def asked(sidecar):
    (request,) = sidecar.requests
    return request[1]


def test_it_is_a_history(history):
    assert isinstance(history, t.History)


def test_runs(sidecar, history):
    assert history.runs() == (RUN,)


def test_steps(sidecar, history):
    assert history.steps("r", life=2, first_step=0, last_step=9, max_points=7) == (POINT, POINT)
    assert wire.decode_steps_query(asked(sidecar)) == t.StepsQuery("r", 2, 0, 9, 7)


def test_batches(sidecar, history):
    assert history.batches("r", 7, life=2) == (BATCH,)
    assert wire.decode_batches_query(asked(sidecar)) == t.BatchesQuery("r", 7, 2)


def test_versions(sidecar, history):
    assert history.versions("r", life=2, limit=9) == (VERSION,)
    assert wire.decode_versions_query(asked(sidecar)) == t.VersionsQuery("r", 2, 9)


def test_events(sidecar, history):
    assert history.events("r", life=2, after=4, only_active=True, limit=9) == (EVENT,)
    assert wire.decode_events_query(asked(sidecar)) == t.EventsQuery("r", 2, 4, True, 9)


def test_engines(sidecar, history):
    assert history.engines("r", since=1.5, until=2.5, limit=9) == (ENGINE,)
    assert wire.decode_engines_query(asked(sidecar)) == t.EnginesQuery("r", 1.5, 2.5, 9)


def test_what_the_sidecar_is_and_the_runs_it_has_open(sidecar, history):
    run = t.RunInfo("r", "i", t.Rule(), 2, 3, 4, None, 5)
    sidecar.runs = [run]
    assert history.server_info() == (INFO, (run,))


CALLS = {
    "GetServerInfo": lambda history: history.server_info(),
    "QueryRuns": lambda history: history.runs(),
    "QuerySteps": lambda history: history.steps("r"),
    "QueryBatches": lambda history: history.batches("r", 1),
    "QueryVersions": lambda history: history.versions("r"),
    "QueryEvents": lambda history: history.events(),
    "QueryEngines": lambda history: history.engines(),
}


@pytest.mark.parametrize("method", CALLS)
def test_nobody_there_is_an_error(method):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
    missed = pytest.raises(errors.UnavailableError, match=f"^{method} at {address}: ")
    with HistoryClient(address, timeout=PATIENT) as history, missed:
        CALLS[method](history)


OFF = "the history is off: start the sidecar with --store"


@pytest.mark.parametrize(
    ("status", "name", "kind", "words"),
    [
        ("UNAVAILABLE", "UnavailableError", errors.UnavailableError, f"^{OFF}$"),
        ("FAILED_PRECONDITION", None, errors.UnavailableError, OFF),
        ("NOT_FOUND", "UnknownRunError", errors.UnknownRunError, f"^{OFF}$"),
        ("RESOURCE_EXHAUSTED", "OverloadedError", errors.OverloadedError, f"^{OFF}$"),
        ("INVALID_ARGUMENT", "ConfigError", errors.ConfigError, f"^{OFF}$"),
        ("INVALID_ARGUMENT", "InvalidBatchError", errors.InvalidBatchError, f"^{OFF}$"),
        ("DEADLINE_EXCEEDED", None, errors.DeadlineError, "no answer within 120 s"),
        ("UNIMPLEMENTED", None, errors.UnavailableError, "the sidecar there is older than this client"),
        ("INTERNAL", None, errors.UnavailableError, f"INTERNAL: {OFF}"),
    ],
)
@pytest.mark.parametrize("method", CALLS)
def test_why_there_is_no_answer_is_said(sidecar, history, method, status, name, kind, words):
    sidecar.faults[method] = abort(grpc.StatusCode[status], OFF, name)
    with pytest.raises(errors.SatwatchError, match=words) as caught:
        CALLS[method](history)
    assert type(caught.value) is kind
    del sidecar.faults[method]
    CALLS[method](history)


@pytest.mark.parametrize("method", CALLS)
def test_garbage_is_no_answer(sidecar, history, method):
    sidecar.faults[method] = lambda *_: b"\xff\xff\xff"
    with pytest.raises(errors.UnavailableError, match=r"^reply\.request: got 3 bytes that do not parse"):
        CALLS[method](history)


def test_an_answer_that_can_t_be_meant_is_named_by_its_place(sidecar, history):
    del sidecar.kept["QuerySteps"].points[1].heat[:]
    with pytest.raises(errors.UnavailableError, match=r"^reply\.points\[1\]\.heat: got 0 buckets"):
        history.steps("r")
    sidecar.kept["QueryRuns"].runs[0].rule.quantile = 2.0
    with pytest.raises(errors.UnavailableError, match=r"^reply\.runs\[0\]\.quantile: got 2\.0"):
        history.runs()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda history: history.steps(""), "run: got ''"),
        (lambda history: history.steps("r", max_points=5001), "max_points: got 5001"),
        (lambda history: history.batches("r", None), "step: got None"),
        (lambda history: history.versions("r", limit=0), "limit: got 0"),
        (lambda history: history.events(life=1), "run: got ''"),
        (lambda history: history.engines(until=float("nan")), "until: got nan"),
        (lambda _: HistoryClient("http://a"), "address: got"),
        (lambda _: HistoryClient("127.0.0.1:1", timeout=0), "timeout: got 0"),
        (lambda _: HistoryClient("127.0.0.1:1", keep=-1), "keep: got -1"),
        (lambda _: HistoryClient("127.0.0.1:1", keep=100_001), "keep: got 100001"),
    ],
)
def test_what_can_t_be_meant_is_refused_before_it_is_sent(sidecar, history, call, words):
    with pytest.raises(errors.ConfigError, match=f"^{words}"):
        call(history)
    assert sidecar.requests == []


def test_an_answer_above_grpc_s_own_limit_is_taken(sidecar, history):
    many = [dataclasses.replace(EVENT, evidence="x" * 1000, id=i) for i in range(1, 10_001)]
    sidecar.kept["QueryEvents"] = pb.QueryEventsResponse(events=wire.encode_events(many))
    assert sidecar.kept["QueryEvents"].ByteSize() > 4 * 2**20
    assert history.events(limit=10_000) == tuple(many)


@pytest.fixture
def keeping(sidecar):
    with HistoryClient(sidecar.address, timeout=PATIENT, keep=100) as client:
        yield client


QUERIES = {name: call for name, call in CALLS.items() if name != "GetServerInfo"}


def records_of(answer):
    """Return an answer's records, of which it has one field."""
    (name,) = (field.name for field in answer.DESCRIPTOR.fields if field.name != "stamps")
    return getattr(answer, name)


@pytest.mark.parametrize("method", QUERIES)
def test_what_is_kept_is_not_asked_for_again(sidecar, keeping, method):
    answer = sidecar.kept[method]
    answer.stamps.extend(range(1, 1 + len(records_of(answer))))
    first = CALLS[method](keeping)
    del records_of(answer)[:]
    again = CALLS[method](keeping)
    assert first
    assert all(before is after for before, after in zip(first, again, strict=True))
    assert [list(request.known) for request in sidecar.received(method)] == [[], list(answer.stamps)]


def test_what_is_new_comes_in_its_place_and_what_is_gone_is_gone(sidecar, keeping):
    answer = sidecar.kept["QueryEvents"]
    events = [dataclasses.replace(EVENT, id=number) for number in range(1, 5)]
    del answer.events[:]
    answer.events.extend(wire.encode_events(events[:3]))
    answer.stamps.extend([1, 2, 3])
    assert keeping.events() == tuple(events[:3])
    del answer.events[:], answer.stamps[:]
    answer.events.extend(wire.encode_events(events[3:]))
    answer.stamps.extend([2, 4, 3])
    assert keeping.events() == (events[1], events[3], events[2])


def test_one_that_keeps_nothing_asks_for_all(sidecar, history):
    sidecar.kept["QuerySteps"].stamps.extend([1, 2])
    assert history.steps("r") == history.steps("r") == (POINT, POINT)
    assert [list(request.known) for request in sidecar.received("QuerySteps")] == [[], []]


def test_a_sidecar_that_knows_no_stamps_sends_all_and_none_is_kept(sidecar, keeping):
    assert keeping.steps("r") == keeping.steps("r") == (POINT, POINT)
    assert [list(request.known) for request in sidecar.received("QuerySteps")] == [[], []]


def test_another_run_or_life_is_another_matter(sidecar, keeping):
    sidecar.kept["QuerySteps"].stamps.extend([1, 2])
    for run, life in (("r", 1), ("r", 2), ("q", 1)):
        assert keeping.steps(run, life=life) == (POINT, POINT)
    assert [list(request.known) for request in sidecar.received("QuerySteps")] == [[], [], []]


def test_an_answer_of_other_records_than_its_stamps_say_is_no_answer(sidecar, keeping):
    sidecar.kept["QuerySteps"].stamps.extend([1])
    with pytest.raises(errors.UnavailableError, match=r"^reply\.stamps: got 2 records, required 1, those not known"):
        keeping.steps("r")
    del sidecar.kept["QuerySteps"].stamps[:]
    assert keeping.steps("r") == (POINT, POINT)


def test_any_number_of_threads_may_ask(sidecar, history):
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(call, history) for _ in range(8) for call in CALLS.values()]
        answers = [future.result(PATIENT) for future in futures]
    assert len(sidecar.requests) == len(answers) == 8 * len(CALLS)
    assert answers[:7] == answers[-7:]


def test_a_sidecar_that_starts_again_is_asked_again(sidecar):
    with HistoryClient(sidecar.address, timeout=PATIENT) as history:
        assert history.runs() == (RUN,)
        sidecar.stop()
        with pytest.raises(errors.UnavailableError):
            history.runs()
        again = Sidecar(sidecar.address)
        again.kept = sidecar.kept
        try:
            assert until_answered(history.runs) == (RUN,)
        finally:
            again.stop()


def until_answered(call):
    """gRPC tries again after a tenth of a second, and fails calls until then."""
    for _ in range(10_000):
        try:
            return call()
        except errors.UnavailableError:
            continue
    raise AssertionError


def test_closed_it_asks_nobody(sidecar, history):
    history.runs()
    history.close()
    history.close()
    with pytest.raises(errors.UnavailableError, match=r"^the client is closed$"):
        history.runs()
    assert len(sidecar.requests) == 1


def test_its_repr_says_where(sidecar, history):
    assert repr(history) == f"HistoryClient({sidecar.address!r}, timeout=120)"
    assert history.address == sidecar.address


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python's own, of forks beside threads
def test_a_child_asks_anew(sidecar, history):
    history.runs()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(60)  # ends a child that hangs
            code = 0 if history.runs() == (RUN,) else 2
            history.close()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert (os.WIFEXITED(status), os.WEXITSTATUS(status)) == (True, 0)
    assert history.runs() == (RUN,)
