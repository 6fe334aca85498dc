"""A sidecar's life: start, addresses, health, reflection, drain, and a start that fails."""

from __future__ import annotations

import queue
import signal
import socket
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import torch
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from satwatch import __version__, types, wire
from satwatch.errors import ConfigError
from satwatch.server import answers
from satwatch.v1 import satwatch_pb2 as pb

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE = "satwatch.v1.SatwatchService"


def test_the_announcement_names_every_address(serve, tmp_path):
    path = f"unix:{tmp_path}/s"
    sidecar = serve(listen=("127.0.0.1:0", path))
    tcp, unix = sidecar.server.addresses
    assert unix == path
    assert not tcp.endswith(":0")
    assert sidecar.server.announcement == (
        f"satwatch {__version__} grpc={tcp} grpc={path} metrics={sidecar.metrics_url} device=cpu "
        f"history={sidecar.server.history}"
    )


def test_what_it_tells_of_itself_and_its_runs(serve):
    sidecar = serve(max_tokens=77, max_message_bytes=5000, device="cpu")
    rule = types.Rule(quantile=0.8, scope="step")
    opened = sidecar.wire.open(rule=rule, incarnation="a", world_size=4)
    assert opened.rule.quantile == 0.8
    assert opened.server.version == __version__
    sidecar.wire.bounds(sidecar.wire.request(incarnation="a", policy_version=3))
    info = sidecar.wire.stub.GetServerInfo(pb.GetServerInfoRequest())
    assert (info.server.device, info.server.max_tokens, info.server.max_message_bytes) == ("cpu", 77, 5000)
    assert info.server.metrics_url == sidecar.metrics_url
    (run,) = info.runs
    assert (run.run, run.incarnation, run.world_size, run.batches, run.tokens) == ("r", "a", 4, 1, 3)
    assert run.policy_version == 3
    assert not run.HasField("published_version")


@pytest.mark.parametrize("listen", ["[::1]:0", "localhost:0"])
def test_other_loopback_hosts(serve, listen):
    sidecar = serve(listen=(listen,))
    assert sidecar.address.rpartition(":")[0] == listen.rpartition(":")[0]
    sidecar.wire.open()


def test_metrics_on_ipv6(serve):
    sidecar = serve(metrics_host="::1")
    assert sidecar.metrics_url.startswith("http://[::1]:")
    assert sidecar.metrics()["satwatch_runs"] == 0


def test_metrics_can_be_off(serve):
    sidecar = serve(metrics_port=-1)
    assert sidecar.metrics_url == ""
    assert "metrics=off" in sidecar.server.announcement
    assert sidecar.wire.open().server.metrics_url == ""


def test_health_and_reflection(sidecar):
    health = health_pb2_grpc.HealthStub(sidecar.wire.channel)
    for service in ("", SERVICE):
        assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == SERVING
    with pytest.raises(grpc.RpcError) as unknown:
        health.Check(health_pb2.HealthCheckRequest(service="other"))
    assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
    reflection = reflection_pb2_grpc.ServerReflectionStub(sidecar.wire.channel)
    listing, symbol = reflection.ServerReflectionInfo(
        iter(
            [
                reflection_pb2.ServerReflectionRequest(list_services=""),
                reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
            ]
        )
    )
    names = {service.name for service in listing.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= names
    assert symbol.file_descriptor_response.file_descriptor_proto


def own_threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("satwatch")}


@pytest.mark.parametrize("fault", ["grpc port", "metrics port", "device", "socket"])
def test_a_start_that_fails_says_why_and_leaves_nothing_open(serve, fault, tmp_path):
    others = own_threads()  # of clients that live as long as the process
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        settings, reason = {
            "grpc port": ({"listen": (f"127.0.0.1:{taken}",)}, "listen: got .*Address already in use"),
            "metrics port": ({"metrics_port": taken}, "metrics_port: got .*Address already in use"),
            "device": ({"device": "cuda:99"}, "device: got 'cuda:99' with "),
            "socket": ({"listen": ("127.0.0.1:0", f"unix:{tmp_path}")}, "listen: got .*a file that is no socket"),
        }[fault]
        with pytest.raises(ConfigError, match=reason):
            serve(**settings)
        assert own_threads() <= others
    assert serve().wire.open().server.version == __version__


def test_a_second_sidecar_on_the_same_addresses_fails_and_the_first_serves_on(serve, tmp_path):
    first = serve(listen=("127.0.0.1:0", f"unix:{tmp_path}/s"))
    for address in first.server.addresses:
        with pytest.raises(ConfigError, match="listen: got"):
            serve(listen=(address,))
        with grpc.insecure_channel(address) as channel:
            assert type(first.wire)(address, channel).open().server.version == __version__


def test_a_socket_file_goes_with_its_sidecar_and_a_dead_ones_is_replaced(serve, tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    sidecar = serve(listen=(f"unix:{path}",))
    sidecar.wire.open()
    sidecar.stop()
    assert not path.exists()


def test_a_sidecar_that_ends_leaves_its_successors_socket(serve, tmp_path):
    path = tmp_path / "s"
    first = serve(listen=(f"unix:{path}",))
    first.wire.open()
    path.unlink()
    second = serve(listen=(f"unix:{path}",))
    first.stop()
    assert second.wire.open().server.version == __version__
    assert [file.name for file in tmp_path.iterdir()] == ["s"]
    second.stop()
    assert not list(tmp_path.iterdir())


def test_a_restart_on_the_same_port(serve):
    first = serve()
    first.wire.open()
    first.stop()
    assert serve(listen=(first.address,)).wire.open().server.version == __version__


def test_a_drain_answers_what_is_in_flight_and_refuses_what_is_new(serve, held):
    sidecar = serve()
    sidecar.wire.open()
    watch = health_pb2_grpc.HealthStub(sidecar.wire.channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
    assert next(watch).status == SERVING
    idle = sidecar.wire.stub.StreamBounds(iter(queue.SimpleQueue().get, None))
    answer = sidecar.wire.stub.ComputeBounds.future(sidecar.wire.request())
    assert held.begun.wait(60)
    with ThreadPoolExecutor(1) as thread:
        stopping = thread.submit(sidecar.stop)
        assert next(watch).status == NOT_SERVING
        with pytest.raises(grpc.RpcError) as ended:
            next(idle)
        with pytest.raises(grpc.RpcError) as refused:
            sidecar.wire.stub.GetServerInfo(pb.GetServerInfoRequest())
        held.released.set()
        assert answer.result(timeout=60).quantile_reference == 0.3
        stopping.result(timeout=60)
    for error in (ended.value, refused.value):
        assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "the sidecar is shutting down")


def test_a_drain_under_load_tells_every_caller_why(serve):
    sidecar = serve()
    sidecar.wire.open(world_size=8)
    busy, ends = threading.Semaphore(0), []

    def call_until_refused(rank):
        message = sidecar.wire.request(rank=rank)
        with grpc.insecure_channel(sidecar.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = type(sidecar.wire)(sidecar.address, channel).stub
            try:
                while True:
                    stub.ComputeBounds(message, timeout=60)
                    busy.release()
            except grpc.RpcError as error:
                ends.append((error.code(), error.details()))

    callers = [threading.Thread(target=call_until_refused, args=(rank,)) for rank in range(8)]
    for caller in callers:
        caller.start()
    for _ in range(100):
        assert busy.acquire(timeout=60)
    sidecar.stop()
    for caller in callers:
        caller.join(60)
    assert ends == [(grpc.StatusCode.UNAVAILABLE, "the sidecar is shutting down")] * 8


def test_a_drain_gives_up_after_its_time(serve, held, caplog):
    sidecar = serve(drain_seconds=0.0)
    sidecar.wire.open()
    answer = sidecar.wire.stub.ComputeBounds.future(sidecar.wire.request())
    assert held.begun.wait(60)
    with ThreadPoolExecutor(1) as thread:
        stopping = thread.submit(sidecar.stop)
        assert isinstance(answer.exception(timeout=60), grpc.RpcError)
        held.released.set()
        stopping.result(timeout=60)
    assert "1 requests were still in flight after 0.0 s." in caplog.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_the_process(spawn, number, tmp_path):
    process = spawn(f'listen = ["127.0.0.1:0", "unix:{tmp_path}/s"]\nmetrics_port = 0\nlog_level = "info"\n')
    assert process.announcement.startswith(f"satwatch {__version__} grpc=127.0.0.1:")
    with urllib.request.urlopen(process.named("metrics"), timeout=60) as answer:
        assert b"satwatch_runs 0.0" in answer.read()
    process.popen.send_signal(number)
    out, err = process.popen.communicate(timeout=60)
    assert (process.popen.returncode, out) == (0, "")
    assert "Draining." in err
    assert err.rstrip().endswith("Stopped.")
    assert "Traceback" not in err
    assert not (tmp_path / "s").exists()


def test_a_process_that_can_not_start_exits_with_2_and_one_line(spawn):
    with socket.create_server(("127.0.0.1", 0)) as other:
        process = spawn(f'listen = ["127.0.0.1:{other.getsockname()[1]}"]\nmetrics_port = -1\n')
        _, err = process.popen.communicate(timeout=60)
    assert (process.popen.returncode, process.announcement) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("satwatch: listen: got 127.0.0.1:")


def test_a_large_batch_leaves_the_event_loop_free(sidecar):
    d = torch.linspace(-1, 1, 300_000, dtype=torch.float32)
    message = sidecar.wire.request(d, dtype=torch.float32, rule_only=True)
    assert len(message.SerializeToString()) > answers.INLINE_BYTES
    assert sidecar.wire.bounds(message).tokens == 300_000


def test_an_opening_is_logged_for_people(serve, caplog):
    with caplog.at_level("INFO"):
        serve().wire.open(incarnation="a", rule=types.Rule(eps_high=0.28, enabled=False))
    assert "Run 'r' is open (new), incarnation 'a', quantile=0.9 eps=0.2/0.28 exponent=2 level=token" in caplog.text
    assert "min_reference=0 off." in caplog.text


def test_large_messages_are_read_off_the_event_loop(sidecar, monkeypatch):
    threads, parse = [], wire.parse

    def noting(message, data):
        threads.append(threading.current_thread().name)
        return parse(message, data)

    monkeypatch.setattr("satwatch.server.answers.wire.parse", noting)
    large = sidecar.wire.request(torch.zeros(300_000), dtype=torch.float32, rule_only=True)
    sidecar.wire.bounds(large)
    list(sidecar.wire.stub.StreamBounds(iter([pb.StreamBoundsRequest(request=large)]), timeout=60))
    sidecar.wire.bounds(sidecar.wire.request())
    assert [name.rpartition("_")[0] for name in threads] == ["satwatch-compute"] * 2 + ["satwatch-sidecar"]
