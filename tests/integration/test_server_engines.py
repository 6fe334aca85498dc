"""Engines on a real sidecar: canaries in, reports in, watchers, metrics, and the probe inside."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest
import torch

from satwatch import types, wire
from satwatch.errors import ConfigError
from satwatch.probe.settings import ProbeSettings
from satwatch.sat import pack
from satwatch.server.engines import EngineBoard
from satwatch.v1 import satwatch_pb2 as pb

CANARY = types.Canary(((1, 2, 3), (4, 5)))
KEY = "sk-planted-5a1f"


def serving(engine, **fields):
    return types.EngineStatus(engine, "serving", **{"version_served": 5, "version_lag": 0, "looks": 1, **fields})


def report(sidecar, statuses, probe="node-1", period=60.0, run=""):
    message = wire.encode_report(types.EnginesReport(probe, tuple(statuses), period, run))
    return wire.decode_facts(sidecar.wire.stub.ReportEngines(message, timeout=60).facts, 1000.0)


def report_canary(sidecar, version, run="r", incarnation="", canary=CANARY):
    logprobs = pack(torch.full((canary.scored,), -float(version), dtype=torch.float64))
    scores = wire.encode_canary_scores(types.CanaryScores(canary, version, logprobs))
    message = pb.ReportCanaryRequest(run=run, incarnation=incarnation, scores=scores)
    return sidecar.wire.stub.ReportCanary(message, timeout=60)


def publish(sidecar, version, run="r", incarnation=""):
    sidecar.wire.stub.PublishVersion(pb.PublishVersionRequest(run=run, incarnation=incarnation, version=version))


def watch(sidecar, run=""):
    return sidecar.wire.stub.WatchEngines(pb.WatchEnginesRequest(run=run))


def next_statuses(stream):
    return wire.decode_statuses(next(stream).engines)


def test_a_report_is_answered_with_what_the_trainer_told(sidecar):
    assert report(sidecar, []) == types.TrainerFacts()
    publish(sidecar, 4)
    publish(sidecar, 5)
    report_canary(sidecar, 4)
    report_canary(sidecar, 5)
    facts = report(sidecar, [serving("a")])
    assert (facts.run, facts.version_published, facts.canary) == ("r", 5, CANARY)
    assert [published.version for published in facts.published] == [4, 5]
    assert [scores.version for scores in facts.canaries] == [4, 5]
    assert 0 <= 1000.0 - facts.published[1].at <= 1000.0 - facts.published[0].at < 60
    assert report(sidecar, [serving("a")], run="later") == types.TrainerFacts("later")


@pytest.mark.parametrize(
    ("place", "code", "kind"),
    [
        ({"run": "x"}, grpc.StatusCode.NOT_FOUND, "UnknownRunError"),
        ({"incarnation": "old"}, grpc.StatusCode.NOT_FOUND, "UnknownRunError"),
    ],
)
def test_a_canary_of_another_run_or_life_is_refused(sidecar, place, code, kind):
    with pytest.raises(grpc.RpcError) as refused:
        report_canary(sidecar, 1, **place)
    assert refused.value.code() == code
    assert dict(refused.value.trailing_metadata())["satwatch-error"] == kind
    assert report(sidecar, []).canaries == ()


@pytest.mark.parametrize(
    ("method", "message", "said"),
    [
        ("ReportCanary", pb.ReportCanaryRequest(run="r"), "canary: got nothing, required token sequences"),
        ("ReportEngines", pb.ReportEnginesRequest(probe="p"), "period_seconds: got 0.0, required "),
        ("ReportEngines", pb.ReportEnginesRequest(period_seconds=1), "probe: got '', required "),
        (
            "ReportEngines",
            pb.ReportEnginesRequest(probe="p", period_seconds=1, engines=[pb.EngineStatus()]),
            "engines[0].engine: got '', required ",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(sidecar, method, message, said):
    with pytest.raises(grpc.RpcError) as refused:
        sidecar.wire.raw(method, message.SerializeToString())
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details().startswith(said)
    assert sidecar.metrics()[f'satwatch_requests_total{{kind="{method}"}}'] == 1
    assert sidecar.metrics()['satwatch_errors_total{kind="InvalidBatchError"}'] == 1


def test_garbage_to_watch_is_refused_and_leaves_nothing_behind(sidecar):
    stream = sidecar.wire.channel.unary_stream("/satwatch.v1.SatwatchService/WatchEngines")
    with pytest.raises(grpc.RpcError) as refused:
        next(stream(b"\xff\xff", timeout=60))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert sidecar.metrics()["satwatch_streams"] == 0


def test_engines_are_metrics_with_unknown_as_no_sample(sidecar):
    report(sidecar, [serving('a"b', requests_waiting=3), types.EngineStatus("gone", "unknown", "no route")])
    samples = sidecar.metrics()
    assert samples['satwatch_engine_up{engine="a\\"b"}'] == 1
    assert samples['satwatch_engine_requests_waiting{engine="a\\"b"}'] == 3
    assert samples['satwatch_engine_version_lag{engine="a\\"b"}'] == 0
    assert samples['satwatch_engine_up{engine="gone"}'] == 0
    assert samples['satwatch_engine_state{engine="gone",kind="unknown"}'] == 1
    assert 'satwatch_engine_version_lag{engine="gone"}' not in samples
    report(sidecar, [])
    assert not [name for name in sidecar.metrics() if 'engine="' in name]


def test_a_watcher_has_the_engines_at_once_and_again_after_a_change(sidecar):
    report(sidecar, [serving("a")])
    stream = watch(sidecar)
    first = next(stream)
    assert wire.decode_statuses(first.engines) == (serving("a"),)
    assert abs(first.at - time.time()) < 3600
    assert sidecar.metrics()["satwatch_streams"] == 1
    report(sidecar, [serving("a")])  # the same: nothing to say
    report(sidecar, [serving("a"), serving("b")])
    assert next_statuses(stream) == (serving("a"), serving("b"))
    report(sidecar, [])
    assert next_statuses(stream) == ()
    stream.cancel()
    while sidecar.metrics()["satwatch_streams"]:
        """The cancellation is on its way."""
    samples = sidecar.metrics()
    assert samples['satwatch_requests_total{kind="WatchEngines"}'] == 1
    assert samples['satwatch_errors_total{kind="InternalError"}'] == 0


def test_a_watcher_of_a_run_sees_its_engines(sidecar):
    sidecar.wire.open("other")
    publish(sidecar, 1)
    publish(sidecar, 1, run="other")
    report(sidecar, [serving("a")], probe="p", run="r")
    report(sidecar, [serving("b")], probe="q", run="other")
    report(sidecar, [serving("c")], probe="s")
    assert [status.engine for status in next_statuses(watch(sidecar, "r"))] == ["a", "c"]
    assert [status.engine for status in next_statuses(watch(sidecar))] == ["a", "b", "c"]


def test_a_probe_that_falls_silent_is_news_without_a_report(sidecar, monkeypatch):
    monkeypatch.setattr("satwatch.server.engines.SILENT_SECONDS", 0.0)
    report(sidecar, [serving("a")], period=0.4)
    stream = watch(sidecar)
    statuses = next_statuses(stream)
    while statuses[0].state != "unknown":
        statuses = next_statuses(stream)
    assert statuses[0].reason == "the probe 'node-1' has said nothing for 1.2 s"
    assert statuses[0].version_lag is None


def test_watchers_end_with_the_sidecar(serve):
    sidecar = serve(drain_seconds=3600.0)
    streams = [watch(sidecar) for _ in range(3)]
    for stream in streams:
        next(stream)
    sidecar.stop()
    for stream in streams:
        with pytest.raises(grpc.RpcError) as ended:
            next(stream)
        assert (ended.value.code(), ended.value.details()) == (
            grpc.StatusCode.UNAVAILABLE,
            "the sidecar is shutting down",
        )


def test_a_defect_while_watching_ends_that_stream_alone(sidecar, monkeypatch, caplog):
    other = watch(sidecar)
    next(other)

    def fail(*arguments):
        raise ZeroDivisionError("boom")

    with monkeypatch.context() as patch:
        patch.setattr(EngineBoard, "statuses", fail)
        with pytest.raises(grpc.RpcError) as ended:
            next(watch(sidecar))
    assert ended.value.code() == grpc.StatusCode.INTERNAL
    assert "boom" in caplog.text
    report(sidecar, [serving("a")])
    assert next_statuses(other) == (serving("a"),)


class Engine(BaseHTTPRequestHandler):
    """What a probe needs of an SGLang server that wants a key, and that shows it where it shouldn't."""

    def do_GET(self):
        if self.headers.get("Authorization") != f"Bearer {KEY}":
            self.say(401, {"error": "Unauthorized", "key": KEY})
        elif self.path == "/model_info":
            self.say(200, {"weight_version": "3", "model_path": "tiny", "api_key": KEY, "is_generation": True})
        else:
            self.say(404, {"detail": f"Not Found, {self.headers['Authorization']}"})

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        self.rfile.read(length)
        self.say(500, {"error": {"message": f"failed for {self.headers.get('Authorization')}"}})

    def say(self, status, answer):
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        """Say nothing."""


@pytest.fixture
def engine():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def until(stream, condition):
    while not condition(statuses := next_statuses(stream)):
        """A round of the probe later."""
    return statuses


def test_the_probe_inside_compares_engines_with_what_the_trainer_published(serve, engine, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    (tmp_path / "key").write_text(f"{KEY}\n")
    probe = ProbeSettings(engines=(engine,), period_seconds=0.1, api_key_file=tmp_path / "key")
    sidecar = serve(probe=probe)
    sidecar.wire.open()
    stream = watch(sidecar)
    (status,) = until(stream, lambda found: found and found[0].version_served == 3)
    assert (status.engine, status.kind, status.version_lag) == (engine, "sglang", None)
    publish(sidecar, 3)
    publish(sidecar, 5)
    (status,) = until(stream, lambda found: found[0].version_lag == 2)
    assert (status.state, status.version_published) == ("lagging", 5)
    assert sidecar.metrics()[f'satwatch_engine_version_lag{{engine="{engine}"}}'] == 2
    said = "\n".join([*sidecar.metrics(), str(status), str(next(watch(sidecar))), sidecar.server.announcement])
    sidecar.stop()
    assert KEY not in said
    assert KEY not in caplog.text
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("satwatch-probe")]


def test_an_engine_behind_another_key_is_unknown_and_shows_no_key(serve, engine, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    (tmp_path / "key").write_text("sk-wrong-77")
    sidecar = serve(probe=ProbeSettings(engines=(engine,), period_seconds=0.1, api_key_file=tmp_path / "key"))
    (status,) = until(watch(sidecar), lambda found: found and found[0].failed_looks)
    assert (status.state, status.version_served, status.version_lag) == ("unknown", None, None)
    assert "key" in status.reason
    said = "\n".join([*sidecar.metrics(), str(status), caplog.text])
    assert "sk-wrong-77" not in said
    assert KEY not in said


def test_an_engine_that_is_gone_is_up_0_and_has_no_lag(serve):
    sidecar = serve(probe=ProbeSettings(engines=("127.0.0.1:9",), period_seconds=0.1))
    until(watch(sidecar), lambda found: found and found[0].failed_looks)
    samples = sidecar.metrics()
    assert samples['satwatch_engine_up{engine="127.0.0.1:9"}'] == 0
    assert 'satwatch_engine_version_lag{engine="127.0.0.1:9"}' not in samples


def test_a_key_file_that_is_not_there_fails_the_start(serve, tmp_path):
    before = set(threading.enumerate())
    with pytest.raises(ConfigError, match="api_key_file"):
        serve(probe=ProbeSettings(engines=("127.0.0.1:9",), api_key_file=tmp_path / "absent"))
    left = {thread for thread in threading.enumerate() if thread.name.startswith("satwatch")} - before
    assert not left


def test_trainers_are_answered_while_the_probe_waits_for_a_dead_engine(serve):
    """An engine that takes connections and never answers."""
    listener = ThreadingHTTPServer(("127.0.0.1", 0), Engine)  # never served: the kernel takes the connection
    try:
        probe = ProbeSettings(engines=(f"127.0.0.1:{listener.server_port}",), period_seconds=0.1, timeout_seconds=600)
        sidecar = serve(probe=probe)
        sidecar.wire.open()
        assert sidecar.wire.bounds(sidecar.wire.request()).tokens == 3
        sidecar.stop()
    finally:
        listener.server_close()


WITHOUT_HTTPX = """
import sys
sys.modules["httpx"] = None
from satwatch.server import Settings, load_settings, running
with running(Settings(listen=("127.0.0.1:0",), metrics_port=-1)) as server:
    print(server.announcement)
load_settings(sys.argv[1])
"""


def test_a_sidecar_without_the_extra_probe_serves_and_says_what_its_table_needs(tmp_path):
    path = tmp_path / "satwatch.toml"
    path.write_text('[probe]\nengines = ["127.0.0.1:9"]\n')
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_HTTPX, str(path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert "grpc=127.0.0.1:" in ended.stdout
    assert "probe: got a table, required the extra probe: pip install 'satwatch[probe]'" in ended.stderr
