"""The golden cases through a real sidecar: the wire in full, and the client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import torch

import satwatch
from satwatch import wire
from satwatch.sat import pack, score_batch
from satwatch.server import Settings, running
from satwatch.types import BoundsReply, BoundsRequest, Rule, RunOpening, TokenBatch
from satwatch.v1 import satwatch_pb2_grpc
from tests.golden.cases import CASES, DTYPES, Case, differences, json_number

cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
dtypes = pytest.mark.parametrize("dtype", DTYPES)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(Settings(listen=("127.0.0.1:0",), metrics_port=-1, device="cpu")) as server:
        yield server.address


@pytest.fixture(scope="module")
def stub(address: str) -> Iterator[satwatch_pb2_grpc.SatwatchServiceStub]:
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        yield satwatch_pb2_grpc.SatwatchServiceStub(channel)


@cases
@dtypes
def test_the_wire(case: Case, dtype: str, stub: satwatch_pb2_grpc.SatwatchServiceStub):
    run, rule = f"{case.name}-{dtype}", Rule(**case.rule)
    scores = score_batch(case.log_ratio(dtype), rule, **case.layout)
    advantage = case.advantage(dtype)
    batch = TokenBatch(
        pack(torch.from_numpy(scores.tokens)),
        sequence_lengths=() if scores.layout.lengths is None else tuple(scores.layout.lengths.tolist()),
        advantage=None if advantage is None else pack(scores.layout.take("advantage", advantage)),
    )

    stub.OpenRun(wire.encode_opening(RunOpening(run, rule=rule)), timeout=10)
    request = BoundsRequest(run, batch, with_diagnostics=True)
    reply = wire.decode_reply(stub.ComputeBounds(wire.encode_request(request), timeout=10))

    assert reply.rule == rule
    assert reply.tokens == len(scores.tokens)
    positions = (
        range(scores.layout.shape.numel()) if scores.layout.positions is None else scores.layout.positions.tolist()
    )
    assert differences(answer(case, reply, list(positions)), case.expect, dtype) == []


def answer(case: Case, reply: BoundsReply, positions: list[int]) -> dict[str, Any]:
    """Build a case's bounds from what the reply says alone, as a trainer without torch would."""
    n = len(case.input["log_ratio"])
    low, high, gate = [1 - reply.rule.eps_low] * n, [1 + reply.rule.eps_high] * n, [False] * n
    for side, gated, sign, radius in (
        (low, reply.gated_low, -1, reply.rule.eps_low),
        (high, reply.gated_high, 1, reply.rule.eps_high),
    ):
        for index, factor in zip(gated.index, gated.factor, strict=True):
            side[positions[index]] = 1 + sign * radius * factor
            gate[positions[index]] = True
    q = reply.quantile_reference
    return {
        "quantile_reference": None if q is None else json_number(q),
        "clip_low": low,
        "clip_high": high,
        "gate": gate,
        "diagnostics": {name: json_number(value) for name, value in (reply.diagnostics or {}).items()},
    }


@cases
@dtypes
def test_the_client(case: Case, dtype: str, address: str):
    run = f"client-{case.name}-{dtype}"
    with satwatch.connect(address, run=run, on_failure="raise", timeout=10.0, **case.rule) as client:
        bounds = client.clip_bounds(case.log_ratio(dtype), advantage=case.advantage(dtype), **case.layout)
        assert client.stats.bounds_from_sidecar == 1

    flat = {
        "clip_low": bounds.low.flatten().tolist(),
        "clip_high": bounds.high.flatten().tolist(),
        "gate": bounds.gate.flatten().tolist(),
    }
    assert differences(flat, case.expect, dtype) == []
