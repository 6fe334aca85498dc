"""The bidirectional stream: answers in order, refusals that leave it open, and clients that vanish."""

from __future__ import annotations

import subprocess
import sys

import grpc
import pytest

from satwatch.server import answers
from satwatch.v1 import satwatch_pb2 as pb

VANISHING = """
import sys, threading
import grpc
from satwatch.v1 import satwatch_pb2 as pb, satwatch_pb2_grpc as rpc

message = pb.StreamBoundsRequest.FromString(bytes.fromhex(sys.stdin.readline()))
stub = rpc.SatwatchServiceStub(grpc.insecure_channel(sys.argv[1]))

def requests():
    yield message
    threading.Event().wait()

for answer in stub.StreamBounds(requests()):
    print(answer.request_id, flush=True)
"""


def item(sidecar, request_id, **fields):
    return pb.StreamBoundsRequest(request_id=request_id, request=sidecar.wire.request(**fields))


def test_answers_come_in_order_and_equal_the_unary_ones(sidecar):
    items = [item(sidecar, number, log_ratio=[0.1 * number] * 3) for number in range(1, 6)]
    found = list(sidecar.wire.stub.StreamBounds(iter(items)))
    assert [answer.request_id for answer in found] == [1, 2, 3, 4, 5]
    for sent, answer in zip(items, found, strict=True):
        assert answer.response == sidecar.wire.bounds(sent.request)


def test_a_refusal_leaves_the_stream_open(sidecar):
    bad = pb.StreamBoundsRequest(request_id=2, request=pb.ComputeBoundsRequest(run="r"))
    stranger = item(sidecar, 3, run="x")
    found = list(sidecar.wire.stub.StreamBounds(iter([item(sidecar, 1), bad, stranger, item(sidecar, 4)])))
    assert [answer.WhichOneof("answer") for answer in found] == ["response", "error", "error", "response"]
    assert found[1] == pb.StreamBoundsResponse(
        request_id=2,
        error=pb.BatchError(
            code=grpc.StatusCode.INVALID_ARGUMENT.value[0],
            kind="InvalidBatchError",
            message="batch: got nothing, required tokens or a sketch",
        ),
    )
    assert (found[2].error.code, found[2].error.kind) == (grpc.StatusCode.NOT_FOUND.value[0], "UnknownRunError")


def test_garbage_on_the_stream_is_refused_and_leaves_it_open(sidecar):
    stream = sidecar.wire.channel.stream_stream("/satwatch.v1.SatwatchService/StreamBounds")
    good = item(sidecar, 7).SerializeToString()
    found = [pb.StreamBoundsResponse.FromString(data) for data in stream(iter([b"\xff\xff", good]))]
    assert found[0].error.message == "request: got 2 bytes that do not parse, required a StreamBoundsRequest"
    assert found[0].request_id == 0
    assert found[1].request_id == 7
    assert found[1].response.tokens == 3


def test_a_defect_on_the_stream_leaves_it_open(sidecar, monkeypatch, caplog):
    calls = iter([ZeroDivisionError("boom")])
    real = answers.score

    def fail_once(*arguments):
        if (error := next(calls, None)) is not None:
            raise error
        return real(*arguments)

    monkeypatch.setattr(answers, "score", fail_once)
    found = list(sidecar.wire.stub.StreamBounds(iter([item(sidecar, 1), item(sidecar, 2)])))
    assert (found[0].error.code, found[0].error.kind) == (grpc.StatusCode.INTERNAL.value[0], "InternalError")
    assert found[1].response.tokens == 3
    assert "boom" in caplog.text


def test_a_message_above_the_limit_is_refused_and_one_above_twice_the_limit_ends_the_stream(serve):
    sidecar = serve(max_message_bytes=4096)
    sidecar.wire.open()
    items = [item(sidecar, number, log_ratio=[0.0] * tokens) for number, tokens in enumerate((600, 3, 2000))]
    found = sidecar.wire.stub.StreamBounds(iter(items))
    assert next(found).error.kind == "OverloadedError"
    assert next(found).response.tokens == 3
    with pytest.raises(grpc.RpcError) as ended:
        next(found)
    assert ended.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert sidecar.wire.bounds(sidecar.wire.request()).tokens == 3


def test_a_client_killed_in_mid_stream_leaves_nothing_behind(serve, caplog):
    sidecar = serve(drain_seconds=3600.0)
    sidecar.wire.open()
    popen = subprocess.Popen(
        [sys.executable, "-c", VANISHING, sidecar.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert sidecar.metrics()["satwatch_streams"] == 0
        popen.stdin.write(item(sidecar, 9).SerializeToString().hex() + "\n")
        popen.stdin.flush()
        assert popen.stdout.readline() == "9\n"
        assert sidecar.metrics()["satwatch_streams"] == 1
    finally:
        popen.kill()
        popen.communicate()
    while sidecar.metrics()["satwatch_streams"]:
        """The connection's end is on its way."""
    assert sidecar.wire.bounds(sidecar.wire.request()).tokens == 3
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_a_client_that_cancels_a_batch_in_flight_leaves_nothing_behind(serve, held, caplog):
    sidecar = serve(drain_seconds=3600.0)
    sidecar.wire.open()
    call = sidecar.wire.stub.ComputeBounds.future(sidecar.wire.request())
    assert held.begun.wait(60)
    call.cancel()
    # The event loop is free meanwhile: another rank is answered.
    assert len(sidecar.wire.stub.GetServerInfo(pb.GetServerInfoRequest()).runs) == 1
    held.released.set()
    assert sidecar.wire.bounds(sidecar.wire.request()).tokens == 3
    sidecar.stop()
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_a_client_that_cancels_a_stream_in_mid_batch_leaves_nothing_behind(serve, held, caplog):
    sidecar = serve(drain_seconds=3600.0)
    sidecar.wire.open()
    call = sidecar.wire.stub.StreamBounds(iter([item(sidecar, 1)]))
    assert held.begun.wait(60)
    assert sidecar.metrics()["satwatch_streams"] == 1
    call.cancel()
    while sidecar.metrics()["satwatch_streams"]:
        """The cancellation is on its way."""
    held.released.set()
    assert sidecar.wire.bounds(sidecar.wire.request()).tokens == 3
    sidecar.stop()
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []
