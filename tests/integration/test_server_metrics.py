"""What a scrape says after real requests: each batch once, merged as sums, and at once after its reply."""

from __future__ import annotations

import contextlib
import http.client
import socket
import sys
import threading

import grpc
import pytest
import torch

from satwatch import types, wire
from satwatch.sat import clip_bounds, diagnostics, pack
from satwatch.server import scrape
from satwatch.server.stats import RunStats
from satwatch.v1 import satwatch_pb2 as pb

# Where a diagnostic's name becomes a label.
LABELLED = {
    "clip_radius_low_mean": 'satwatch_clip_radius_mean{run="r",side="low"}',
    "clip_radius_high_mean": 'satwatch_clip_radius_mean{run="r",side="high"}',
    "log_ratio_abs_q0.5": 'satwatch_log_ratio_abs{q="0.5",run="r"}',
    "log_ratio_abs_q0.9": 'satwatch_log_ratio_abs{q="0.9",run="r"}',
    "log_ratio_abs_q0.99": 'satwatch_log_ratio_abs{q="0.99",run="r"}',
    "log_ratio_abs_q0.999": 'satwatch_log_ratio_abs{q="0.999",run="r"}',
    "tokens": 'satwatch_tokens_total{run="r"}',
    "nan_tokens": 'satwatch_nan_tokens_total{run="r"}',
    "inf_tokens": 'satwatch_inf_tokens_total{run="r"}',
    "extreme_tokens": 'satwatch_extreme_tokens_total{run="r"}',
}


def sample(name):
    return LABELLED.get(name, f'satwatch_{name}{{run="r"}}')


def draw(n, seed=0, scale=0.05):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=generator, dtype=torch.float64) * scale


def test_one_batch_shows_the_local_diagnostics_in_reply_and_scrape(sidecar):
    d, advantage = draw(2000), draw(2000, seed=1)
    d[3], d[5], d[7] = float("nan"), float("inf"), -25.0
    message = sidecar.wire.request(d, batch={"advantage": pack(advantage)}, with_diagnostics=True)
    reply = wire.decode_reply(sidecar.wire.bounds(message))
    samples = sidecar.metrics()
    expected = diagnostics(d, advantage=advantage)
    assert reply.diagnostics == expected
    assert {name: samples[sample(name)] for name in expected} == pytest.approx(expected, rel=1e-12)
    assert "satwatch_clip_fraction_ppo" in {name.partition("{")[0] for name in samples}


def test_diagnostics_come_only_when_asked_for(sidecar):
    reply = wire.decode_reply(sidecar.wire.bounds(sidecar.wire.request(draw(50))))
    assert reply.diagnostics is None


def test_a_retry_changes_no_counter_and_no_gauge(sidecar):
    d = draw(100)
    d[0], d[1] = float("nan"), 30.0
    message = sidecar.wire.request(d, step=1, microbatch=0)
    sidecar.wire.bounds(message)
    before = sidecar.metrics()
    sidecar.wire.bounds(message)
    after = sidecar.metrics()
    kept = {name for name in before if 'run="r"' in name and "duplicate" not in name}
    assert {name: before[name] for name in kept} == {name: after[name] for name in kept}
    assert after['satwatch_nan_tokens_total{run="r"}'] == 1


def test_a_scrape_right_after_a_reply_includes_the_batch(sidecar):
    for step in range(30):
        d = draw(5000, seed=step)
        sidecar.wire.bounds(sidecar.wire.request(d, step=step, microbatch=0, rule_only=True))
        samples = sidecar.metrics()
        assert samples['satwatch_batches_total{run="r"}'] == step + 1
        assert samples['satwatch_log_ratio_abs_mean{run="r"}'] == pytest.approx(float(d.abs().mean()), rel=1e-12)


def test_ranks_and_microbatches_of_a_step_show_as_one_batch_of_all_their_tokens(serve):
    sidecar = serve()
    sidecar.wire.open(world_size=2)
    parts = [draw(n, seed=n, scale=0.01 * n) for n in (3, 50, 700, 11)]
    for index, part in enumerate(parts):
        place = {"rank": index % 2, "step": 4, "microbatch": index // 2}
        sidecar.wire.bounds(sidecar.wire.request(part, **place))
    samples, whole = sidecar.metrics(), diagnostics(torch.cat(parts))
    for name in ("log_ratio_mean", "log_ratio_abs_mean", "kl_k2", "kl_k3", "chi2", "ess_ratio", "ratio_max"):
        assert samples[sample(name)] == pytest.approx(whole[name], rel=1e-12)
    for name in ("log_ratio_abs_q0.5", "log_ratio_abs_q0.999"):
        assert samples[sample(name)] == pytest.approx(whole[name], rel=2**-7)
    gated = sum(int(clip_bounds(part).gate.sum()) for part in parts)
    assert samples['satwatch_gate_rate{run="r"}'] == gated / 764
    assert samples['satwatch_quantile_reference{run="r"}'] == float(clip_bounds(parts[-1]).quantile_reference)


def test_a_retry_is_answered_again_and_counted_once(sidecar):
    message = sidecar.wire.request(draw(100), step=1, microbatch=0)
    assert sidecar.wire.bounds(message) == sidecar.wire.bounds(message)
    samples = sidecar.metrics()
    assert samples['satwatch_batches_total{run="r"}'] == 1
    assert samples['satwatch_duplicate_batches_total{run="r"}'] == 1
    assert samples['satwatch_tokens_total{run="r"}'] == 100
    assert samples['satwatch_requests_total{kind="ComputeBounds"}'] == 2


def test_what_is_unknown_has_no_sample(sidecar):
    sidecar.wire.bounds(sidecar.wire.request([]))
    names = {name.partition("{")[0] for name in sidecar.metrics()}
    for name in (
        "quantile_reference",
        "log_ratio_mean",
        "ess_ratio",
        "version_lag_mean",
        "clip_fraction",
        "tail_index",
    ):
        assert f"satwatch_{name}" not in names
    for name in ("policy_version", "published_version", "router_flip_rate", "router_layer_flip_rate"):
        assert f"satwatch_{name}" not in names
    assert "satwatch_batches_total" in names


def test_lag_routing_and_fallbacks(sidecar):
    batch = {
        "sequence_lengths": (2, 2),
        "behavior_versions": (types.VersionRun(2, 7), types.VersionRun(1, None), types.VersionRun(1, 11)),
    }
    routing = types.Routing((types.LayerRouting(0, 4, 1, 2, 2), types.LayerRouting(9, 4, 0, 0, 2)), 4, 1)
    message = sidecar.wire.request(
        [0.1] * 4, batch=batch, policy_version=10, routing=routing, client_fallbacks=5, step=1, microbatch=0
    )
    sidecar.wire.bounds(message)
    samples = sidecar.metrics()
    assert samples['satwatch_version_lag_mean{run="r"}'] == 3
    assert samples['satwatch_version_lag_max{run="r"}'] == 3
    assert samples['satwatch_version_coverage_ratio{run="r"}'] == 0.75
    assert samples['satwatch_negative_lag_tokens_total{run="r"}'] == 1
    assert samples['satwatch_router_flip_rate{run="r"}'] == 1 / 8
    assert samples['satwatch_router_layer_flip_rate{layer="0",run="r"}'] == 0.25
    assert samples['satwatch_router_layer_flip_rate{layer="9",run="r"}'] == 0
    assert samples['satwatch_router_expert_disagreement{run="r"}'] == 2 / 16
    assert samples['satwatch_router_token_flip_rate{run="r"}'] == 0.25
    assert samples['satwatch_client_fallbacks_total{run="r"}'] == 5
    assert samples['satwatch_policy_version{run="r"}'] == 10


def test_a_wider_scope_is_answered_by_the_microbatch_said_and_counted(serve):
    sidecar = serve()
    opened = sidecar.wire.open(rule=types.Rule(scope="window"))
    reply = sidecar.wire.bounds(sidecar.wire.request())
    assert (opened.rule.scope, reply.rule.scope) == (pb.SCOPE_WINDOW, pb.SCOPE_MICROBATCH)
    assert sidecar.metrics()['satwatch_scope_fallbacks_total{run="r"}'] == 1


def test_bytes_are_counted_both_ways(sidecar):
    before = sidecar.metrics()
    message = sidecar.wire.request()
    reply = sidecar.wire.bounds(message)
    after = sidecar.metrics()
    assert after["satwatch_received_bytes_total"] - before["satwatch_received_bytes_total"] == message.ByteSize()
    assert after["satwatch_sent_bytes_total"] - before["satwatch_sent_bytes_total"] == reply.ByteSize()
    assert after['satwatch_request_seconds_count{kind="ComputeBounds"}'] == 1
    assert (
        after['satwatch_compute_seconds_total{device="cpu"}'] > before['satwatch_compute_seconds_total{device="cpu"}']
    )


def test_a_full_backlog_loses_no_batch(serve):
    sidecar = serve(max_pending_tokens=1)
    sidecar.wire.open()
    calls = [sidecar.wire.stub.ComputeBounds.future(sidecar.wire.request(draw(3000, seed=n))) for n in range(16)]
    for call in calls:
        call.result(timeout=60)
    assert sidecar.metrics()['satwatch_tokens_total{run="r"}'] == 16 * 3000
    assert sidecar.metrics()['satwatch_extreme_tokens_total{run="r"}'] == 0


def test_a_batch_whose_client_left_before_its_answer_is_not_counted_and_its_retry_is(serve, monkeypatch):
    sidecar = serve(max_pending_tokens=1)
    sidecar.wire.open()
    begun, released = threading.Event(), threading.Event()

    def add(stats, account, real=RunStats.add):
        begun.set()
        released.wait()
        real(stats, account)

    monkeypatch.setattr(RunStats, "add", add)
    sidecar.wire.bounds(sidecar.wire.request(step=1, microbatch=0))
    assert begun.wait(60)
    waiting = sidecar.wire.request(step=1, microbatch=1)
    with pytest.raises(grpc.RpcError) as late:
        sidecar.wire.stub.ComputeBounds(waiting, timeout=0.2)
    assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert sidecar.wire.stub.GetServerInfo(pb.GetServerInfoRequest()).runs[0].batches == 1
    released.set()
    sidecar.wire.bounds(waiting)
    samples = sidecar.metrics()
    assert samples['satwatch_batches_total{run="r"}'] == 2
    assert samples['satwatch_duplicate_batches_total{run="r"}'] == 0


def test_runs_show_side_by_side_under_their_own_names(sidecar):
    strange = 'a "quoted" \\ run'
    sidecar.wire.open(strange)
    sidecar.wire.bounds(sidecar.wire.request(run=strange))
    samples = sidecar.metrics()
    assert samples['satwatch_batches_total{run="a \\"quoted\\" \\\\ run"}'] == 1
    assert samples['satwatch_batches_total{run="r"}'] == 0
    assert samples["satwatch_runs"] == 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_bounds_built_from_the_wire_equal_the_local_ones_bit_for_bit(serve, dtype, level):
    sidecar, d, lengths = serve(), draw(999).to(dtype), (500, 0, 498, 1)
    sidecar.wire.open(rule=types.Rule(level=level, eps_high=0.28))
    reply = sidecar.wire.bounds(sidecar.wire.request(d, dtype=dtype, batch={"sequence_lengths": lengths}))
    expected = clip_bounds(d, level=level, eps_high=0.28, sequence_lengths=lengths)
    low, high = torch.full((999,), 0.8, dtype=torch.float64), torch.full((999,), 1.28, dtype=torch.float64)
    low[list(reply.gated_low.index)] = 1 - 0.2 * torch.tensor(reply.gated_low.factor, dtype=torch.float64)
    high[list(reply.gated_high.index)] = 1 + 0.28 * torch.tensor(reply.gated_high.factor, dtype=torch.float64)
    assert torch.equal(low.to(expected.low.dtype), expected.low)
    assert torch.equal(high.to(expected.high.dtype), expected.high)
    assert len(reply.gated_low.index) + len(reply.gated_high.index) == int(expected.gate.sum()) > 0


def test_a_rank_that_opens_the_run_in_mid_step_keeps_the_steps_metrics(sidecar):
    sidecar.wire.open(world_size=2)
    sidecar.wire.bounds(sidecar.wire.request([5.0] * 9, step=100, microbatch=0))
    for microbatch in range(2):
        sidecar.wire.open(rank=1, world_size=2)
        sidecar.wire.bounds(sidecar.wire.request([0.1], rank=1, step=100, microbatch=microbatch))
    samples = sidecar.metrics()
    assert samples['satwatch_log_ratio_abs_max{run="r"}'] == 5
    assert samples['satwatch_log_ratio_abs_mean{run="r"}'] == pytest.approx(45.2 / 11, rel=1e-12)


def test_a_trainer_that_starts_again_shows_its_own_step(sidecar):
    sidecar.wire.bounds(sidecar.wire.request([5.0], step=100, microbatch=0))
    sidecar.wire.open()
    sidecar.wire.bounds(sidecar.wire.request([0.1], step=7, microbatch=0))
    assert sidecar.metrics()['satwatch_log_ratio_abs_max{run="r"}'] == 0.1


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_the_process_tells_of_itself(sidecar):
    samples = sidecar.metrics()
    assert samples["process_resident_memory_bytes"] > 1 << 20
    assert samples["process_open_fds"] > 0


def test_runs_beyond_the_bound_share_a_label_and_are_counted(serve):
    sidecar = serve(max_run_labels=1)
    for run in ("a", "b", "c"):
        sidecar.wire.open(run)
        sidecar.wire.bounds(sidecar.wire.request([1.0, 3.0], run=run))
    samples = sidecar.metrics()
    assert samples['satwatch_overflow_names{kind="run"}'] == 2
    assert samples['satwatch_batches_total{run="_other"}'] == 2
    assert samples['satwatch_log_ratio_abs_nats_bucket{le="1.0",run="_other"}'] == 2
    assert not [name for name in samples if 'run="b"' in name or 'run="c"' in name]


def test_a_scraper_that_says_nothing_is_left(sidecar, monkeypatch, capfd):
    monkeypatch.setattr(scrape._QuietHandler, "timeout", 0.1)
    host, port = sidecar.metrics_url.split("/")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"GET /metrics HT")
        assert connection.recv(1) == b""
    assert "Traceback" not in capfd.readouterr().err


def test_half_open_scrapes_are_bounded(serve, monkeypatch):
    sidecar = serve()
    host, port = sidecar.metrics_url.split("/")[2].split(":")
    with contextlib.ExitStack() as stack:

        def half_open():
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            connection.sendall(b"GET /metrics HT")
            return connection

        monkeypatch.setattr(scrape._QuietHandler, "timeout", None)
        held = [half_open() for _ in range(scrape._MAX_CONNECTIONS)]
        with contextlib.suppress(ConnectionError):
            assert half_open().recv(1) == b""
        held[0].sendall(b"TP/1.0\r\n\r\n")
        with held[0].makefile("rb") as answer:
            assert b"satwatch_runs 0.0" in answer.read()


@pytest.mark.parametrize(("path", "status"), [("/", 200), ("/metrics", 200), ("/metrics/x", 404), ("/x", 404)])
def test_only_metrics_are_served_and_the_root_points_there(sidecar, path, status):
    with contextlib.closing(http.client.HTTPConnection(sidecar.metrics_url.split("/")[2], timeout=60)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert (answer.status, b"/metrics" in answer.read()) == (status, path != "/metrics")
