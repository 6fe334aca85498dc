"""Every bad input has a status and names its field, over the wire; the sidecar lives on."""

from __future__ import annotations

import math
import re

import grpc
import pytest
import torch

from satwatch import types, wire
from satwatch.errors import InvalidBatchError
from satwatch.sat import clip_bounds
from satwatch.v1 import satwatch_pb2 as pb

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def floats(count, dtype=pb.DTYPE_FLOAT32, size=4):
    return pb.PackedFloats(dtype=dtype, data=bytes(size * count))


def tokens(count=3, **fields):
    return pb.ComputeBoundsRequest(run="r", tokens=pb.TokenBatch(log_ratio=floats(count), **fields))


def routed(*layers, **counts):
    message = tokens()
    message.routing.CopyFrom(pb.Routing(layers=[pb.LayerRouting(**layer) for layer in layers], **counts))
    return message


BAD_BATCHES = {
    "no batch": (pb.ComputeBoundsRequest(run="r"), "batch: got nothing, required tokens or a sketch"),
    "no log-ratio": (
        pb.ComputeBoundsRequest(run="r", tokens=pb.TokenBatch()),
        "log_ratio: got nothing, required packed floats, zero or more tokens",
    ),
    "unknown dtype": (
        pb.ComputeBoundsRequest(run="r", tokens=pb.TokenBatch(log_ratio=floats(3, dtype=9))),
        "log_ratio.dtype: got number 9, required float64, float32, bfloat16 or float16",
    ),
    "no dtype": (
        pb.ComputeBoundsRequest(run="r", tokens=pb.TokenBatch(log_ratio=floats(3, dtype=0))),
        "log_ratio.dtype: got number 0, required float64, float32, bfloat16 or float16",
    ),
    "half an element": (
        pb.ComputeBoundsRequest(run="r", tokens=pb.TokenBatch(log_ratio=floats(3, size=3))),
        "log_ratio.data: got 9 bytes, required a multiple of 4 (float32)",
    ),
    "lengths that do not sum": (
        tokens(sequence_lengths=[2, 2]),
        "sequence_lengths: got 2 lengths that sum to 4, required a sum of 3, the tokens of log_ratio",
    ),
    "advantages of another length": (tokens(advantage=floats(2)), "advantage: got 2 values, required 3, one a token"),
    "sequence advantages without sequences": (
        tokens(sequence_advantage=floats(2)),
        "sequence_advantage: got 2 values, required 0, one a sequence",
    ),
    "both advantages": (
        tokens(advantage=floats(3), sequence_advantage=floats(1), sequence_lengths=[3]),
        "advantage: got advantage and sequence_advantage, required at most one of the two",
    ),
    "behavior log-probs of another length": (
        tokens(behavior_logprob=floats(1)),
        "behavior_logprob: got 1 values, required 3, one a token",
    ),
    "reference log-probs of an unknown dtype": (
        tokens(reference_logprob=floats(3, dtype=7)),
        "reference_logprob.dtype: got number 7, required float64, float32, bfloat16 or float16",
    ),
    "versions of other tokens": (
        tokens(behavior_versions=[pb.VersionRun(tokens=2, version=1)]),
        "behavior_versions: got runs of 2 tokens, required 3, the tokens of log_ratio",
    ),
    "a layer twice": (
        routed({"layer": 1, "tokens": 1, "top_k": 2}, {"layer": 1, "tokens": 1, "top_k": 2}),
        "routing.layers: got layer 1 twice, required each layer once",
    ),
    "a layer above the limit": (
        routed({"layer": 1024, "tokens": 1, "top_k": 2}),
        "routing.layers: got layer 1024, required 0 to 1023",
    ),
    "more flips than tokens": (
        routed({"layer": 0, "tokens": 1, "flipped_tokens": 2, "disagreeing_experts": 2, "top_k": 2}),
        "routing.layers[0].flipped_tokens: got 2, required 0 to 1, its tokens",
    ),
    "a rank outside the world": (
        pb.ComputeBoundsRequest(run="r", rank=1, tokens=pb.TokenBatch(log_ratio=floats(1))),
        "rank: got 1, required 0 to 0 (world_size 1)",
    ),
    "a step below 0": (
        pb.ComputeBoundsRequest(run="r", step=-1, tokens=pb.TokenBatch(log_ratio=floats(3))),
        "step: got -1, required 0 to 9007199254740992",
    ),
    "empty version runs by the million": (
        tokens(behavior_versions=[pb.VersionRun()] * 1_000_000),
        "behavior_versions: got 1000000 runs, required at most 3, the tokens of log_ratio",
    ),
    "empty sequences by the million": (
        tokens(sequence_lengths=[3] + [0] * 1_000_000),
        "sequence_lengths: got 1000001 lengths, required at most 65536",
    ),
    "a sketch": (
        pb.ComputeBoundsRequest(run="r", sketch=pb.Sketch(code_deltas=[1], counts=[1])),
        "batch: got a sketch, required tokens: this version takes no sketches",
    ),
}


def refusal(call, *arguments):
    """Return status, message and error class of a refused call."""
    with pytest.raises(grpc.RpcError) as refused:
        call(*arguments)
    error = refused.value
    return error.code(), error.details(), dict(error.trailing_metadata()).get("satwatch-error")


def assert_lives(sidecar):
    """The sidecar answers a good request as ever."""
    reply = sidecar.wire.bounds(sidecar.wire.request())
    assert (reply.tokens, reply.quantile_reference) == (3, 0.3)


@pytest.mark.parametrize("fault", BAD_BATCHES)
def test_a_bad_batch_names_its_field(sidecar, fault):
    message, details = BAD_BATCHES[fault]
    assert refusal(sidecar.wire.bounds, message) == (INVALID, details, "InvalidBatchError")
    assert_lives(sidecar)
    samples = sidecar.metrics()
    assert samples['satwatch_errors_total{kind="InvalidBatchError"}'] == 1
    assert samples['satwatch_batches_total{run="r"}'] == 1


def rule(**fields):
    return pb.OpenRunRequest(run="x", rule=pb.Rule(**fields))


BAD_OPENINGS = {
    "alpha 0": (rule(quantile=0), "quantile: got 0.0, required a number inside (0, 1)"),
    "alpha 1": (rule(quantile=1), "quantile: got 1.0, required a number inside (0, 1)"),
    "alpha NaN": (rule(quantile=math.nan), "quantile: got nan, required a number inside (0, 1)"),
    "lower radius": (rule(eps_low=1.5), "eps_low: got 1.5, required a number inside (0, 1)"),
    "upper radius": (rule(eps_high=-0.2), "eps_high: got -0.2, required a number inside (0, 1)"),
    "exponent": (rule(exponent=0), "exponent: got 0.0, required a finite number above 0"),
    "infinite floor": (rule(min_reference=math.inf), "min_reference: got inf, required a finite number, 0 or more"),
    "level": (rule(level=5), "rule.level: got number 5, required a Level of this version"),
    "scope": (rule(scope=9), "rule.scope: got number 9, required a Scope of this version"),
    "no name": (pb.OpenRunRequest(), "run: got '', required a name of 1 to 200 printable characters"),
    "a long name": (
        pb.OpenRunRequest(run="x" * 201),
        f"run: got '{'x' * 79}, required a name of 1 to 200 printable characters",
    ),
    "rank": (pb.OpenRunRequest(run="x", rank=2, world_size=2), "rank: got 2, required 0 to 1 (world_size 2)"),
}


@pytest.mark.parametrize("fault", BAD_OPENINGS)
def test_a_bad_opening_names_its_field(sidecar, fault):
    message, details = BAD_OPENINGS[fault]
    assert refusal(sidecar.wire.stub.OpenRun, message) == (INVALID, details, "ConfigError")
    assert_lives(sidecar)
    assert [run.run for run in sidecar.wire.stub.GetServerInfo(pb.GetServerInfoRequest()).runs] == ["r"]


@pytest.mark.parametrize("method", ["OpenRun", "ComputeBounds", "PublishVersion", "GetServerInfo"])
@pytest.mark.parametrize("garbage", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", bytes(range(256)) * 64], ids=len)
def test_garbage_is_refused_by_size_and_message(sidecar, method, garbage):
    details = f"request: got {len(garbage)} bytes that do not parse, required a {method}Request"
    assert refusal(sidecar.wire.raw, method, garbage) == (INVALID, details, "InvalidBatchError")
    assert_lives(sidecar)


def test_a_name_that_is_no_utf8_is_garbage(sidecar):
    assert refusal(sidecar.wire.raw, "OpenRun", b"\x0a\x02\xc3\x28")[0] == INVALID
    assert_lives(sidecar)


def test_an_unknown_method_is_unimplemented(sidecar):
    assert refusal(sidecar.wire.raw, "Nothing", b"")[0] == grpc.StatusCode.UNIMPLEMENTED
    assert_lives(sidecar)


@pytest.mark.parametrize("method", ["ComputeBounds", "PublishVersion"])
def test_a_run_that_was_never_opened(sidecar, method):
    message = {"ComputeBounds": tokens(), "PublishVersion": pb.PublishVersionRequest()}[method]
    message.run = "x"
    assert refusal(getattr(sidecar.wire.stub, method), message) == (
        grpc.StatusCode.NOT_FOUND,
        "run: got 'x', required a run that OpenRun has opened",
        "UnknownRunError",
    )
    assert_lives(sidecar)


def test_another_incarnation_than_the_open_one(serve):
    sidecar = serve()
    sidecar.wire.open(incarnation="a")
    assert refusal(sidecar.wire.bounds, tokens()) == (
        grpc.StatusCode.NOT_FOUND,
        "incarnation: got '', required 'a', the one that OpenRun opened last",
        "UnknownRunError",
    )


def test_another_rule_in_the_same_incarnation(serve):
    sidecar = serve()
    sidecar.wire.open(incarnation="a")
    with pytest.raises(grpc.RpcError) as refused:
        sidecar.wire.open(incarnation="a", rule=types.Rule(quantile=0.5))
    assert refused.value.details() == "rule.quantile: got 0.5, required 0.9, as incarnation 'a' was opened with"


def test_a_version_that_falls(sidecar):
    publish = sidecar.wire.stub.PublishVersion
    assert not publish(pb.PublishVersionRequest(run="r", version=5)).HasField("previous_version")
    assert publish(pb.PublishVersionRequest(run="r", version=6)).previous_version == 5
    assert refusal(publish, pb.PublishVersionRequest(run="r", version=4)) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "version: got 4, required 6 or more, the last one published",
        "VersionOrderError",
    )
    assert sidecar.metrics()['satwatch_published_version{run="r"}'] == 6


@pytest.mark.parametrize("age", [-1.0, math.nan, math.inf])
def test_a_version_has_an_age_that_can_be_meant(sidecar, age):
    message = pb.PublishVersionRequest(run="r", version=5, age_seconds=age)
    code, text, _ = refusal(sidecar.wire.stub.PublishVersion, message)
    assert code == INVALID
    assert text == f"age_seconds: got {age}, required finite seconds, 0 or more"


def test_sequence_level_without_lengths(serve):
    sidecar = serve()
    sidecar.wire.open(rule=types.Rule(level="sequence"))
    status, details, kind = refusal(sidecar.wire.bounds, tokens())
    assert (status, kind) == (INVALID, "InvalidBatchError")
    assert details.startswith("sequence_lengths: got None, required the tokens of each sequence")
    assert sidecar.wire.bounds(tokens(sequence_lengths=[3, 0])).tokens == 3


def test_a_message_above_the_limit_is_told_the_limit(serve):
    sidecar = serve(max_message_bytes=4096)
    sidecar.wire.open()
    status, details, kind = refusal(sidecar.wire.bounds, tokens(1200))
    assert (status, kind) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OverloadedError")
    assert re.fullmatch(r"message: got \d{4} bytes, required at most 4096 \(max_message_bytes\)", details)
    # More than twice the limit, gRPC itself refuses, in its own words.
    status, details, _ = refusal(sidecar.wire.bounds, tokens(4000))
    assert status == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in details
    assert_lives(sidecar)


def test_a_batch_above_the_token_limit_is_told_the_limit(serve):
    sidecar = serve(max_tokens=3)
    sidecar.wire.open()
    assert refusal(sidecar.wire.bounds, tokens(4)) == (
        INVALID,
        "log_ratio: got 4 tokens, required at most 3 (max_tokens)",
        "InvalidBatchError",
    )
    assert_lives(sidecar)


def test_one_run_too_many(serve):
    sidecar = serve(max_runs=1)
    sidecar.wire.open("r")
    assert refusal(sidecar.wire.stub.OpenRun, pb.OpenRunRequest(run="s"))[::2] == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "OverloadedError",
    )
    assert_lives(sidecar)


def test_more_requests_at_once_than_allowed(serve, held):
    sidecar = serve(max_requests=1)
    sidecar.wire.open()
    call = sidecar.wire.stub.ComputeBounds.future(sidecar.wire.request())
    assert held.begun.wait(60)
    with pytest.raises(grpc.RpcError) as refused:
        sidecar.wire.open()
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    held.released.set()
    assert call.result(timeout=60).tokens == 3
    assert_lives(sidecar)


def test_a_defect_is_internal_said_shortly_logged_and_survived(sidecar, monkeypatch, caplog):
    def fail(*_):
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr("satwatch.server.answers.score", fail)
        assert refusal(sidecar.wire.bounds, tokens()) == (
            grpc.StatusCode.INTERNAL,
            "the sidecar failed on this request and serves on; its log says why",
            "InternalError",
        )
    assert "ZeroDivisionError" in caplog.text
    assert_lives(sidecar)
    assert sidecar.metrics()['satwatch_errors_total{kind="InternalError"}'] == 1


def test_layers_by_the_million_are_refused_by_their_count_and_the_stream_lives(sidecar):
    bad = routed(*[{"layer": 7, "tokens": 1, "top_k": 1}] * 200_000)
    details = "routing.layers: got 200000 layers, required at most 1024"
    assert refusal(sidecar.wire.bounds, bad) == (INVALID, details, "InvalidBatchError")
    items = [pb.StreamBoundsRequest(request_id=n, request=request) for n, request in ((1, bad), (2, tokens()))]
    refused, answered = sidecar.wire.stub.StreamBounds(iter(items), timeout=60)
    assert (refused.request_id, refused.error.message) == (1, details)
    assert (answered.request_id, answered.response.tokens) == (2, 3)


def test_a_long_refusal_fits_into_header_and_stream(sidecar, monkeypatch):
    def refuse(*_):
        raise InvalidBatchError("é" * 5_000_000)

    monkeypatch.setattr("satwatch.server.answers.score", refuse)
    status, details, _ = refusal(sidecar.wire.bounds, tokens())
    assert (status, details) == (INVALID, "é" * 500)
    (answer,) = sidecar.wire.stub.StreamBounds(iter([pb.StreamBoundsRequest(request=tokens())]), timeout=60)
    assert answer.error.message == "é" * 500


ODD = {
    "NaN": [math.nan, 0.1, -0.2],
    "all NaN": [math.nan] * 3,
    "infinities": [math.inf, -math.inf, 0.1, 0.2],
    "only infinities": [math.inf, -math.inf],
    "zeros": [0.0] * 4,
    "one token": [0.5],
    "no tokens": [],
    "extremes": [1e300, -1e300, 5e-324, 1.0],
}


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("name", ODD)
def test_odd_numbers_are_answered_as_sat_defines_them(serve, name, level):
    sidecar, values = serve(), ODD[name]
    applied = types.Rule(quantile=0.5, level=level)
    sidecar.wire.open(rule=applied)
    d = torch.tensor(values, dtype=torch.float64)
    lengths = (len(values) - 1, 1) if len(values) > 1 else (len(values),)
    message = sidecar.wire.request(d, batch={"sequence_lengths": lengths}, with_diagnostics=True)
    reply = wire.decode_reply(sidecar.wire.bounds(message))
    expected = clip_bounds(d, quantile=0.5, level=level, sequence_lengths=lengths)
    assert (reply.quantile_reference is None) == bool(expected.quantile_reference.isnan())
    if reply.quantile_reference is not None:
        assert reply.quantile_reference == float(expected.quantile_reference)
    low, high = torch.full_like(d, 0.8), torch.full_like(d, 1.2)
    for bound, gated, sign in ((low, reply.gated_low, -1), (high, reply.gated_high, 1)):
        for index, factor in zip(gated.index, gated.factor, strict=True):
            bound[index] = 1 + sign * (0.2 * factor)
    assert torch.equal(low, expected.low)
    assert torch.equal(high, expected.high)
    assert not any(math.isnan(value) for value in reply.diagnostics.values())
