"""Watching the engines: all at once, again after each change, and an error when the stream breaks."""

from __future__ import annotations

import socket
import threading

import grpc
import pytest

from satwatch.client import watch_engines, watching
from satwatch.errors import ConfigError, DeadlineError, UnavailableError, UnknownRunError
from satwatch.types import EngineStatus
from tests.unit.client.faulty import abort

PATIENT = 120.0
ONE = (EngineStatus("e:1", "serving"),)
TWO = (EngineStatus("e:1", "lagging", version_lag=1), EngineStatus("e:2"))


def test_each_change_comes_with_all_engines(sidecar):
    for change in (ONE, TWO, ()):
        sidecar.changes.put(change)
    watch = watch_engines(sidecar.address, "r", timeout=PATIENT)
    assert [next(watch) for _ in range(3)] == [ONE, TWO, ()]
    (message,) = sidecar.received("WatchEngines")
    assert message.run == "r"
    watch.close()
    assert sidecar.watch_ended.wait(PATIENT)


def test_the_first_answer_may_take_the_timeout_and_no_longer(sidecar):
    with pytest.raises(DeadlineError, match=r"WatchEngines at .*: no answer within 0\.05 s"):
        next(watch_engines(sidecar.address, timeout=0.05))
    assert sidecar.watch_ended.wait(PATIENT)


class Timer(threading.Timer):
    """A timer that fires when it is told to, unless it was cancelled."""

    def start(self):
        pass

    def fire(self):
        if not self.finished.is_set():
            self.function()


def test_later_answers_come_when_they_come(sidecar, monkeypatch):
    timers = []

    def make(*arguments):
        timers.append(Timer(*arguments))
        return timers[-1]

    monkeypatch.setattr(watching.threading, "Timer", make)
    sidecar.changes.put(ONE)
    watch = watch_engines(sidecar.address, timeout=0.5)
    assert next(watch) == ONE
    (timer,) = timers
    assert timer.interval == 0.5
    timer.fire()
    sidecar.changes.put(TWO)
    assert next(watch) == TWO
    watch.close()


def test_a_stream_that_breaks_raises(sidecar):
    sidecar.changes.put(ONE)
    sidecar.changes.put(abort(grpc.StatusCode.UNAVAILABLE, "the sidecar is shutting down"))
    watch = watch_engines(sidecar.address, timeout=PATIENT)
    next(watch)
    with pytest.raises(UnavailableError, match="the sidecar is shutting down"):
        next(watch)


def test_a_stream_that_ends_raises_too(sidecar):
    sidecar.changes.put(ONE)
    sidecar.changes.put(None)
    watch = watch_engines(sidecar.address, timeout=PATIENT)
    next(watch)
    with pytest.raises(UnavailableError, match="the sidecar has ended the stream"):
        next(watch)


def test_a_refusal_is_the_sidecar_s_own(sidecar):
    sidecar.changes.put(abort(grpc.StatusCode.NOT_FOUND, "run: got 'x'", "UnknownRunError"))
    with pytest.raises(UnknownRunError, match="run: got 'x'"):
        next(watch_engines(sidecar.address, "x", timeout=PATIENT))


def test_garbage_is_no_answer(sidecar):
    sidecar.changes.put(b"\xff\xff\xff")
    with pytest.raises(UnavailableError, match=r"^reply\.request: got 3 bytes that do not parse"):
        next(watch_engines(sidecar.address, timeout=PATIENT))
    assert sidecar.watch_ended.wait(PATIENT)


def test_nobody_there_raises():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
    with pytest.raises(UnavailableError):
        next(watch_engines(address, timeout=PATIENT))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"address": "http://a"}, "address: got"),
        ({"address": "127.0.0.1:1", "run": "a\nb"}, "run: got"),
        ({"address": "127.0.0.1:1", "timeout": 0}, "timeout: got 0"),
    ],
)
def test_what_can_t_be_meant_is_refused_before_iterating(given, words):
    with pytest.raises(ConfigError, match=f"^{words}"):
        watch_engines(**given)
