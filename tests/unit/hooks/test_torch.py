"""Any loop: radii for a loss of one's own, one attachment a client, and nothing kept of a client that is gone."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from satwatch.client import FakeClient
from satwatch.errors import ConfigError
from satwatch.hooks import torch as hook
from satwatch.hooks import use
from satwatch.hooks.core import settings
from satwatch.sat import clip_bounds, surrogate
from satwatch.types import Rule


@pytest.fixture(autouse=True)
def _nothing_attached(monkeypatch):
    monkeypatch.setattr(hook, "_from_environment", [])
    monkeypatch.setattr(settings, "_process_client", [])
    for name in ("SATWATCH_RUN", "SATWATCH_ADDRESS", "SATWATCH_CLIENT_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def _batch():
    generator = torch.Generator().manual_seed(0)
    mu = -torch.rand(6, 20, generator=generator, dtype=torch.float64)
    logprob = mu + torch.randn(6, 20, generator=generator, dtype=torch.float64) * 0.1
    return logprob, mu, torch.randn(6, 1, generator=generator, dtype=torch.float64)


def test_the_sign():
    client = FakeClient()
    hook.clip_radii(torch.tensor([-1.0]), torch.tensor([-3.0]), client=client)
    assert client.calls[0].batch.log_ratio.tolist() == [2.0]


def test_a_loss_with_the_radii_where_its_epsilons_were_is_sats():
    logprob, mu, advantage = _batch()
    logprob.requires_grad_()
    ratio = (logprob - mu).exp()
    low, high = hook.clip_radii(logprob, mu, client=FakeClient(), advantage=advantage)
    loss = -torch.min(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage).mean()
    (gradient,) = torch.autograd.grad(loss, logprob)

    d = logprob.detach() - mu
    bounds = clip_bounds(d)
    expected = -surrogate(d, advantage, bounds).mean()
    r, a = d.exp(), advantage.expand_as(d)
    free = ~(((a > 0) & (r > bounds.high)) | ((a < 0) & (r < bounds.low)))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(gradient, -(r * a * free) / d.numel(), rtol=1e-12, atol=0)
    nominal = ~(((a > 0) & (r > 1.2)) | ((a < 0) & (r < 0.8)))
    assert (nominal & ~free).any()  # else PPO's radii would have passed, too


def test_metrics_of_a_client_are_its_own():
    one, other = FakeClient(), FakeClient(rule=Rule(enabled=False))
    logprob, mu, _ = _batch()
    hook.clip_radii(logprob, mu, client=one)
    hook.clip_radii(logprob[:2], mu[:2], client=other)
    assert hook.metrics(one)["satwatch/tokens"] == 120
    assert hook.metrics(other)["satwatch/tokens"] == 40
    assert "satwatch/tokens" not in hook.metrics(one)
    assert hook.attachment(one) is hook.attachment(one)
    assert hook.attachment(one) is not hook.attachment(other)


def test_a_client_that_is_forgotten_is_gone_with_its_attachment():
    client = FakeClient()
    logprob, mu, _ = _batch()
    low, _ = hook.clip_radii(logprob, mu, client=client)
    refs = [weakref.ref(client), weakref.ref(hook.attachment(client))]
    del client
    gc.collect()
    assert [ref() for ref in refs] == [None, None]
    assert low.shape == logprob.shape


def test_radii_may_be_looked_at_when_the_client_is_gone():
    logprob, mu, _ = _batch()
    radii = hook.clip_radii(logprob, mu, client=FakeClient())
    gc.collect()
    assert torch.equal(radii.bounds.low, clip_bounds(logprob - mu).low)


def test_without_a_client_it_is_the_processs_also_when_that_changes():
    logprob, mu, _ = _batch()
    one, other = FakeClient(), FakeClient()
    for client in (one, other, one):
        use(client)
        hook.clip_radii(logprob, mu)
    assert (len(one.calls), len(other.calls)) == (2, 1)
    assert hook.metrics()["satwatch/tokens"] == 240


def test_else_the_environments_and_without_one_it_is_an_error(monkeypatch):
    logprob, mu, _ = _batch()
    with pytest.raises(ConfigError, match="SATWATCH_RUN"):
        hook.clip_radii(logprob, mu)
    monkeypatch.setenv("SATWATCH_RUN", "of-the-environment")
    attachment = hook.attachment()
    assert "run='of-the-environment'" in repr(attachment.client)
    assert hook.attachment() is attachment


def test_a_compiled_loss_may_call_it():
    client = FakeClient()
    logprob, mu, advantage = _batch()

    def loss(logprob):
        ratio = (logprob - mu).exp()
        low, high = hook.clip_radii(logprob, mu, client=client, advantage=advantage)
        return -torch.min(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage).mean()

    torch._dynamo.reset()
    compiled = torch.compile(loss, backend="eager")
    gradients = []
    for function in (loss, compiled):
        leaf = logprob.clone().requires_grad_()
        gradients.append(torch.autograd.grad(function(leaf), leaf)[0])
    assert torch.equal(*gradients)
    assert len(client.calls) == 2
