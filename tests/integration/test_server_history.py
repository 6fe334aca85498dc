"""The history of a real sidecar: what went in is what is answered, over restarts, faults and kills."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import replace

import grpc
import numpy as np
import pytest
import torch

import satwatch
from satwatch import types, wire
from satwatch.client import HistoryClient
from satwatch.errors import ConfigError
from satwatch.history import EventSeen, Recorder, Store, open_store
from satwatch.server.history_answers import MAX_WAITING, THREADS
from satwatch.server.history_server import READ_ONLY, serving_history
from satwatch.server.judging import NOT_HELD
from satwatch.types import Total, VersionRun
from satwatch.v1 import satwatch_pb2 as pb
from satwatch.v1 import satwatch_pb2_grpc as rpc
from tests.integration.conftest import Wire
from tests.integration.history.server import POSTGRES, PostgresServer

PATIENCE = 30.0


def ask(stub, method, **query):
    """Ask one query, and return the answer's one list."""
    request = getattr(pb, f"{method}Request")(**query)
    answer = getattr(stub, method)(request, timeout=60)
    return list(answer.ListFields()[0][1]) if answer.ListFields() else []


def until(look, wanted):
    """Look until it is what is wanted; what is answered is what is stored, half a second after it came."""
    ends = time.monotonic() + PATIENCE
    while not wanted(seen := look()):
        assert time.monotonic() < ends, seen
        time.sleep(0.02)
    return seen


def closed_steps(stub, count, run="r", **query):
    def look():
        try:
            return ask(stub, "QuerySteps", run=run, **query)
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.NOT_FOUND, error.details()
            return []

    return until(look, lambda points: sum(point.is_closed for point in points) >= count)


def report(sidecar, step, rank=0, run="r", incarnation="", measures=None, ended=False):
    said = types.StepReport(run, step, incarnation, rank, measures or {}, ended)
    return sidecar.wire.stub.ReportStep(wire.encode_step_report(said), timeout=60)


def refusal(call):
    with pytest.raises(grpc.RpcError) as refused:
        call()
    return refused.value.code(), refused.value.details()


def exact(tokens, alpha):
    """The smallest value with at least a share alpha of the tokens at or below it."""
    ordered = np.sort(np.abs(np.concatenate(tokens)))
    return ordered[int(np.ceil(alpha * len(ordered))) - 1]


def test_a_step_is_all_tokens_of_all_its_microbatches(serve):
    sidecar = serve()
    sidecar.wire.open(incarnation="a", world_size=2)
    draw = np.random.default_rng(7)
    # One rank has the tail: a mean of the ranks' quantiles would hide it.
    sent = {(rank, micro): draw.normal(0, 0.3 if rank else 0.01, 400) for rank in (0, 1) for micro in range(3)}
    for (rank, microbatch), tokens in sent.items():
        place = {"rank": rank, "step": 5, "microbatch": microbatch, "incarnation": "a", "policy_version": 9}
        versions = {"behavior_versions": (VersionRun(300, 8), VersionRun(100, 6))}
        sidecar.wire.bounds(sidecar.wire.request(tokens, batch=versions, **place))
    for rank in (0, 1):
        report(sidecar, 5, rank, incarnation="a", measures={"reward": Total(3.0 + rank, 10)}, ended=True)

    (point,) = closed_steps(sidecar.wire.stub, 1)
    everything = np.concatenate(list(sent.values()))
    assert (point.first_step, point.last_step, point.steps, point.ranks, point.batches) == (5, 5, 1, 2, 6)
    assert point.policy_version == 9
    assert (point.values["tokens"], sum(point.heat)) == (2400, 2400)
    assert point.values["log_ratio_abs_mean"] == pytest.approx(np.abs(everything).mean(), rel=1e-12)
    assert point.values["log_ratio_mean"] == pytest.approx(everything.mean(), rel=1e-9)
    for alpha in (0.5, 0.9, 0.99, 0.999):
        assert point.values[f"log_ratio_abs_q{alpha}"] == pytest.approx(exact(list(sent.values()), alpha), rel=2**-7)
    ratios = np.exp(everything)
    assert point.values["ess_ratio"] == pytest.approx(ratios.sum() ** 2 / (ratios**2).sum() / 2400, rel=1e-9)
    assert (dict(point.lags), dict(point.versions)) == ({1: 1800, 3: 600}, {8: 1800, 6: 600})
    assert point.values["reward_mean"] == pytest.approx(7.0 / 20)

    batches = ask(sidecar.wire.stub, "QueryBatches", run="r", step=5)
    assert [(batch.rank, batch.microbatch) for batch in batches] == sorted(sent)
    for batch in batches:
        tokens = sent[batch.rank, batch.microbatch]
        assert batch.values["log_ratio_abs_q0.99"] == exact([tokens], 0.99)
        worst = np.argsort(-np.abs(tokens))[: len(batch.worst)]
        assert [token.log_ratio for token in batch.worst] == tokens[worst].tolist()
        assert [token.position for token in batch.worst] == worst.tolist()
        assert {token.version for token in batch.worst} == {8 if place < 300 else 6 for place in worst}


def test_runs_versions_and_what_is_open(serve):
    sidecar = serve()
    sidecar.wire.open(world_size=2, rule=types.Rule(quantile=0.8))
    sidecar.wire.open("other")
    stub = sidecar.wire.stub
    stub.PublishVersion(pb.PublishVersionRequest(run="r", version=3, age_seconds=2.0))
    sidecar.wire.bounds(sidecar.wire.request(step=0))
    sidecar.wire.bounds(sidecar.wire.request(step=1))
    sidecar.wire.bounds(sidecar.wire.request(step=1, rank=1))
    for _ in range(2):
        stub.PublishVersion(pb.PublishVersionRequest(run="r", version=4))

    (closed, still_open) = until(
        lambda: ask(stub, "QuerySteps", run="r") if ask(stub, "QueryRuns") else [],
        lambda points: [point.batches for point in points] == [1, 2],
    )
    assert (closed.is_closed, still_open.is_closed) == (True, False)
    runs = {run.run: run for run in ask(stub, "QueryRuns")}
    assert {name: run.is_open for name, run in runs.items()} == {"r": True, "other": True}
    run = runs["r"]
    assert (run.world_size, run.rule.quantile, run.batches, run.tokens, run.version_published) == (2, 0.8, 3, 9, 4)
    assert (run.first_step, run.last_step, run.stored_step) == (0, 1, 0)
    versions = ask(stub, "QueryVersions", run="r")
    assert [(version.version, version.HasField("step"), version.step) for version in versions] == [
        (3, False, 0),
        (4, True, 1),
    ]


def test_steps_that_start_over_are_another_life(serve):
    sidecar = serve()
    for steps in ((5, 6), (0, 1)):
        sidecar.wire.open()
        for step in steps:
            sidecar.wire.bounds(sidecar.wire.request(step=step))
    stub = sidecar.wire.stub
    until(lambda: ask(stub, "QueryRuns"), lambda runs: len(runs) == 2 and {run.last_step for run in runs} == {6, 1})
    new, old = ask(stub, "QueryRuns")
    assert [(run.is_open, run.first_step, run.last_step) for run in (new, old)] == [(True, 0, 1), (False, 5, 6)]
    assert [point.first_step for point in closed_steps(stub, 1)] == [0, 1]
    assert [point.is_closed for point in closed_steps(stub, 2, life=old.life)] == [True, True]


def test_steps_close_in_time_when_a_rank_is_gone(serve):
    sidecar = serve(history={"step_timeout_seconds": 1.0})
    sidecar.wire.open(world_size=2)
    sidecar.wire.bounds(sidecar.wire.request(step=0))
    (point,) = closed_steps(sidecar.wire.stub, 1)
    assert (point.ranks, point.batches) == (1, 1)
    sidecar.wire.bounds(sidecar.wire.request(step=0, rank=1))
    (point,) = until(lambda: ask(sidecar.wire.stub, "QuerySteps", run="r"), lambda points: points[0].batches == 2)
    assert (point.ranks, point.is_closed) == (2, True)
    assert sidecar.metrics()['satwatch_steps_closed_total{run="r"}'] == 1


def test_alerts_of_steps_and_engines_are_kept(serve):
    sidecar = serve()
    sidecar.wire.open()
    stub = sidecar.wire.stub
    engine = types.EngineStatus("e1", "wrong_weights", "its canary is of version 3", version_served=5, looks=4)
    told = types.EnginesReport("p", (engine,), 60.0, "r")
    stub.ReportEngines(wire.encode_report(told), timeout=60)
    sidecar.wire.bounds(sidecar.wire.request([float("nan"), 0.1], step=0))
    report(sidecar, 0, ended=True)
    names = {"NanTokens", "EngineWrongWeights"}
    events = until(
        lambda: ask(stub, "QueryEvents"),
        lambda events: names <= {event.alert for event in events},
    )
    by_name = {event.alert: event for event in events}
    assert (by_name["NanTokens"].run, by_name["NanTokens"].step) == ("r", 0)
    assert (by_name["EngineWrongWeights"].run, by_name["EngineWrongWeights"].engine) == ("r", "e1")
    (record,) = until(lambda: ask(stub, "QueryEngines", run="r"), bool)
    assert (record.run, wire.decode_status(record.status)) == ("r", engine)
    assert names <= {event.alert for event in ask(stub, "QueryEvents", run="r", only_active=True)}


def test_what_is_asked_for_and_is_not_there(serve):
    sidecar = serve()
    stub = sidecar.wire.stub
    assert ask(stub, "QueryRuns") == []
    code, text = refusal(lambda: ask(stub, "QuerySteps", run="absent"))
    assert (code, "'absent'" in text) == (grpc.StatusCode.NOT_FOUND, True)
    code, text = refusal(lambda: ask(stub, "QuerySteps", run="r", max_points=6000))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    code, text = refusal(lambda: report(sidecar, 0, run="absent"))
    assert code is grpc.StatusCode.NOT_FOUND
    sidecar.wire.open()
    code, text = refusal(lambda: report(sidecar, 0, rank=1))
    assert (code, text) == (grpc.StatusCode.INVALID_ARGUMENT, "rank: got 1, required 0 to 0 (world_size 1)")


def test_a_history_that_is_off(serve):
    sidecar = serve(store="none")
    assert sidecar.server.announcement.endswith(" history=off")
    sidecar.wire.open()
    for step in range(3):
        sidecar.wire.bounds(sidecar.wire.request(step=step))
    report(sidecar, 2, ended=True)
    code, text = refusal(lambda: ask(sidecar.wire.stub, "QueryRuns"))
    assert (code, text) == (grpc.StatusCode.UNAVAILABLE, "the history is off: start the sidecar with --store")
    metrics = until(sidecar.metrics, lambda metrics: metrics['satwatch_steps_closed_total{run="r"}'] == 3)
    assert not [name for name in metrics if name.startswith("satwatch_history")]


def test_where_it_is(serve, tmp_path):
    sidecar = serve(store=str(tmp_path / "h.sqlite"))
    assert sidecar.server.announcement.endswith(f" history={tmp_path}/h.sqlite")
    with pytest.raises(ConfigError, match="another sidecar"):
        serve(store=f"sqlite:///{tmp_path}/h.sqlite")
    sidecar.stop()
    assert serve(store=f"sqlite:///{tmp_path}/h.sqlite").server.history == f"sqlite:///{tmp_path}/h.sqlite"


@pytest.mark.parametrize("store", ["{folder}", "{folder}/absent/h.sqlite", "{folder}/text"])
def test_a_store_that_can_not_be_opened(serve, tmp_path, store):
    (tmp_path / "text").write_text("no database\n" * 100)
    with pytest.raises(ConfigError, match="store: got "):
        serve(store=store.format(folder=tmp_path))


def test_a_server_that_can_not_be_reached_ends_the_start(spawn):
    store = "postgresql://ada:secret@127.0.0.1:1/satwatch"
    process = spawn(f'listen = ["127.0.0.1:0"]\nmetrics_port = -1\nstore = "{store}"\n')
    assert process.popen.wait(60) == 2
    said = process.popen.stderr.read()
    assert said.startswith("satwatch: store: got postgresql://ada:***@127.0.0.1:1/satwatch")
    assert "secret" not in said


def test_a_clean_stop_keeps_the_step_that_was_open(serve, tmp_path):
    path = str(tmp_path / "h.sqlite")
    sidecar = serve(store=path)
    sidecar.wire.open(incarnation="a")
    sidecar.wire.bounds(sidecar.wire.request(step=4, incarnation="a"))
    sidecar.stop()
    store = open_store(path, read_only=True)
    (point,) = store.steps("r")
    assert (point.first_step, point.batches, point.is_closed) == (4, 1, False)
    store.close()


def trained(address, incarnations, steps, microbatch):
    """Send one batch of each step for each run, and return what the sidecar answers once the last one is stored."""
    with grpc.insecure_channel(address) as channel:
        stub = rpc.SatwatchServiceStub(channel)
        for run, incarnation in incarnations.items():
            stub.OpenRun(wire.encode_opening(types.RunOpening(run, incarnation)), timeout=60)
            for step in steps:
                place = {"incarnation": incarnation, "step": step, "microbatch": microbatch}
                stub.ComputeBounds(Wire.request([0.1, 0.2 + step], run, **place), timeout=60)
        runs = until(
            lambda: ask(stub, "QueryRuns"),
            lambda runs: [run.last_step for run in runs if run.is_open] == [steps[-1]] * len(incarnations),
        )
        points = {run: ask(stub, "QuerySteps", run=run) for run in incarnations}
    return sorted((run.run, run.life, run.is_open) for run in runs), points


def test_a_killed_sidecar_goes_on_where_it_was(spawn, tmp_path):
    toml = f'listen = ["127.0.0.1:0"]\nmetrics_port = -1\nstore = "{tmp_path}/h.sqlite"\n'
    incarnations = {"named": "a", "unnamed": ""}
    first = spawn(toml)
    lives, _ = trained(first.named("grpc"), incarnations, [0, 1, 2], microbatch=0)
    assert lives == [("named", 1, True), ("unnamed", 2, True)]
    first.popen.send_signal(signal.SIGKILL)
    first.popen.wait()
    lives, points = trained(spawn(toml).named("grpc"), incarnations, [2, 3], microbatch=1)
    assert lives == [("named", 1, True), ("unnamed", 2, False), ("unnamed", 3, True)]
    # Step 2 came in two parts, one to each process.
    assert [(point.first_step, point.batches, point.is_closed) for point in points["named"]] == [
        (0, 1, True),
        (1, 1, True),
        (2, 2, True),
        (3, 1, False),
    ]
    assert points["named"][2].values["tokens"] == 4
    assert [(point.first_step, point.batches) for point in points["unnamed"]] == [(2, 1), (3, 1)]


def test_alerts_that_a_killed_sidecar_left_are_resolved(serve, spawn, tmp_path):
    path = f"{tmp_path}/h.sqlite"
    process = spawn(f'listen = ["127.0.0.1:0"]\nmetrics_port = -1\nstore = "{path}"\n')
    with grpc.insecure_channel(process.named("grpc")) as channel:
        stub = rpc.SatwatchServiceStub(channel)
        stub.OpenRun(wire.encode_opening(types.RunOpening("r")), timeout=60)
        for step in (0, 1):
            stub.ComputeBounds(Wire.request([float("nan"), 0.2], step=step), timeout=60)
        until(lambda: ask(stub, "QueryEvents", only_active=True), bool)
    process.popen.kill()
    process.popen.wait()
    stub = serve(store=path).wire.stub
    until(lambda: ask(stub, "QueryEvents", only_active=True), lambda active: not active)
    last = ask(stub, "QueryEvents")[-1]
    assert (last.alert, last.resolved, last.evidence) == ("NanTokens", True, "the sidecar has started again")


NAN, GOOD = (float("nan"), 0.2), (0.1, 0.2)


def train(process, steps):
    """Open run r in incarnation a and send one batch of each step, and return a channel's stub."""
    stub = rpc.SatwatchServiceStub(grpc.insecure_channel(process.named("grpc")))
    stub.OpenRun(wire.encode_opening(types.RunOpening("r", "a")), timeout=60)
    for step, tokens in steps:
        stub.ComputeBounds(Wire.request(tokens, incarnation="a", step=step), timeout=60)
    return stub


def test_an_alert_that_still_holds_outlives_a_killed_sidecar(spawn, tmp_path):
    toml = f'listen = ["127.0.0.1:0"]\nmetrics_port = -1\nstore = "{tmp_path}/h.sqlite"\n'

    def nan_events(stub, **query):
        return [event for event in ask(stub, "QueryEvents", **query) if event.alert == "NanTokens"]

    def end(process):
        process.popen.kill()
        process.popen.wait()

    first = spawn(toml)
    stub = train(first, [(0, GOOD), (1, NAN), (2, NAN)])
    (raised,) = until(lambda: nan_events(stub, only_active=True), bool)
    end(first)
    # It goes on: neither resolved nor raised again.
    second = spawn(toml)
    stub = train(second, [(2, GOOD), (3, NAN), (4, NAN), (5, GOOD)])
    until(lambda: ask(stub, "QuerySteps", run="r"), lambda points: points[-1].first_step == 5)
    assert nan_events(stub) == [raised]
    end(second)
    # And ends after three good steps, the first of which came to the sidecar before and was still open.
    stub = train(spawn(toml), [(step, GOOD) for step in range(6, 10)])
    until(lambda: nan_events(stub, only_active=True), lambda active: not active)
    _, resolved = nan_events(stub)
    assert (raised.step, resolved.step, resolved.resolved) == (1, 5, True)
    assert "NaN log-ratio at step 7" in resolved.evidence


def test_an_alert_that_no_stored_step_shows_is_resolved(spawn, tmp_path):
    """Only a kill in a bad moment leaves one: it is put there by hand."""
    path = tmp_path / "h.sqlite"
    toml = f'listen = ["127.0.0.1:0"]\nmetrics_port = -1\nstore = "{path}"\n'
    first = spawn(toml)
    closed_steps(train(first, [(step, GOOD) for step in range(5)]), 4)
    first.popen.kill()
    first.popen.wait()
    store = open_store(str(path))
    recorder = Recorder(store)
    raised = types.Event("EssLow", "warning", "raised", 9.0, "it was seen", run="r", life=1)
    recorder.put(EventSeen(None, raised))
    assert recorder.close(60)
    store.close()
    stub = train(spawn(toml), [])
    until(lambda: ask(stub, "QueryEvents", only_active=True), lambda active: not active)
    last = ask(stub, "QueryEvents", run="r", life=1)[-1]
    assert (last.alert, last.evidence) == ("EssLow", NOT_HELD)


def test_a_store_that_fails_delays_and_costs_no_answer(serve, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    sidecar = serve(store=str(tmp_path / "h.sqlite"))
    sidecar.wire.open()
    monkeypatch.setattr("satwatch.history.recorder.Writer.write", full)
    for step in range(50):
        answer = sidecar.wire.bounds(sidecar.wire.request([0.1 * step, 0.2], step=step))
        assert answer.tokens == 2
    metrics = until(sidecar.metrics, lambda metrics: metrics["satwatch_history_up"] == 0)
    assert metrics["satwatch_history_failures_total"] >= 1
    assert metrics['satwatch_steps_closed_total{run="r"}'] == 49
    assert metrics['satwatch_errors_total{kind="InternalError"}'] == 0
    monkeypatch.undo()
    closed = [point for point in closed_steps(sidecar.wire.stub, 49) if point.is_closed]
    assert [(point.first_step, point.batches) for point in closed] == [(step, 1) for step in range(49)]
    assert until(sidecar.metrics, lambda metrics: metrics["satwatch_history_up"] == 1)


def test_a_recorder_with_a_defect_costs_no_answer(serve, monkeypatch):
    def broken(self, record):
        raise ZeroDivisionError

    monkeypatch.setattr(Recorder, "put", broken)
    sidecar = serve()
    sidecar.wire.open()
    for step in range(5):
        assert sidecar.wire.bounds(sidecar.wire.request(step=step)).tokens == 3
    metrics = until(sidecar.metrics, lambda metrics: metrics['satwatch_errors_total{kind="InternalError"}'] >= 5)
    assert metrics['satwatch_batches_total{run="r"}'] == 5
    assert metrics['satwatch_log_ratio_abs_mean{run="r"}'] == pytest.approx(0.2)


def test_a_stored_history_is_served_without_a_sidecar(serve, tmp_path):
    path = str(tmp_path / "h.sqlite")
    sidecar = serve(store=path)
    sidecar.wire.open(incarnation="a")
    for step in range(3):
        sidecar.wire.bounds(sidecar.wire.request(step=step, incarnation="a"))
    sidecar.stop()
    store = open_store(path, read_only=True)
    with serving_history(store) as address, grpc.insecure_channel(address) as channel:
        stub = rpc.SatwatchServiceStub(channel)
        (run,) = ask(stub, "QueryRuns")
        assert (run.run, run.incarnation, run.last_step, run.is_open) == ("r", "a", 2, False)
        assert [point.first_step for point in ask(stub, "QuerySteps", run="r")] == [0, 1, 2]
        assert len(ask(stub, "QueryBatches", run="r", step=1)) == 1
        info = stub.GetServerInfo(pb.GetServerInfoRequest())
        assert (info.server.metrics_url, len(info.runs)) == ("", 0)
        code, _ = refusal(lambda: ask(stub, "QuerySteps", run="absent"))
        assert code is grpc.StatusCode.NOT_FOUND
        opening = wire.encode_opening(types.RunOpening("r"))
        assert refusal(lambda: stub.OpenRun(opening, timeout=60)) == (grpc.StatusCode.UNAVAILABLE, READ_ONLY)
    store.close()


def test_a_sidecar_finds_its_history_again_by_its_address(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = []
    for _ in range(2):
        sidecar = serve(listen=(f"unix:{tmp_path}/s",))
        sidecar.wire.open(incarnation="a")
        found.append(sidecar.server.history)
        sidecar.stop()
    assert found[0] == found[1]
    assert found[0].startswith(f"{tmp_path}/satwatch/")
    store = open_store(found[0], read_only=True)
    assert [run.life for run in store.runs()] == [1]
    store.close()


def test_queries_that_take_for_ever_hold_up_no_batch(serve, monkeypatch):
    sidecar = serve()
    sidecar.wire.open()
    stub, gate = sidecar.wire.stub, threading.Event()
    stamped = Store.stamped

    def held(store, query):
        gate.wait()
        return stamped(store, query)

    monkeypatch.setattr(Store, "stamped", held)
    try:
        asked = [stub.QueryRuns.future(pb.QueryRunsRequest(), timeout=60) for _ in range(THREADS + MAX_WAITING)]
        # One more is refused once all of these have come.
        until(lambda: not_answered(stub), lambda code: code is grpc.StatusCode.RESOURCE_EXHAUSTED)
        for step in range(5):
            assert sidecar.wire.bounds(sidecar.wire.request(step=step)).tokens == 3
    finally:
        gate.set()
    codes = {answer.code() for answer in asked}
    assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert grpc.StatusCode.OK in codes


def not_answered(stub):
    """Ask, wait a moment, and return why there is no answer."""
    with pytest.raises(grpc.RpcError) as refused:
        stub.QueryRuns(pb.QueryRunsRequest(), timeout=0.2)
    return refused.value.code()


def test_what_the_client_says_is_what_the_dashboard_sees(serve, tmp_path):
    sidecar = serve(store=str(tmp_path / "h.sqlite"))
    draw = torch.Generator().manual_seed(3)
    client = satwatch.connect(sidecar.address, run="r", incarnation="a", timeout=30.0)
    for step in range(4):
        client.clip_bounds(torch.randn(64, generator=draw) * 0.1, step=step, policy_version=step, behavior_version=0)
        client.report(step, reward=[1.0, 0.0, float(step)], loss=0.5 * step, response_lengths=[10, 20])
        client.end_step(step)
        client.publish_version(step + 1)
    stub = sidecar.wire.stub
    until(
        lambda: (closed_steps(stub, 4, max_points=500), ask(stub, "QueryVersions", run="r")),
        lambda seen: len(seen[1]) == 4 and all("reward_mean" in point.values for point in seen[0]),
    )
    client.close()
    store = open_store(str(tmp_path / "h.sqlite"), read_only=True)
    with HistoryClient(sidecar.address, timeout=30.0) as history:
        assert isinstance(history, types.History)
        assert [run.is_open for run in history.runs()] == [True]
        assert [replace(run, is_open=False) for run in history.runs()] == list(store.runs())
        points = history.steps("r")
        assert list(points) == list(store.steps("r"))
        assert list(history.steps("r", max_points=2)) == list(store.steps("r", max_points=2))
        assert list(history.batches("r", 2)) == list(store.batches("r", 2))
        assert list(history.versions("r")) == list(store.versions("r"))
        assert list(history.events("r")) == list(store.events("r"))
    store.close()
    assert [point.values["reward_mean"] for point in points] == pytest.approx([1 / 3, 2 / 3, 1.0, 4 / 3])
    assert [point.values["loss_mean"] for point in points] == [0.0, 0.5, 1.0, 1.5]
    assert [point.values["version_lag_mean"] for point in points] == [0, 1, 2, 3]
    assert {point.values["response_length_mean"] for point in points} == {15.0}


@pytest.mark.real(POSTGRES, "Debian's package postgresql")
def test_a_server_that_restarts_under_load(serve):
    server = PostgresServer()
    try:
        server.start()
        sidecar = serve(store=server.new_database())
        assert "s3cret" not in sidecar.server.announcement
        sidecar.wire.open()
        sidecar.wire.bounds(sidecar.wire.request(step=0))
        closed_steps(sidecar.wire.stub, 0)
        server.stop()
        for step in range(1, 30):
            assert sidecar.wire.bounds(sidecar.wire.request(step=step)).tokens == 3
        until(sidecar.metrics, lambda metrics: metrics["satwatch_history_up"] == 0)
        code, text = refusal(lambda: ask(sidecar.wire.stub, "QueryRuns"))
        assert (code, "s3cret" in text) == (grpc.StatusCode.UNAVAILABLE, False)
        server.start()
        closed_steps(sidecar.wire.stub, 29)
        metrics = until(sidecar.metrics, lambda metrics: metrics["satwatch_history_up"] == 1)
        dropped = {name: n for name, n in metrics.items() if name.startswith("satwatch_history_dropped_records")}
        assert len(dropped) == 6
        assert set(dropped.values()) == {0}
    finally:
        server.remove()
