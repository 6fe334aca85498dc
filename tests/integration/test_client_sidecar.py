"""The client and a real sidecar: the same bounds, bit for bit, as the trainer would compute alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from satwatch import errors
from satwatch.client import Client
from satwatch.client.settings import Settings
from satwatch.sat import clip_bounds
from satwatch.server import Settings as ServerSettings
from satwatch.server import running
from satwatch.types import LayerRouting, Routing, Rule, RunOpening
from tests.property.strategies import DTYPES, batches, keywords, rules

PATIENT = 120.0
D = torch.randn(4, 64, generator=torch.Generator().manual_seed(1)).pow(3) * 0.02
MASK = torch.rand(4, 64, generator=torch.Generator().manual_seed(2)) < 0.8


@pytest.fixture(scope="module")
def address():
    with running(ServerSettings(listen=("127.0.0.1:0",), metrics_port=-1)) as server:
        yield server.address


def open_client(address, **given):
    rule = given.pop("rule", Rule())
    return Client(Settings(address, RunOpening(**{"run": "r", **given, "rule": rule}), "raise", PATIENT))


def assert_same(bounds, other):
    for name in ("low", "high", "gate", "quantile_reference"):
        one, two = getattr(bounds, name), getattr(other, name)
        assert one.dtype == two.dtype
        assert one.shape == two.shape
        assert one.device == two.device
        # Bit for bit, NaN included.
        assert one.numpy().tobytes() == two.numpy().tobytes(), name


@settings(max_examples=150)
@given(batches(), rules(), st.booleans())
def test_sidecar_and_trainer_agree_bit_for_bit(address, batch, rule, submitted):
    assume(batch.log_ratio.dim() == 2 or rule.level == "token" or batch.sequence_lengths is not None)
    # A new rule makes the run anew: without an incarnation the newest opening wins.
    with open_client(address, run="property", rule=rule) as client:
        if submitted:
            bounds = client.submit(batch.log_ratio, **batch.layout).result(PATIENT)
        else:
            bounds = client.clip_bounds(batch.log_ratio, **batch.layout)
        assert client.stats.bounds_from_sidecar == 1
    assert_same(bounds, clip_bounds(batch.log_ratio, **batch.layout, **keywords(rule)))


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 10, 1000, 70_000])
def test_every_dtype_level_and_size(address, dtype, level, tokens):
    d = (torch.randn(tokens, generator=torch.Generator().manual_seed(tokens)).pow(3) * 0.02).to(dtype)
    lengths = [tokens // 3, tokens - tokens // 3]
    with open_client(address, run=f"{dtype}-{level}-{tokens}", rule=Rule(level=level)) as client:
        bounds = client.clip_bounds(d, sequence_lengths=lengths)
    assert_same(bounds, clip_bounds(d, level=level, sequence_lengths=lengths))


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_every_form_of_a_batch_gets_the_same_bounds(address, level):
    lengths = MASK.sum(1).tolist()
    whole = clip_bounds(D, mask=MASK, level=level)
    with open_client(address, run=f"forms-{level}", rule=Rule(level=level)) as client:
        assert_same(client.clip_bounds(D, mask=MASK), whole)
        assert_same(client.clip_bounds(D.numpy(), mask=MASK.numpy()), whole)
        flat = client.clip_bounds(D[MASK], sequence_lengths=lengths)
        rows = client.clip_bounds([row[kept] for row, kept in zip(D, MASK, strict=True)])
    assert flat.low.tolist() == whole.low[MASK].tolist()
    assert flat.high.tolist() == whole.high[MASK].tolist()
    assert_same(rows, flat)


@pytest.mark.parametrize(
    "d",
    [
        torch.empty(0),
        torch.empty(3, 0),
        torch.tensor([math.nan, math.nan]),
        torch.tensor([math.inf, -math.inf, 1.0]),
        torch.tensor([0.0, -0.0]),
        torch.tensor([5e-324, 1e-320], dtype=torch.float64),
    ],
)
def test_the_edges(address, d):
    with open_client(address, run="edges") as client:
        assert_same(client.clip_bounds(d), clip_bounds(d))
    with open_client(address, run="masked") as client:
        mask = torch.zeros_like(d)
        assert_same(client.clip_bounds(d, mask=mask), clip_bounds(d, mask=mask))


@pytest.mark.parametrize("scope", ["step", "window"])
def test_a_wider_scope_than_the_sidecar_has_is_answered_with_the_microbatch_s(address, scope):
    with open_client(address, run=scope, rule=Rule(scope=scope)) as client:
        assert_same(client.clip_bounds(D), clip_bounds(D))


def test_everything_that_may_stand_beside_a_batch_is_taken_and_counted(serve):
    sidecar = serve()
    versions = np.repeat([[3], [4], [5], [-1]], 64, axis=1)
    with open_client(sidecar.address, world_size=2, rank=1) as client:
        client.clip_bounds(
            D,
            mask=MASK,
            advantage=[1.0, -1.0, 0.5, 0.0],
            behavior_logprob=D - 1,
            reference_logprob=D.to(torch.bfloat16) - 1,
            policy_version="5",
            behavior_version=versions,
            step=12,
            routing=Routing((LayerRouting(0, 100, 5, 6, 8),), 100, 5),
        )
        client.publish_version(6)
    samples = sidecar.metrics()
    tokens = int(MASK.sum())
    known = int(MASK[:3].sum())
    assert samples['satwatch_tokens_total{run="r"}'] == tokens
    assert samples['satwatch_published_version{run="r"}'] == 6
    assert samples['satwatch_policy_version{run="r"}'] == 5
    assert samples['satwatch_version_coverage_ratio{run="r"}'] == pytest.approx(known / tokens)
    assert samples['satwatch_version_lag_mean{run="r"}'] == pytest.approx(
        int(MASK[0].sum() * 2 + MASK[1].sum()) / known
    )
    assert samples['satwatch_router_flip_rate{run="r"}'] == pytest.approx(0.05)
    assert 'satwatch_clip_fraction{run="r"}' in samples


def test_microbatches_of_a_step_are_counted_once_each(serve):
    sidecar = serve()
    with open_client(sidecar.address) as client:
        for step in (1, 2):
            for _ in range(3):
                client.clip_bounds(D, step=step)
        client.clip_bounds(D, step=2, microbatch=2)
    samples = sidecar.metrics()
    assert samples['satwatch_batches_total{run="r"}'] == 6
    assert samples['satwatch_duplicate_batches_total{run="r"}'] == 1


def test_a_published_version_may_not_fall(serve):
    sidecar = serve()
    with open_client(sidecar.address) as client:
        client.publish_version(4)
        client.publish_version(4)
        with pytest.raises(errors.VersionOrderError, match=r"version: got 3, required 4 or more"):
            client.publish_version(3)


def test_another_rule_in_the_same_incarnation_is_refused(serve):
    sidecar = serve()
    with open_client(sidecar.address, incarnation="i") as client:
        client.clip_bounds(D)
    with (
        open_client(sidecar.address, incarnation="i", rule=Rule(eps_high=0.3)) as client,
        pytest.raises(errors.ConfigError, match=r"rule.eps_high: got 0.3, required 0.2"),
    ):
        client.clip_bounds(D)


def test_the_limits_are_those_the_sidecar_was_given(serve):
    sidecar = serve(max_tokens=100)
    with open_client(sidecar.address) as client:
        with pytest.raises(errors.OverloadedError, match=r"^log_ratio: got 256, required at most 100, .*max_tokens"):
            client.clip_bounds(D)
        client.clip_bounds(D[0])
        assert client.server_info().max_tokens == 100
        assert client.stats.server == client.server_info()


def test_a_life_that_a_newer_one_has_replaced_is_refused(serve):
    sidecar = serve()
    with (
        open_client(sidecar.address, incarnation="one") as first,
        open_client(sidecar.address, incarnation="two") as second,
    ):
        first.clip_bounds(D)
        second.clip_bounds(D)
        with pytest.raises(errors.ConfigError, match=r"incarnation: got 'one'"):
            first.clip_bounds(D)
        second.clip_bounds(D)
        assert second.stats.bounds_from_sidecar == 2


def test_a_sidecar_that_is_killed_and_started_again(spawn, caplog, tmp_path):
    # The socket file of the killed one is left behind.
    toml = f'listen = ["unix:{tmp_path}/s.sock"]\nmetrics_port = -1\n'
    sidecar = spawn(toml)
    with Client(Settings(sidecar.named("grpc"), RunOpening("r"), "local", PATIENT)) as client:
        client.clip_bounds(D)
        sidecar.popen.kill()
        sidecar.popen.wait()
        assert_same(client.clip_bounds(D), clip_bounds(D))
        assert client.stats.bounds_from_fallback == 1
        again = spawn(toml)
        # The probes go on by themselves, a second apart at first.
        while client.stats.bounds_from_sidecar == 1:
            assert_same(client.clip_bounds(D), clip_bounds(D))
        assert client.stats.breaker == "closed"
        client.clip_bounds(D)
        assert client.stats.bounds_from_sidecar == 3
        assert again.popen.poll() is None
