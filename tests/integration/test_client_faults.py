"""A client whose sidecar is dead, slow, wrong, or back again."""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import os
import re
import socket
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import torch

import satwatch
from satwatch import errors, types, wire
from satwatch.client import Client
from satwatch.client.breaker import Backoff
from satwatch.client.forks import GATE
from satwatch.client.settings import Settings
from satwatch.sat import clip_bounds
from satwatch.types import RunOpening
from tests.unit.client.faulty import INFO, Held, Sidecar, abort

D = torch.randn(512, generator=torch.Generator().manual_seed(0)).pow(3) * 0.01
PATIENT = 120.0  # longer than a test takes: what must not be the deadline's doing
HASTY = 0.05  # for deadlines that must pass
NEVER = Backoff(first=3600.0, jitter=0.0)
SOON = Backoff(first=0.01, ceiling=0.05)


@pytest.fixture
def sidecar():
    started = Sidecar()
    yield started
    started.stop()


@pytest.fixture
def connect():
    """Makes clients that are closed after the test."""
    clients = []

    def make(address, *, backoff=NEVER, on_failure="local", timeout=PATIENT, **opening):
        client = Client(Settings(address, RunOpening(**{"run": "r", **opening}), on_failure, timeout), backoff)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


class Listener(logging.Handler):
    """Knows when the client has said something."""

    def __init__(self, text):
        super().__init__(logging.DEBUG)
        self.text, self.said = text, threading.Event()

    def emit(self, record):
        if self.text in record.getMessage():
            self.said.set()


@pytest.fixture
def listen(caplog):
    """Makes events of what will be logged."""
    caplog.set_level(logging.DEBUG, "satwatch")
    # On the root, behind caplog's own handler: what an event says was said, caplog has.
    logger, listeners = logging.getLogger(), []

    def make(text):
        listeners.append(Listener(text))
        logger.addHandler(listeners[-1])
        return listeners[-1].said

    yield make
    for listener in listeners:
        logger.removeHandler(listener)


@pytest.fixture
def reopened(listen):
    """Set once a probe has succeeded: the next batch tries the sidecar."""
    return listen("has opened the run again;")


@pytest.fixture
def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def messages(caplog):
    return [(record.levelname, record.getMessage()) for record in caplog.records if is_loud(record)]


def is_loud(record):
    return record.name == "satwatch" and record.levelno > logging.DEBUG


def assert_same(bounds, other):
    for name in ("low", "high", "gate"):
        assert torch.equal(getattr(bounds, name), getattr(other, name)), name
    assert torch.equal(bounds.quantile_reference.nan_to_num(-1), other.quantile_reference.nan_to_num(-1))


def assert_fell_back(client, kind, batches=1):
    stats = client.stats
    assert stats.fallback_kinds == {kind: batches}
    assert (stats.bounds_from_sidecar, stats.bounds_from_fallback) == (0, batches)


# --- the sidecar answers ---


def test_a_batch_is_bounded_by_the_sidecar(sidecar, connect):
    client = connect(sidecar.address)
    assert client.stats.server is None
    assert_same(client.clip_bounds(D), clip_bounds(D))
    stats = client.stats
    assert (stats.batches_sent, stats.bounds_from_sidecar, stats.bounds_from_fallback, stats.breaker) == (
        1,
        1,
        0,
        "closed",
    )
    assert stats.fallback_kinds == {}
    assert stats.round_trip_seconds > 0
    assert stats.server == client.server_info() == INFO


def test_nothing_is_sent_before_the_first_batch(sidecar, connect):
    client = connect(sidecar.address)
    client.close()
    assert sidecar.requests == []


def test_the_run_is_opened_once_and_by_its_own_name(sidecar, connect):
    client = connect(sidecar.address, run="mine", incarnation="i2", rank=3, world_size=8, rule=types.Rule(quantile=0.8))
    client.clip_bounds(D)
    client.clip_bounds(D)
    (opening,) = sidecar.received("OpenRun")
    assert wire.decode_opening(opening) == RunOpening("mine", "i2", 3, 8, types.Rule(quantile=0.8))
    for request in sidecar.received("ComputeBounds"):
        assert (request.run, request.incarnation, request.rank) == ("mine", "i2", 3)


def test_a_request_says_what_is_known_and_nothing_else(sidecar, connect):
    client = connect(sidecar.address)
    client.clip_bounds(D)
    client.clip_bounds(D, step=0, policy_version=0, behavior_version=0, advantage=D)
    bare, full = sidecar.received("ComputeBounds")
    assert bare.rule_only
    assert not any(bare.HasField(name) for name in ("step", "microbatch", "policy_version", "routing"))
    assert not bare.tokens.HasField("advantage")
    assert len(bare.tokens.behavior_versions) == 0
    assert (full.step, full.microbatch, full.policy_version) == (0, 0, 0)
    assert full.HasField("microbatch")
    assert full.HasField("policy_version")
    assert [(run.tokens, run.version) for run in full.tokens.behavior_versions] == [(512, 0)]


def test_a_fallback_is_told_with_the_next_request(sidecar, connect):
    client = connect(sidecar.address)
    client.clip_bounds(D)
    sidecar.faults["ComputeBounds"] = abort(grpc.StatusCode.INVALID_ARGUMENT, "log_ratio: no")
    client.clip_bounds(D)
    client.clip_bounds(D)
    del sidecar.faults["ComputeBounds"]
    client.clip_bounds(D)
    assert [request.client_fallbacks for request in sidecar.received("ComputeBounds")] == [0, 0, 1, 2]


@pytest.mark.parametrize("address", ["unix:{}/s.sock", "unix:s.sock"])
def test_a_unix_socket(address, tmp_path, monkeypatch, connect):
    monkeypatch.chdir(tmp_path)
    sidecar = Sidecar(address.format(tmp_path))
    try:
        client = connect(sidecar.address)
        assert_same(client.clip_bounds(D), clip_bounds(D))
        assert client.stats.bounds_from_sidecar == 1
    finally:
        sidecar.stop()


def test_a_proxy_in_the_environment_is_not_used(sidecar, connect, monkeypatch, free_port):
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port}")
    for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    client = connect(sidecar.address)
    client.clip_bounds(D)
    assert client.stats.bounds_from_sidecar == 1


# --- the sidecar does not answer ---


def test_nobody_there(free_port, connect):
    client = connect(f"127.0.0.1:{free_port}")
    assert_same(client.clip_bounds(D), clip_bounds(D))
    assert_fell_back(client, "unavailable")
    assert client.stats.breaker == "open"


def test_no_socket_file(tmp_path, connect):
    client = connect(f"unix:{tmp_path}/nobody.sock")
    client.clip_bounds(D)
    assert_fell_back(client, "unavailable")


def test_somebody_who_accepts_and_never_speaks(connect):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        client = connect(f"127.0.0.1:{mute.getsockname()[1]}", timeout=HASTY)
        assert_same(client.clip_bounds(D), clip_bounds(D))
        assert_fell_back(client, "deadline")
        assert client.stats.breaker == "open"


def test_somebody_who_speaks_another_language(connect):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak():
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                while peer.recv(4096):
                    pass

        thread = threading.Thread(target=speak, daemon=True)
        thread.start()
        client = connect(f"127.0.0.1:{server.getsockname()[1]}")
        client.clip_bounds(D)
        assert_fell_back(client, "unavailable")
        client.close()
        thread.join(60)


def test_a_server_that_is_no_sidecar(connect):
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        client = connect(f"127.0.0.1:{port}", on_failure="raise")
        with pytest.raises(errors.UnavailableError, match="no satwatch sidecar"):
            client.clip_bounds(D)
        assert client.stats.fallback_kinds == {"internal": 1}
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize("method", ["OpenRun", "ComputeBounds"])
def test_a_sidecar_that_is_slow_is_waited_for_until_the_deadline(sidecar, connect, method):
    held = sidecar.faults[method] = Held(sidecar, method)
    client = connect(sidecar.address, timeout=HASTY if method == "OpenRun" else 1.0)
    # The sidecar still holds the request when the bounds are here.
    assert_same(client.clip_bounds(D), clip_bounds(D))
    held.let_go.set()
    assert_fell_back(client, "deadline")
    assert client.stats.breaker == "open"


def test_one_deadline_spans_all_the_parts_of_a_call(sidecar, connect):
    held = Held(sidecar, "OpenRun")

    def open_once(message, context):
        return (held if sidecar.open else sidecar.answer_OpenRun)(message, context)

    sidecar.faults["OpenRun"] = open_once
    sidecar.faults["ComputeBounds"] = abort(grpc.StatusCode.NOT_FOUND, "run: not open", "UnknownRunError")
    client = connect(sidecar.address, timeout=1.0, on_failure="raise")
    with pytest.raises(errors.DeadlineError, match="no answer within 1 s"):
        client.clip_bounds(D)
    held.let_go.set()
    assert len(sidecar.received("ComputeBounds")) <= 1, "no second one after the deadline"


@pytest.mark.parametrize(
    ("code", "name", "kind", "error", "breaker"),
    [
        ("UNAVAILABLE", None, "unavailable", errors.UnavailableError, "open"),
        ("UNAVAILABLE", "UnavailableError", "unavailable", errors.UnavailableError, "open"),
        ("DEADLINE_EXCEEDED", None, "deadline", errors.DeadlineError, "open"),
        ("INTERNAL", None, "internal", errors.UnavailableError, "open"),
        ("UNKNOWN", None, "internal", errors.UnavailableError, "open"),
        ("UNIMPLEMENTED", None, "internal", errors.UnavailableError, "open"),
        ("PERMISSION_DENIED", None, "internal", errors.UnavailableError, "open"),
        ("CANCELLED", None, "unavailable", errors.UnavailableError, "open"),
        ("RESOURCE_EXHAUSTED", "OverloadedError", "overloaded", errors.OverloadedError, "open"),
        ("RESOURCE_EXHAUSTED", None, "overloaded", errors.OverloadedError, "open"),
        ("NOT_FOUND", "UnknownRunError", "unknown_run", errors.UnknownRunError, "open"),
        ("INVALID_ARGUMENT", "ConfigError", "config", errors.ConfigError, "open"),
        ("INVALID_ARGUMENT", "InvalidBatchError", "invalid_batch", errors.InvalidBatchError, "closed"),
        ("INVALID_ARGUMENT", None, "invalid_batch", errors.InvalidBatchError, "closed"),
        ("INVALID_ARGUMENT", "OverloadedError", "invalid_batch", errors.InvalidBatchError, "closed"),
    ],
)
def test_each_status_has_its_error_and_its_kind(sidecar, connect, code, name, kind, error, breaker):
    sidecar.faults["ComputeBounds"] = abort(grpc.StatusCode[code], "the reason", name)
    local, raising = connect(sidecar.address), connect(sidecar.address, on_failure="raise")
    assert_same(local.clip_bounds(D), clip_bounds(D))
    assert_fell_back(local, kind)
    assert local.stats.breaker == breaker
    with pytest.raises(error) as caught:
        raising.clip_bounds(D)
    assert type(caught.value) is error
    if code not in ("DEADLINE_EXCEEDED", "UNIMPLEMENTED"):
        assert "the reason" in str(caught.value)
    assert raising.stats.raised == 1
    assert raising.stats.batches_sent == 0


def wrong(change):
    """A fault that changes the right reply."""

    def make(sidecar):
        return lambda message, _: wire.encode_reply(change(sidecar.reply(message))).SerializeToString()

    return make


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda _: lambda *_: b"\xff\xff\xff", id="garbage"),
        pytest.param(lambda _: lambda *_: b"", id="nothing"),
        pytest.param(wrong(lambda reply: replace(reply, tokens=511)), id="token count"),
        pytest.param(wrong(lambda reply: replace(reply, quantile_reference=math.nan)), id="q is NaN"),
        pytest.param(wrong(lambda reply: replace(reply, quantile_reference=None)), id="no q"),
        pytest.param(wrong(lambda reply: replace(reply, quantile_reference=-1.0)), id="negative q"),
        pytest.param(
            wrong(lambda reply: replace(reply, quantile_reference=reply.quantile_reference * 2)), id="larger q"
        ),
        pytest.param(
            wrong(lambda reply: replace(reply, quantile_reference=reply.quantile_reference / 2)), id="smaller q"
        ),
        pytest.param(wrong(lambda reply: replace(reply, rule=replace(reply.rule, eps_high=0.9))), id="looser rule"),
        pytest.param(wrong(lambda reply: replace(reply, rule=replace(reply.rule, quantile=0.5))), id="another rule"),
        pytest.param(wrong(lambda reply: replace(reply, rule=replace(reply.rule, scope="window"))), id="another scope"),
    ],
)
def test_a_wrong_reply_is_not_used(sidecar, connect, make):
    sidecar.faults["ComputeBounds"] = make(sidecar)
    client = connect(sidecar.address)
    assert_same(client.clip_bounds(D), clip_bounds(D))
    assert_fell_back(client, "reply")
    assert client.stats.breaker == "open"


@pytest.mark.parametrize("value", [float("nan"), 7.0])
def test_a_reply_with_a_rule_that_no_rule_can_be_is_not_used(sidecar, connect, value):
    def impossible(message, _):
        reply = wire.encode_reply(sidecar.reply(message))
        reply.rule.eps_high = value
        return reply.SerializeToString()

    sidecar.faults["ComputeBounds"] = impossible
    client = connect(sidecar.address)
    client.clip_bounds(D)
    assert_fell_back(client, "reply")


def test_an_opening_answered_with_another_rule_is_a_wrong_reply(sidecar, connect):
    def other(message, context):
        message.rule.quantile = 0.5
        return sidecar.answer_OpenRun(message, context)

    sidecar.faults["OpenRun"] = other
    client = connect(sidecar.address)
    client.clip_bounds(D)
    assert_fell_back(client, "reply")
    assert sidecar.received("ComputeBounds") == []


def test_an_opening_that_is_refused(sidecar, connect):
    sidecar.faults["OpenRun"] = abort(grpc.StatusCode.INVALID_ARGUMENT, "rule.quantile: other", "ConfigError")
    client = connect(sidecar.address, on_failure="raise")
    with pytest.raises(errors.ConfigError, match=r"rule.quantile: other"):
        client.clip_bounds(D)
    assert client.stats.breaker == "open"


def test_a_fault_in_the_client_itself_does_not_reach_the_trainer(sidecar, connect, monkeypatch, caplog):
    client = connect(sidecar.address)
    client.clip_bounds(D)
    monkeypatch.setattr("satwatch.client.asker.accept", lambda *_: 1 // 0)
    for _ in range(3):
        assert_same(client.clip_bounds(D), clip_bounds(D))
    assert client.stats.fallback_kinds == {"client": 3}
    (record,) = [record for record in caplog.records if record.name == "satwatch"]
    assert "ZeroDivisionError" in record.getMessage()
    assert record.exc_info[0] is ZeroDivisionError


def test_a_fault_of_the_background_thread_is_a_miss_and_it_goes_on(sidecar, connect, monkeypatch, reopened):
    def broken(address, timeout):
        monkeypatch.undo()
        raise MemoryError

    monkeypatch.setattr("satwatch.client.link.Connection", broken)
    client = connect(sidecar.address, backoff=SOON, on_failure="raise")
    with pytest.raises(errors.UnavailableError, match="MemoryError"):
        client.clip_bounds(D)
    assert client.stats.fallback_kinds == {"internal": 1}
    assert reopened.wait(PATIENT)


# --- what is done instead ---


def test_nominal_is_ppo_s_interval(free_port, connect):
    client = connect(f"127.0.0.1:{free_port}", on_failure="nominal", rule=types.Rule(eps_low=0.1, eps_high=0.3))
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        bounds, ppo = (
            client.clip_bounds(D.to(dtype)),
            clip_bounds(D.to(dtype), eps_low=0.1, eps_high=0.3, enabled=False),
        )
        assert torch.equal(bounds.low, ppo.low)
        assert torch.equal(bounds.high, ppo.high)
        assert not bounds.gate.any()
        assert bounds.quantile_reference.isnan()
        assert bounds.quantile_reference.dtype == bounds.low.dtype
    assert client.stats.bounds_from_fallback == 4


def test_local_follows_the_whole_rule(free_port, connect):
    rule = types.Rule(0.5, 0.1, 0.3, 3.0, "sequence", "step", 0.002, True)
    client = connect(f"127.0.0.1:{free_port}", rule=rule)
    d, mask = D.reshape(8, 64), D.reshape(8, 64) > -0.01
    local = clip_bounds(
        d, mask=mask, quantile=0.5, eps_low=0.1, eps_high=0.3, exponent=3.0, level="sequence", min_reference=0.002
    )
    assert local.gate.any()
    assert_same(client.clip_bounds(d, mask=mask), local)


def test_raise_raises_from_a_future_too(free_port, connect):
    client = connect(f"127.0.0.1:{free_port}", on_failure="raise")
    with pytest.raises(errors.UnavailableError):
        client.submit(D).result(60)
    with pytest.raises(errors.UnavailableError, match=r"left alone since it failed: .*OpenRun"):
        client.clip_bounds(D)
    assert client.stats.fallback_kinds == {"unavailable": 1, "open": 1}


@pytest.mark.parametrize("on_failure", ["local", "nominal", "raise"])
def test_a_batch_that_does_not_fit_is_refused_before_anything_is_sent(sidecar, connect, on_failure):
    client = connect(sidecar.address, on_failure=on_failure)
    for ask in (client.clip_bounds, client.submit):
        with pytest.raises(errors.InvalidBatchError, match=r"^mask: got shape"):
            ask(D, mask=torch.ones(3))
    assert sidecar.requests == []
    assert client.stats.batches_sent == 0


# --- the breaker ---


def test_while_the_breaker_is_open_nothing_is_sent(sidecar, connect):
    client = connect(sidecar.address)
    client.clip_bounds(D)
    sidecar.faults["ComputeBounds"] = abort(grpc.StatusCode.INTERNAL, "broken")
    for _ in range(5):
        assert_same(client.clip_bounds(D), clip_bounds(D))
    assert len(sidecar.received("ComputeBounds")) == 2
    assert client.stats.fallback_kinds == {"internal": 1, "open": 4}


def test_a_sidecar_started_again_on_its_port_is_used_again(sidecar, connect, reopened):
    client = connect(sidecar.address, backoff=SOON, incarnation="i")
    client.clip_bounds(D)
    sidecar.stop()
    assert_same(client.clip_bounds(D), clip_bounds(D))
    assert client.stats.breaker == "open"
    again = Sidecar(sidecar.address)
    try:
        assert reopened.wait(PATIENT)
        assert client.stats.breaker == "half_open"
        assert_same(client.clip_bounds(D), clip_bounds(D))
        assert client.stats.breaker == "closed"
        assert client.stats.bounds_from_sidecar == 2
        assert [wire.decode_opening(o).incarnation for o in again.received("OpenRun")] == ["i"]
    finally:
        again.stop()


def test_a_sidecar_that_comes_late_is_used_when_it_comes(free_port, connect, reopened):
    client = connect(f"127.0.0.1:{free_port}", backoff=SOON)
    client.clip_bounds(D)
    late = Sidecar(f"127.0.0.1:{free_port}")
    try:
        assert reopened.wait(PATIENT)
        client.clip_bounds(D)
        assert client.stats.bounds_from_sidecar == 1
    finally:
        late.stop()


def test_a_probe_that_is_answered_wrongly_leaves_the_breaker_open(sidecar, connect, reopened):
    probed = threading.Semaphore(0)

    def refuse(message, context):
        probed.release()
        return abort(grpc.StatusCode.INTERNAL, "still broken")(message, context)

    client = connect(sidecar.address, backoff=SOON)
    sidecar.faults["OpenRun"] = refuse
    client.clip_bounds(D)
    for _ in range(4):
        assert probed.acquire(timeout=PATIENT)
    assert client.stats.breaker == "open"
    assert not reopened.is_set()
    sidecar.faults.clear()
    assert reopened.wait(PATIENT)


def test_a_restart_between_two_batches_is_not_noticed(sidecar, connect):
    client = connect(sidecar.address)
    client.clip_bounds(D, step=1)
    sidecar.open = False
    assert_same(client.clip_bounds(D, step=1), clip_bounds(D))
    assert client.stats.bounds_from_sidecar == 2
    assert client.stats.fallback_kinds == {}
    assert len(sidecar.received("OpenRun")) == 2
    assert [request.microbatch for request in sidecar.received("ComputeBounds")] == [0, 1, 1], "the same batch again"


def test_only_changes_are_logged(sidecar, connect, reopened, caplog):
    client = connect(sidecar.address, backoff=SOON)
    for _ in range(3):
        client.clip_bounds(D)
    assert messages(caplog) == []
    held = sidecar.faults["OpenRun"] = Held(sidecar, "OpenRun")
    sidecar.faults["ComputeBounds"] = abort(grpc.StatusCode.INTERNAL, "broken")
    for _ in range(4):
        client.clip_bounds(D)
    sidecar.faults.pop("ComputeBounds")
    held.let_go.set()
    assert reopened.wait(PATIENT)
    for _ in range(3):
        client.clip_bounds(D)
    (one, first), (other, second) = messages(caplog)
    assert one == other == "WARNING"
    assert first == (
        f"No bounds from the sidecar at {sidecar.address} (internal: ComputeBounds at {sidecar.address}: INTERNAL: "
        "broken). Until it answers again, the trainer computes the bounds."
    )
    assert second == f"The sidecar at {sidecar.address} answers again; it missed 4 batches."


def test_a_sidecar_that_opens_runs_but_is_late_with_batches_is_asked_less_and_less(
    connect, sidecar, monkeypatch, caplog
):
    """By the breaker's own clock: each trial that fails doubles the pause, and only the first miss is logged."""
    pauses, now = [], time.monotonic
    client = connect(sidecar.address, backoff=Backoff(first=1.0, ceiling=30.0, jitter=0.0))
    link = client._here()._link
    sidecar.faults["ComputeBounds"] = abort(grpc.StatusCode.DEADLINE_EXCEEDED, "late")
    client.clip_bounds(D)
    for _ in range(7):
        with link._lock:
            pauses.append(round(link._breaker.probe_at - now()))
            link._breaker = replace(link._breaker, probe_at=0.0)
            link._changed.notify_all()
            assert link._changed.wait_for(lambda: link._breaker.state == "half_open", PATIENT)
        assert_same(client.clip_bounds(D), clip_bounds(D))
        assert client.stats.breaker == "open"
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert client.stats.fallback_kinds == {"deadline": 8}
    assert len(messages(caplog)) == 1


def test_while_half_open_one_batch_tries_and_the_others_fall_back_at_once(sidecar, connect, reopened, caplog):
    client = connect(sidecar.address, backoff=SOON)
    sidecar.faults["ComputeBounds"] = abort(grpc.StatusCode.INTERNAL, "broken")
    client.clip_bounds(D)
    assert reopened.wait(PATIENT)
    held = sidecar.faults["ComputeBounds"] = Held(sidecar)
    trial = client.submit(D)
    assert held.arrived.acquire(timeout=PATIENT)
    with ThreadPoolExecutor(4) as pool:
        for bounds in pool.map(client.clip_bounds, [D] * 8):
            assert_same(bounds, clip_bounds(D))
    assert client.stats.fallback_kinds == {"internal": 1, "open": 8}
    assert not trial.done()
    held.let_go.set()
    trial.result(PATIENT)
    assert (client.stats.breaker, client.stats.bounds_from_sidecar) == ("closed", 1)
    assert [text.rpartition("; ")[2] for _, text in messages(caplog)][1:] == ["it missed 9 batches."]


@pytest.mark.parametrize("how", ["refused", "interrupted"])
def test_a_trial_that_shows_nothing_leaves_the_next_batch_to_try(sidecar, connect, reopened, monkeypatch, how):
    client = connect(sidecar.address, backoff=SOON)
    sidecar.faults["ComputeBounds"] = abort(grpc.StatusCode.INTERNAL, "broken")
    client.clip_bounds(D)
    assert reopened.wait(PATIENT)

    def interrupt(*_):
        raise KeyboardInterrupt

    if how == "refused":
        sidecar.faults["ComputeBounds"] = abort(grpc.StatusCode.INVALID_ARGUMENT, "log_ratio: no")
        client.clip_bounds(D)
    else:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("satwatch.client.asker.score_batch", interrupt)
            client.clip_bounds(D)
    assert client.stats.breaker == "half_open"
    sidecar.faults.clear()
    client.clip_bounds(D)
    assert (client.stats.breaker, client.stats.bounds_from_sidecar) == ("closed", 1)


def relay(sidecar, begin):
    """A TCP relay to a sidecar that waits for ``begin`` before it passes a connection's first bytes on."""
    host, port = sidecar.address.split(":")
    server = socket.create_server(("127.0.0.1", 0))

    def pump(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                near, _ = server.accept()
                begin()
                far = socket.create_connection((host, int(port)))
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=pump, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return server


def test_a_handshake_may_take_as_long_as_the_deadline(sidecar, connect):
    # Longer than gRPC's least patience with a handshake, 100 ms; there is no event for its being over.
    with relay(sidecar, lambda: time.sleep(0.4)) as server:
        client = connect(f"127.0.0.1:{server.getsockname()[1]}", on_failure="raise")
        assert_same(client.clip_bounds(D), clip_bounds(D))
        assert client.stats.bounds_from_sidecar == 1
        client.close()


@pytest.mark.parametrize("ask", ["clip_bounds", "submit"])
def test_a_default_device_does_not_matter(sidecar, free_port, connect, ask):
    lengths = [200, 312]
    for address, answered in ((sidecar.address, 1), (f"127.0.0.1:{free_port}", 0)):
        client = connect(address)
        with torch.device("meta"):
            bounds = getattr(client, ask)(
                D, sequence_lengths=lengths, advantage=[1.0, -1.0], behavior_version=[3, None]
            )
            bounds = bounds if ask == "clip_bounds" else bounds.result(PATIENT)
        assert_same(bounds, clip_bounds(D))
        assert (client.stats.bounds_from_sidecar, client.stats.bounds_from_fallback) == (answered, 1 - answered)
        assert "client" not in client.stats.fallback_kinds


def test_a_fault_in_the_local_computation_gives_ppo_s_interval(free_port, connect, monkeypatch, caplog):
    monkeypatch.setattr("satwatch.client.fallback.clip_bounds", lambda *_, **__: 1 // 0)
    client = connect(f"127.0.0.1:{free_port}")
    for _ in range(3):
        assert_same(
            client.clip_bounds(D), replace(clip_bounds(D, enabled=False), quantile_reference=torch.tensor(math.nan))
        )
    assert_fell_back(client, "client", 3)
    defects = [record for record in caplog.records if is_loud(record) and record.exc_info]
    assert [record.exc_info[0] for record in defects] == [ZeroDivisionError]
    assert "PPO's interval" in defects[0].getMessage()


def test_a_batch_without_numbers_gives_ppo_s_interval(sidecar, connect):
    client = connect(sidecar.address)
    bounds = client.clip_bounds(D.to("meta"))
    assert (bounds.low.device.type, bounds.low.shape) == ("meta", D.shape)
    assert_fell_back(client, "client")


@pytest.mark.parametrize(
    ("on_failure", "instead"), [("nominal", "batches get PPO's interval"), ("raise", "calls raise")]
)
def test_the_warning_says_what_is_done_instead(free_port, connect, listen, on_failure, instead):
    said = listen(f"Until it answers again, {instead}.")
    client = connect(f"127.0.0.1:{free_port}", on_failure=on_failure)
    client.submit(D).exception(PATIENT)
    assert said.wait(PATIENT)


@pytest.mark.parametrize(
    ("limits", "name", "limit"),
    [({"max_tokens": 511}, "max_tokens", 511), ({"max_message_bytes": 2047}, "max_message_bytes", 2047)],
)
def test_a_batch_above_the_sidecar_s_limits_is_not_sent(connect, caplog, limits, name, limit):
    sidecar = Sidecar(info=replace(INFO, **limits))
    try:
        client, raising = connect(sidecar.address), connect(sidecar.address, on_failure="raise")
        for _ in range(3):
            assert_same(client.clip_bounds(D), clip_bounds(D))
        assert sidecar.received("ComputeBounds") == []
        assert_fell_back(client, "too_large", 3)
        assert client.stats.breaker == "closed"
        assert len(messages(caplog)) == 1
        with pytest.raises(errors.OverloadedError, match=rf"^log_ratio: got .*required at most {limit}, .*{name}"):
            raising.clip_bounds(D)
        client.clip_bounds(D[:100])
        assert client.stats.bounds_from_sidecar == 1
    finally:
        sidecar.stop()


def test_the_bytes_of_a_whole_request_count(connect):
    # 512 float32 log-ratios fit; with as many advantages beside them they do not.
    sidecar = Sidecar(info=replace(INFO, max_message_bytes=3000))
    try:
        client = connect(sidecar.address)
        client.clip_bounds(D)
        client.clip_bounds(D, advantage=D)
        assert (client.stats.bounds_from_sidecar, client.stats.fallback_kinds) == (1, {"too_large": 1})
    finally:
        sidecar.stop()


def test_after_a_fork_that_broke_grpc_the_child_never_calls(sidecar, connect, monkeypatch, caplog):
    monkeypatch.setattr(GATE, "is_broken", True)
    client = connect(sidecar.address)
    for _ in range(2):
        assert_same(client.clip_bounds(D), clip_bounds(D))
    assert_fell_back(client, "fork", 2)
    assert sidecar.requests == []
    assert len(messages(caplog)) == 1


# --- submit, close, threads ---


def test_submit_returns_while_the_sidecar_works(sidecar, connect):
    held = sidecar.faults["ComputeBounds"] = Held(sidecar)
    client = connect(sidecar.address)
    futures = [client.submit(D), client.submit(D * 2)]
    assert held.arrived.acquire(timeout=PATIENT)
    assert held.arrived.acquire(timeout=PATIENT), "both are on their way"
    assert not any(future.done() for future in futures)
    held.let_go.set()
    assert_same(futures[0].result(PATIENT), clip_bounds(D))
    assert_same(futures[1].result(PATIENT), clip_bounds(D * 2))


def test_what_was_submitted_may_be_overwritten(sidecar, connect):
    held = sidecar.faults["OpenRun"] = Held(sidecar, "OpenRun")
    client = connect(sidecar.address)
    d, mask = D.clone(), D > -0.01
    expected = clip_bounds(D, mask=mask.clone())
    future = client.submit(d, mask=mask, advantage=d)
    assert held.arrived.acquire(timeout=PATIENT)
    d.zero_()
    mask.zero_()
    held.let_go.set()
    assert_same(future.result(PATIENT), expected)
    (request,) = sidecar.received("ComputeBounds")
    assert request.tokens.advantage.data == request.tokens.log_ratio.data == D[D > -0.01].numpy().tobytes()


def test_batches_submitted_are_numbered_in_the_order_of_the_calls(sidecar, connect):
    client = connect(sidecar.address)
    sizes = range(10, 30)
    for future in [client.submit(D[:n], step=7) for n in sizes]:
        future.result(PATIENT)
    numbers = {
        len(request.tokens.log_ratio.data) // 4: request.microbatch for request in sidecar.received("ComputeBounds")
    }
    assert numbers == {n: i for i, n in enumerate(sizes)}


def test_a_microbatch_s_own_number_is_kept(sidecar, connect):
    client = connect(sidecar.address)
    client.clip_bounds(D, step=7, microbatch=5)
    client.clip_bounds(D, step=7)
    client.clip_bounds(D, microbatch=9)
    requests = sidecar.received("ComputeBounds")
    assert [request.microbatch for request in requests] == [5, 0, 9]
    assert not requests[2].HasField("step")


def test_threads_get_their_own_answers(sidecar, connect):
    client = connect(sidecar.address)

    def work(seed):
        d = torch.randn(64 + seed, generator=torch.Generator().manual_seed(seed))
        assert_same(client.clip_bounds(d, step=1), clip_bounds(d))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(160)))
    assert client.stats.bounds_from_sidecar == 160
    assert len(sidecar.received("OpenRun")) == 1
    assert sorted(request.microbatch for request in sidecar.received("ComputeBounds")) == list(range(160))


def test_threads_and_a_sidecar_that_comes_and_goes(sidecar, connect, reopened):
    client = connect(sidecar.address, backoff=SOON)
    going = threading.Event()

    def work(seed):
        d = torch.randn(128, generator=torch.Generator().manual_seed(seed))
        for i in range(50):
            assert_same(client.clip_bounds(d), clip_bounds(d))
            if i == 10:
                going.set()

    with ThreadPoolExecutor(4) as pool:
        works = [pool.submit(work, seed) for seed in range(4)]
        assert going.wait(PATIENT)
        sidecar.stop()
        again = Sidecar(sidecar.address)
        for done in works:
            done.result(PATIENT)
    try:
        client.clip_bounds(D)
        if client.stats.breaker == "open":
            assert reopened.wait(PATIENT)
        assert client.stats.batches_sent == 201
        assert client.stats.fallback_kinds.keys() <= {"unavailable", "open", "internal"}
    finally:
        again.stop()


def test_close_ends_what_is_in_flight(sidecar, connect, caplog):
    held = sidecar.faults["ComputeBounds"] = Held(sidecar)
    client = connect(sidecar.address)
    futures = [client.submit(D) for _ in range(5)]
    assert held.arrived.acquire(timeout=PATIENT)
    client.close()
    assert all(future.done() for future in futures)
    for future in futures:
        assert_same(future.result(0), clip_bounds(D))
    assert client.stats.bounds_from_fallback == 5
    assert messages(caplog) == [], "closing is no failure"
    held.let_go.set()


def test_close_ends_a_call_that_waits_for_the_first_connection(sidecar, connect):
    held = sidecar.faults["OpenRun"] = Held(sidecar, "OpenRun")
    client = connect(sidecar.address)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.clip_bounds, D)
        assert held.arrived.acquire(timeout=PATIENT)
        client.close()
        assert_same(waiting.result(PATIENT), clip_bounds(D))
    assert_fell_back(client, "closed")
    held.let_go.set()


def test_a_closed_client_goes_on_bounding(sidecar, connect):
    client, raising = connect(sidecar.address), connect(sidecar.address, on_failure="raise")
    for each in (client, raising):
        each.close()
        each.close()
    assert_same(client.clip_bounds(D), clip_bounds(D))
    assert_same(client.submit(D).result(0), clip_bounds(D))
    client.publish_version(1)
    assert_fell_back(client, "closed", 2)
    with pytest.raises(errors.UnavailableError, match="the client is closed"):
        raising.clip_bounds(D)
    assert sidecar.requests == []


def test_a_callback_may_close_the_client(sidecar, connect):
    client, closed = connect(sidecar.address), threading.Event()

    def close(_):
        client.close()
        closed.set()

    client.submit(D).add_done_callback(close)
    assert closed.wait(PATIENT)


def own_threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("satwatch-")}


def test_a_context_that_is_left_leaves_no_thread(sidecar, free_port):
    others = own_threads()  # of clients that live as long as the process
    for address in (sidecar.address, f"127.0.0.1:{free_port}"):
        with satwatch.connect(address, run="r") as client:
            client.submit(D).result(PATIENT)
            assert own_threads() > others
        assert own_threads() <= others


def test_a_client_that_is_forgotten_leaves_no_thread(free_port):
    others = own_threads()
    client = Client(Settings(f"127.0.0.1:{free_port}", RunOpening("r")), NEVER)
    client.clip_bounds(D)
    (probing,) = own_threads() - others
    del client
    gc.collect()
    probing.join(PATIENT)
    assert own_threads() <= others


def test_a_forgotten_client_finishes_what_it_was_given(sidecar):
    held = sidecar.faults["ComputeBounds"] = Held(sidecar)
    client = Client(Settings(sidecar.address, RunOpening("r"), "raise", PATIENT), NEVER)
    future = client.submit(D)
    del client
    assert held.arrived.acquire(timeout=PATIENT)
    gc.collect()
    held.let_go.set()
    assert_same(future.result(PATIENT), clip_bounds(D))


@pytest.mark.parametrize("on_failure", ["local", "nominal", "raise"])
def test_a_batch_that_missed_is_freed_without_the_garbage_collector(sidecar, connect, on_failure):
    """On a device it would keep the trainer's memory."""
    client = connect(sidecar.address, on_failure=on_failure)
    sidecar.faults["ComputeBounds"] = abort(grpc.StatusCode.INTERNAL, "broken")
    gc.disable()
    try:
        for _ in range(2):  # the miss that opens the breaker, and one while it is open
            d = D.clone()
            freed = weakref.ref(d.untyped_storage())
            view = d.detach()
            with contextlib.suppress(errors.UnavailableError):
                client.clip_bounds(view)
            alive = weakref.ref(view)
            del d, view
            assert alive() is None
            assert freed() is None
    finally:
        gc.enable()
    assert client.stats.breaker == "open"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
def test_closed_clients_leave_no_open_file(sidecar):
    def use():
        with Client(Settings(sidecar.address, RunOpening("r"), timeout=PATIENT), NEVER) as client:
            client.submit(D).result(PATIENT)
            assert client.stats.bounds_from_sidecar == 1

    def files():
        return len(os.listdir("/proc/self/fd"))

    use()
    before, end = files(), time.monotonic() + PATIENT
    for _ in range(20):
        use()
    # gRPC closes its sockets on threads of its own and has no event for it.
    while files() > before + 5 and time.monotonic() < end:
        time.sleep(0.01)
    assert files() <= before + 5, "20 clients had at least a socket each"


# --- versions ---


def test_versions_are_published_in_order(sidecar, connect):
    client = connect(sidecar.address)
    held = sidecar.faults["OpenRun"] = Held(sidecar, "OpenRun")
    for version in (1, 2, 3):
        client.publish_version(version)
    assert held.arrived.acquire(timeout=PATIENT), "publish_version did not wait for this"
    held.let_go.set()
    client.clip_bounds(D)
    fourth = threading.Event()

    def hear(message, context):
        if message.version == 4:
            fourth.set()
        return sidecar.answer_PublishVersion(message, context)

    sidecar.faults["PublishVersion"] = hear
    client.publish_version("4")
    assert fourth.wait(PATIENT)
    versions = [message.version for message in sidecar.received("PublishVersion")]
    assert versions == sorted(versions)
    assert {3, 4} <= set(versions)


def test_a_sidecar_that_was_away_hears_the_last_version(free_port, connect, reopened):
    client = connect(f"127.0.0.1:{free_port}", backoff=SOON, incarnation="i")
    client.clip_bounds(D)
    client.publish_version(6)
    client.publish_version(7)
    late = Sidecar(f"127.0.0.1:{free_port}")
    try:
        assert reopened.wait(PATIENT)
        heard = late.received("PublishVersion")
        assert {(message.run, message.incarnation, message.version) for message in heard} == {("r", "i", 7)}
    finally:
        late.stop()


def test_a_version_for_a_sidecar_that_has_forgotten_the_run_opens_it_again(sidecar, connect):
    client = connect(sidecar.address, on_failure="raise")
    client.clip_bounds(D)
    forgotten = abort(grpc.StatusCode.NOT_FOUND, "run: not open", "UnknownRunError")

    def forget(message, context):
        del sidecar.faults["PublishVersion"]
        return forgotten(message, context)

    sidecar.faults["PublishVersion"] = forget
    client.publish_version(8)
    assert [method for method, _ in sidecar.requests[2:]] == ["PublishVersion", "OpenRun", "PublishVersion"]
    assert client.stats.breaker == "closed"


def test_a_version_said_again_is_as_old_as_it_is(sidecar, connect, monkeypatch):
    client, clock = connect(sidecar.address, on_failure="raise"), time.monotonic
    client.clip_bounds(D)
    client.publish_version(8)
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 1000.0)
    client.publish_version(8)
    first, again = (message.age_seconds for message in sidecar.received("PublishVersion"))
    assert 0.0 <= first < 1000.0 <= again


def test_a_version_waits_for_the_one_before_it_no_longer_than_the_deadline(sidecar, connect):
    held = sidecar.faults["PublishVersion"] = Held(sidecar, "PublishVersion")
    client = connect(sidecar.address, timeout=HASTY * 10, on_failure="raise")
    with contextlib.suppress(errors.DeadlineError):
        client.clip_bounds(D)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(client.publish_version, version) for version in (1, 2)]
        for each in both:
            assert isinstance(each.exception(PATIENT), errors.DeadlineError | errors.UnavailableError)
    held.let_go.set()


def test_a_version_below_another_rank_s_does_not_keep_the_run_closed(sidecar, connect):
    client = connect(sidecar.address)
    client.clip_bounds(D)
    sidecar.faults["PublishVersion"] = abort(grpc.StatusCode.FAILED_PRECONDITION, "version: below", "VersionOrderError")
    client.publish_version(3)
    sidecar.open = False
    client.clip_bounds(D)
    assert client.stats.bounds_from_sidecar == 2


def test_a_version_out_of_order_is_said_and_opens_no_breaker(sidecar, connect, caplog, listen):
    refused = abort(grpc.StatusCode.FAILED_PRECONDITION, "version: got 2, required 3 or more", "VersionOrderError")
    client, raising = connect(sidecar.address), connect(sidecar.address, on_failure="raise")
    for each in (client, raising):
        each.clip_bounds(D)
    sidecar.faults["PublishVersion"] = refused
    with pytest.raises(errors.VersionOrderError, match="got 2, required 3"):
        raising.publish_version(2)
    said = listen("refused a published version")
    client.publish_version(2)
    assert said.wait(PATIENT)
    assert [re.sub("^.*: got", "got", text) for _, text in messages(caplog)] == ["got 2, required 3 or more."]
    assert raising.stats.breaker == "closed"


def test_publishing_raises_only_where_it_is_asked_to(free_port, connect):
    with pytest.raises(errors.UnavailableError):
        connect(f"127.0.0.1:{free_port}", on_failure="raise").publish_version(1)
    connect(f"127.0.0.1:{free_port}").publish_version(1)


@pytest.mark.parametrize("version", [None, -1, "v2", 1.5])
def test_what_is_no_version_is_not_published(sidecar, connect, version):
    with pytest.raises(errors.InvalidBatchError, match=r"^version: got"):
        connect(sidecar.address).publish_version(version)


def test_server_info_raises_whatever_on_failure_is(free_port, connect):
    with pytest.raises(errors.UnavailableError):
        connect(f"127.0.0.1:{free_port}").server_info()


def test_repr_says_where_and_how_it_stands(free_port, connect):
    client = connect(f"127.0.0.1:{free_port}")
    expected = (
        f"Client(address='127.0.0.1:{free_port}', run='r', rank=0, world_size=1, on_failure='local', breaker='closed')"
    )
    assert repr(client) == expected
    client.clip_bounds(D)
    assert repr(client) == expected.replace("closed", "open")
