"""The probe's reporter: one call a round, never an error, and a dead sidecar that costs nothing."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading

import grpc
import pytest

from satwatch import types, wire
from satwatch.client import EngineReporter
from satwatch.client.breaker import Backoff
from satwatch.errors import ConfigError, InvalidBatchError
from satwatch.types import EngineStatus, PackedFloats, PublishedVersion, TrainerFacts
from tests.clock import Clock
from tests.unit.client.faulty import Sidecar, abort

PATIENT = 120.0
STATUSES = (EngineStatus("e:1", "serving", version_served=3), EngineStatus("e:2", reason="unreachable"))
SCORES = types.CanaryScores(types.default_canary(), 4, PackedFloats("float16", bytes(248)))


@pytest.fixture
def clock():
    return Clock(1000.0)


@pytest.fixture
def sidecar():
    started = Sidecar()
    started.facts = TrainerFacts("r", (PublishedVersion(3, -20.0), PublishedVersion(4, -4.0)), (SCORES,))
    yield started
    started.stop()


@pytest.fixture
def report(clock):
    """Makes reporters that are closed after the test."""
    made = []

    def make(address, **fields):
        given = {"probe": "p", "period_seconds": 5.0, "timeout": PATIENT, "clock": clock, **fields}
        made.append(EngineReporter(address, backoff=Backoff(jitter=0.0), **given))
        return made[-1]

    yield make
    for reporter in made:
        reporter.close()


@pytest.fixture
def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_engines_go_and_the_trainer_s_word_comes_back_on_this_clock(sidecar, report):
    reporter = report(sidecar.address, run="r")
    facts = reporter(STATUSES)
    assert facts == TrainerFacts("r", (PublishedVersion(3, 980.0), PublishedVersion(4, 996.0)), (SCORES,))
    (message,) = sidecar.received("ReportEngines")
    assert wire.decode_report(message) == types.EnginesReport("p", STATUSES, 5.0, "r")
    assert (reporter.facts, reporter.reports, reporter.failures) == (facts, 1, 0)


def test_nothing_is_sent_before_the_first_call(sidecar, report):
    assert report(sidecar.address).facts == TrainerFacts()
    assert report(sidecar.address, run="r").facts == TrainerFacts("r")
    assert sidecar.requests == []


def test_without_an_answer_the_last_word_stays(sidecar, report, caplog):
    reporter = report(sidecar.address)
    facts = reporter(STATUSES)
    sidecar.stop()
    assert reporter(STATUSES) is facts
    assert (reporter.reports, reporter.failures) == (1, 1)
    (warning,) = said(caplog)
    assert warning.startswith(f"The sidecar at {sidecar.address} does not take this probe's reports (unavailable: ")


def test_what_was_published_is_not_known_for_ever_without_an_answer(sidecar, report, clock):
    reporter = report(sidecar.address)
    facts = reporter(STATUSES)
    sidecar.faults["ReportEngines"] = abort(grpc.StatusCode.UNAVAILABLE, "away")
    clock.now += 60.0
    assert reporter(STATUSES) == facts
    clock.now += 1.0
    old = reporter(STATUSES)
    assert (old.run, old.version_published, old.canaries) == ("r", None, facts.canaries)
    del sidecar.faults["ReportEngines"]
    clock.now += 60.0
    assert reporter(STATUSES).version_published == 4


def test_a_dead_sidecar_is_left_alone_for_longer_and_longer(sidecar, report, clock):
    sidecar.faults["ReportEngines"] = abort(grpc.StatusCode.INTERNAL, "broken")
    reporter = report(sidecar.address)
    asked = []
    for _ in range(40):
        before = len(sidecar.requests)
        reporter(STATUSES)
        if len(sidecar.requests) > before:
            asked.append(clock.now - 1000.0)
        clock.now += 1.0
    assert asked == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0]
    assert reporter.failures == len(asked)


def test_each_change_is_said_once(free_port, report, clock, caplog):
    reporter = report(f"127.0.0.1:{free_port}")
    for _ in range(5):
        reporter(STATUSES)
        clock.now += 100.0
    assert reporter.failures == 5
    late = Sidecar(f"127.0.0.1:{free_port}")
    try:
        for _ in range(3):
            clock.now += 100.0
            reporter(STATUSES)
    finally:
        late.stop()
    assert reporter.reports == 3
    first, second = said(caplog)
    assert "does not take this probe's reports" in first
    assert second == f"The sidecar at 127.0.0.1:{free_port} takes this probe's reports again."


def test_a_sidecar_that_is_back_is_asked_every_round_again(sidecar, report, clock):
    reporter = report(sidecar.address)
    sidecar.faults["ReportEngines"] = abort(grpc.StatusCode.UNAVAILABLE, "starting")
    reporter(STATUSES)
    del sidecar.faults["ReportEngines"]
    clock.now += 1.0
    reporter(STATUSES)
    reporter(STATUSES)
    assert (reporter.reports, reporter.failures) == (2, 1)


def test_a_run_that_is_not_open_yet_is_asked_for_every_round(sidecar, report, caplog):
    reporter = report(sidecar.address, run="later")
    sidecar.faults["ReportEngines"] = abort(grpc.StatusCode.NOT_FOUND, "run: not open", "UnknownRunError")
    for _ in range(3):
        assert reporter(STATUSES) == TrainerFacts("later")
    assert len(sidecar.requests) == reporter.failures == 3
    del sidecar.faults["ReportEngines"]
    assert reporter(STATUSES).version_published == 4
    assert [message.partition(" (")[0].split()[-1] for message in said(caplog)] == ["reports", "again."]


def test_an_answer_that_can_t_be_used_changes_nothing(sidecar, report, clock):
    reporter = report(sidecar.address)
    facts = reporter(STATUSES)
    sidecar.faults["ReportEngines"] = lambda *_: b"\xff\xff\xff"
    assert reporter(STATUSES) is facts
    late = types.PublishedVersion(9, float("-inf"))  # whose age is infinite
    sidecar.facts = TrainerFacts(published=(late,))
    del sidecar.faults["ReportEngines"]
    clock.now += 1.0
    assert reporter(STATUSES) is facts
    assert reporter.failures == 2


def test_a_fault_of_the_probe_itself_is_said_with_its_place_and_stops_nothing(sidecar, report, caplog):
    reporter = report(sidecar.address)
    assert reporter((EngineStatus("e:1", version_served="three"),)) == TrainerFacts()
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.exc_info is not None
    assert "(client: TypeError" in record.getMessage()
    assert reporter(STATUSES).version_published == 4


def test_a_deadline_is_the_timeout_s(sidecar, report, clock):
    class Passing(Clock):
        def __call__(self):
            self.now += 1.0
            return self.now

    reporter = report(sidecar.address, clock=Passing(), timeout=0.5)
    reporter(STATUSES)
    assert (sidecar.requests, reporter.failures) == ([], 1)


def test_closed_it_returns_the_last_word(sidecar, report):
    with report(sidecar.address) as reporter:
        facts = reporter(STATUSES)
    assert reporter(STATUSES) is facts
    assert (len(sidecar.requests), reporter.failures) == (1, 0)


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"address": "http://a"}, ConfigError, "address: got"),
        ({"timeout": 0}, ConfigError, "timeout: got 0"),
        ({"run": "a\nb"}, ConfigError, "run: got"),
        ({"probe": ""}, InvalidBatchError, "probe: got ''"),
        ({"period_seconds": float("nan")}, InvalidBatchError, "period_seconds: got nan"),
    ],
)
def test_what_can_t_be_meant_is_refused_at_once(fields, error, words):
    with pytest.raises(error, match=f"^{words}"):
        EngineReporter(**{"address": "127.0.0.1:1", "probe": "p", "period_seconds": 5.0, **fields})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python's own, of forks beside threads
def test_a_child_forked_in_the_middle_of_a_report_can_report(free_port, report):
    inside, let_go, parent = threading.Event(), threading.Event(), os.getpid()

    def clock():
        if os.getpid() == parent:
            inside.set()
            assert let_go.wait(PATIENT)
        return 1000.0

    reporter = report(f"127.0.0.1:{free_port}", clock=clock, timeout=0.01)
    thread = threading.Thread(target=reporter, args=(STATUSES,))
    thread.start()
    assert inside.wait(PATIENT)
    try:
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(60)  # ends a child that hangs
                reporter(STATUSES)
            finally:
                os._exit(reporter.failures)
        _, status = os.waitpid(child, 0)
    finally:
        let_go.set()
        thread.join()
    assert (os.WIFEXITED(status), os.WEXITSTATUS(status)) == (True, 1)
