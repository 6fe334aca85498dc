"""The converter: everything comes back as it went, absent stays absent, and what can't be meant is refused by name."""

from __future__ import annotations

import dataclasses
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satwatch import errors, wire
from satwatch import types as t
from satwatch.v1 import satwatch_pb2 as pb

FLOATS = t.PackedFloats("float32", struct.pack("<3f", 1, 2, 3))
BATCH = t.TokenBatch(
    log_ratio=FLOATS,
    sequence_lengths=(1, 0, 2),
    sequence_advantage=t.PackedFloats("float64", struct.pack("<3d", 1, 2, 3)),
    behavior_logprob=FLOATS,
    reference_logprob=t.PackedFloats("bfloat16", b"\0" * 6),
    behavior_versions=(t.VersionRun(1, None), t.VersionRun(1, 0), t.VersionRun(1, -2)),
    behavior_engines=(t.EngineRun(2, "10.0.0.7:30000"), t.EngineRun(1, "")),
    versions_by_sequence=True,
)
ROUTING = t.Routing((t.LayerRouting(0, 3, 1, 2, 4),), 3, 1, 2)
REQUEST = t.BoundsRequest(
    run="r",
    batch=BATCH,
    incarnation="i",
    rank=3,
    step=0,
    microbatch=0,
    policy_version=0,
    routing=ROUTING,
    rule_only=True,
    with_diagnostics=True,
    client_fallbacks=9,
)
RULE = t.Rule(0.5, 0.1, 0.3, 3.0, "sequence", "step", 1e-3, enabled=False)
SERVER = t.ServerInfo("0.1.0", "cpu", 1, 2, "", 1.5)


def through_bytes(message):
    return wire.parse(type(message), message.SerializeToString())


CASES = [
    (REQUEST, wire.encode_request, wire.decode_request),
    (t.BoundsRequest("r", t.TokenBatch(t.PackedFloats("float16", b""))), wire.encode_request, wire.decode_request),
    (t.BoundsRequest("r", t.PackedSketch((1, 2), (3, 4), 5, (0.5,))), wire.encode_request, wire.decode_request),
    (t.RunOpening("r", "i", 1, 2, RULE), wire.encode_opening, wire.decode_opening),
    (
        t.BoundsReply(RULE, 0.25, 3, t.GatedTokens((0,), (0.5,)), t.GatedTokens((2,), (0.25,)), {"tokens": 3.0}),
        wire.encode_reply,
        wire.decode_reply,
    ),
    (t.BoundsReply(RULE, None, 0), wire.encode_reply, wire.decode_reply),
    (t.BoundsReply(RULE, math.inf, 1), wire.encode_reply, wire.decode_reply),
    (SERVER, wire.encode_server_info, wire.decode_server_info),
    (t.RunInfo("r", "", t.Rule(), 1, 2, 3, None, 0), wire.encode_run_info, wire.decode_run_info),
    (t.RunInfo("r", "", t.Rule(), 1, 2, 3, 0, None), wire.encode_run_info, wire.decode_run_info),
]


@pytest.mark.parametrize(("value", "encode", "decode"), CASES)
def test_everything_comes_back_as_it_went(value, encode, decode):
    assert decode(through_bytes(encode(value))) == value


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, t.MAX_STEP))
def test_versions_keep_their_sign_and_steps_their_size(version, step):
    request = dataclasses.replace(REQUEST, policy_version=version, step=step)
    assert wire.decode_request(through_bytes(wire.encode_request(request))) == request


def test_an_absent_rule_is_the_default_rule():
    assert wire.decode_rule(pb.Rule()) == t.Rule()


def tokens(**fields):
    return pb.ComputeBoundsRequest(run="r", tokens=pb.TokenBatch(**fields))


def floats(n=3, dtype=pb.DTYPE_FLOAT32, data=None):
    return pb.PackedFloats(dtype=dtype, data=struct.pack(f"<{n}f", *range(n)) if data is None else data)


REFUSALS = {
    "no batch": (pb.ComputeBoundsRequest(run="r"), "batch: got nothing, required tokens or a sketch"),
    "no log-ratios": (tokens(), "log_ratio: got nothing"),
    "no dtype": (tokens(log_ratio=floats(dtype=0)), "log_ratio.dtype: got number 0, required float64"),
    "an unknown dtype": (tokens(log_ratio=floats(dtype=99)), "log_ratio.dtype: got number 99"),
    "half a float": (tokens(log_ratio=floats(data=b"123")), "log_ratio.data: got 3 bytes, required a multiple of 4"),
    "lengths that do not sum": (
        tokens(log_ratio=floats(), sequence_lengths=[1, 1]),
        "sequence_lengths: got 2 lengths that sum to 2, required a sum of 3",
    ),
    "an advantage too few": (tokens(log_ratio=floats(), advantage=floats(2)), "advantage: got 2 values, required 3"),
    "a sequence advantage without sequences": (
        tokens(log_ratio=floats(), sequence_advantage=floats(2)),
        "sequence_advantage: got 2 values, required 0",
    ),
    "two advantages": (
        tokens(log_ratio=floats(), sequence_lengths=[1, 1, 1], advantage=floats(), sequence_advantage=floats()),
        "advantage: got advantage and sequence_advantage",
    ),
    "behavior log-probs too many": (
        tokens(log_ratio=floats(), behavior_logprob=floats(4)),
        "behavior_logprob: got 4 values, required 3",
    ),
    "versions that do not cover the tokens": (
        tokens(log_ratio=floats(), behavior_versions=[pb.VersionRun(tokens=2, version=1)]),
        "behavior_versions: got runs of 2 tokens, required 3",
    ),
    "more version runs than tokens": (
        tokens(log_ratio=floats(), behavior_versions=[pb.VersionRun(tokens=3)] + [pb.VersionRun()] * 3),
        "behavior_versions: got 4 runs, required at most 3, the tokens of log_ratio",
    ),
    "a version run of no tokens": (
        tokens(log_ratio=floats(), behavior_versions=[pb.VersionRun(tokens=3), pb.VersionRun(version=1)]),
        "behavior_versions: got a run of 0 tokens, required 1 or more a run",
    ),
    "engines that do not cover the tokens": (
        tokens(log_ratio=floats(), behavior_engines=[pb.EngineRun(tokens=2, engine="e")]),
        "behavior_engines: got runs of 2 tokens, required 3",
    ),
    "more engine runs than tokens": (
        tokens(log_ratio=floats(), behavior_engines=[pb.EngineRun(tokens=3)] + [pb.EngineRun()] * 3),
        "behavior_engines: got 4 runs, required at most 3, the tokens of log_ratio",
    ),
    "an engine run of no tokens": (
        tokens(log_ratio=floats(), behavior_engines=[pb.EngineRun(tokens=3), pb.EngineRun(engine="e")]),
        "behavior_engines: got a run of 0 tokens, required 1 or more a run",
    ),
    "an engine that no probe can name": (
        tokens(log_ratio=floats(), behavior_engines=[pb.EngineRun(tokens=3, engine="a\nb")]),
        "behavior_engines.engine: got 'a\\\\nb', required a name of 1 to 200 printable characters",
    ),
    "too many sequences": (
        tokens(log_ratio=floats(), sequence_lengths=[3] + [0] * wire.FREE_SEQUENCES),
        "sequence_lengths: got 65537 lengths, required at most 65536",
    ),
    "too many layers": (
        pb.ComputeBoundsRequest(
            tokens=pb.TokenBatch(log_ratio=floats()),
            routing=pb.Routing(layers=[pb.LayerRouting(layer=n, top_k=1) for n in range(1025)]),
        ),
        "routing.layers: got 1025 layers, required at most 1024",
    ),
    "too many codes": (
        pb.ComputeBoundsRequest(sketch=pb.Sketch(code_deltas=[0] * 65537)),
        "sketch.code_deltas: got 65537 codes, required at most 65536",
    ),
    "too many counts": (
        pb.ComputeBoundsRequest(sketch=pb.Sketch(counts=[0] * 65537)),
        "sketch.counts: got 65537 counts, required at most 65536",
    ),
    "too many moments": (
        pb.ComputeBoundsRequest(sketch=pb.Sketch(moments=[0] * 65)),
        "sketch.moments: got 65 moments, required at most 64",
    ),
    "a step below 0": (
        pb.ComputeBoundsRequest(step=-1, tokens=pb.TokenBatch(log_ratio=floats())),
        "step: got -1, required 0 to 9007199254740992",
    ),
    "a step above every count": (
        pb.ComputeBoundsRequest(step=2**53 + 1, tokens=pb.TokenBatch(log_ratio=floats())),
        "step: got 9007199254740993, required 0 to 9007199254740992",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_batch_that_contradicts_itself_is_refused_by_name(name):
    message, words = REFUSALS[name]
    with pytest.raises(errors.InvalidBatchError, match=words):
        wire.decode_request(message)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (pb.OpenRunRequest(run=""), "run: got ''"),
        (pb.OpenRunRequest(run="a\nb"), "run: got"),
        (pb.OpenRunRequest(run="r" * 201), "run: got"),
        (pb.OpenRunRequest(run="r", rank=2, world_size=2), r"rank: got 2, required 0 to 1"),
        (pb.OpenRunRequest(run="r", rule=pb.Rule(quantile=1.0)), "quantile: got 1.0"),
        (pb.OpenRunRequest(run="r", rule=pb.Rule(eps_high=math.nan)), "eps_high: got nan"),
        (pb.OpenRunRequest(run="r", rule=pb.Rule(level=7)), "rule.level: got number 7"),
        (pb.OpenRunRequest(run="r", rule=pb.Rule(scope=9)), "rule.scope: got number 9"),
    ],
)
def test_a_run_that_cant_be_meant_is_refused_by_name(message, words):
    with pytest.raises(errors.ConfigError, match=words):
        wire.decode_opening(message)


@given(st.binary(max_size=64))
def test_garbage_is_refused_or_read_but_never_crashes(data):
    try:
        wire.decode_request(wire.parse(pb.ComputeBoundsRequest, data))
    except errors.SatwatchError as error:
        assert ": got " in str(error)


def test_errors_travel_by_class_and_words():
    error = errors.InvalidBatchError("mask: got 1, required 2")
    back = wire.decode_error(through_bytes(wire.encode_error(error, 3)))
    assert (type(back), str(back)) == (errors.InvalidBatchError, str(error))
    assert isinstance(wire.decode_error(pb.BatchError(kind="FromTheFuture", message="x")), errors.UnavailableError)


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600", "\ud800"])
def test_a_long_error_is_cut_to_what_a_header_holds(character):
    message = wire.encode_error(errors.InvalidBatchError(f"mask: got {character * 10_000}"), 3).message
    assert message.startswith("mask: got ")
    assert 990 < len(message.encode()) <= wire.MAX_ERROR_BYTES


def test_the_runs_of_one_engine_share_its_name():
    runs = [pb.EngineRun(tokens=1, engine=f"e:{i % 2}") for i in range(100)]
    assert len({id(run.engine) for run in wire.decode_engine_runs(runs, 100)}) == 2


def test_the_runs_that_a_sidecar_knows_come_back_in_their_order():
    runs = [t.RunInfo("r", "", t.Rule(), 1, 2, 3, None, 0), t.RunInfo("s", "i", RULE, 8, 0, 0, 7, None)]
    assert wire.decode_run_infos([wire.encode_run_info(run) for run in runs]) == tuple(runs)
    with pytest.raises(errors.ConfigError, match=r"^runs\[0\]\.quantile: got 2\.0"):
        wire.decode_run_infos([pb.RunInfo(run="r", rule=pb.Rule(quantile=2.0))])


def test_as_many_sequences_as_tokens_are_taken_and_empty_ones_besides():
    many = wire.FREE_SEQUENCES + 1
    batch = t.TokenBatch(t.PackedFloats("float16", bytes(2 * many)), (1,) * many)
    assert wire.decode_batch(through_bytes(wire.encode_batch(batch))) == batch
    batch = t.TokenBatch(t.PackedFloats("float16", b""), (0,) * wire.FREE_SEQUENCES)
    assert wire.decode_batch(through_bytes(wire.encode_batch(batch))) == batch


def test_every_error_has_one_status():
    for name, cls in errors.BY_NAME.items():
        assert cls.__name__ == name
        assert cls.status.isupper()
        assert issubclass(cls, errors.SatwatchError)
