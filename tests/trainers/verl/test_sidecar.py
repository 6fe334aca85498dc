"""The hook and a real sidecar: reported faults as small inputs, and a sidecar that is not there."""

from __future__ import annotations

import logging
import math
import re
import time

import pytest
import torch

import satwatch
from satwatch.hooks import use
from satwatch.hooks.verl import loss as hook_loss
from tests.trainers.verl.microbatches import Batch, actor_config, expected


@pytest.fixture
def connected():
    """Makes this process a rank of a run: a client, and a hook that has not attached yet."""
    clients = []

    def connect(sidecar, run, rank=0, world_size=1, **options):
        client = satwatch.connect(sidecar.address, run=run, rank=rank, world_size=world_size, timeout=20.0, **options)
        clients.append(client)
        hook_loss._hooks.clear()
        hook_loss._heartbeat.clear()
        use(client)
        return client

    yield connect
    for client in clients:
        client.close()


def of_log_ratios(*d, seed=0):
    """A batch of one response with these log-ratios."""
    batch = Batch(lengths=(len(d),), seed=seed, recomputed=True)
    batch.now = [torch.full((len(d),), -2.0, dtype=torch.float64)]
    batch.old = [batch.now[0].clone()]
    batch.mu = [batch.now[0] - torch.tensor(d, dtype=torch.float64)]
    return batch


def scraped(sidecar, run):
    """Return a run's samples by name; labels but the run's stay in the name."""
    mark = f'run="{run}"'
    found = {name: value for name, value in sidecar.metrics().items() if mark in name}
    return {re.sub(f",?{mark},?", "", name).replace("{}", ""): value for name, value in found.items()}


def test_an_extreme_token_is_finite_everywhere(installed, sidecar, connected):
    connected(sidecar, "extreme")
    batch = of_log_ratios(89.0, *[0.01] * 19)
    batch.now[0][0], batch.mu[0][0] = -2.0, -91.0
    loss, metrics, gradient = batch.run(installed.ppo_loss, actor_config())
    assert loss.isfinite() and torch.cat(gradient).isfinite().all()
    found = scraped(sidecar, "extreme")
    assert all(math.isfinite(value) for value in found.values())
    assert found["satwatch_extreme_tokens_total"] == 1
    # exp(89) is finite in float64, and the raw log-ratio is kept: verl's own would be 20.
    assert found["satwatch_log_ratio_abs_max"] == 89
    assert all(math.isfinite(value) for metric in metrics.values() for value in metric.values)


def test_nan_and_infinite_tokens_are_counted_and_in_no_mean(installed, sidecar, connected):
    connected(sidecar, "unsound")
    loss, metrics, _ = of_log_ratios(0.01, 0.01, math.nan, math.inf).run(installed.ppo_loss, actor_config())
    assert loss.isfinite()
    found = scraped(sidecar, "unsound")
    assert found["satwatch_log_ratio_abs_mean"] == pytest.approx(0.01)
    assert found["satwatch_nan_tokens_total"] == 1 and found["satwatch_inf_tokens_total"] == 1
    assert metrics["satwatch/log_ratio_abs_mean"].values == [pytest.approx(0.01)]
    assert metrics["satwatch/nan_tokens"].values == metrics["satwatch/inf_tokens"].values == [1.0]


def test_the_quantile_of_two_ranks_is_that_of_their_tokens(installed, sidecar, connected):
    for rank, d in enumerate(([0.01] * 1000, [0.01] * 980 + [1.0] * 20)):
        client = connected(sidecar, "ranks", rank, 2)
        of_log_ratios(*d).run(installed.ppo_loss, actor_config())
        assert client.stats.bounds_from_sidecar == 1
    found = scraped(sidecar, "ranks")
    assert found["satwatch_tokens_total"] == 2000
    assert found['satwatch_log_ratio_abs{q="0.99"}'] == pytest.approx(0.01, rel=2**-7)


def test_one_token_far_out_sets_the_largest_ratio(installed, sidecar, connected):
    connected(sidecar, "far")
    d = torch.linspace(-0.01, 0.01, 19_999, dtype=torch.float64).tolist()
    of_log_ratios(8.0, *d).run(installed.ppo_loss, actor_config())
    assert scraped(sidecar, "far")["satwatch_ratio_max"] == pytest.approx(2980.96, abs=0.005)


def test_the_bounds_of_the_sidecar_are_those_of_the_rule(installed, sidecar, connected):
    client = connected(sidecar, "bounds")
    batch = Batch()
    loss, _, gradient = batch.run(installed.ppo_loss, actor_config())
    value, slope = expected(batch)
    assert float(loss) == pytest.approx(value, rel=1e-8)
    torch.testing.assert_close(torch.cat(gradient), torch.cat(slope), rtol=1e-7, atol=1e-12)
    assert client.stats.bounds_from_sidecar == 1


def test_a_sidecar_that_dies_costs_a_deadline_and_not_a_bit_of_the_loss(installed, sidecar, connected, caplog):
    client = connected(sidecar, "dead")
    batches = [Batch(seed=seed) for seed in range(4)]
    alive = [batch.run(installed.ppo_loss, actor_config()) for batch in batches]
    assert client.stats.bounds_from_sidecar == 4
    sidecar.kill()
    start = time.monotonic()
    with caplog.at_level(logging.WARNING, "satwatch"):
        dead = [batch.run(installed.ppo_loss, actor_config()) for batch in batches]
    assert time.monotonic() - start < 20.0
    for (loss, _, gradient), (loss_2, _, gradient_2) in zip(alive, dead, strict=True):
        assert loss == loss_2 and all(map(torch.equal, gradient, gradient_2))
    metrics = dead[-1][1]
    assert metrics["satwatch/breaker_open"].values == [1.0]
    assert metrics["satwatch/client_fallbacks"].values == [4.0]
    assert len(caplog.records) == 1
