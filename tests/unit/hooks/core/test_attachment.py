"""A hook asks, hands out radii and counts; whatever is wrong with a batch, a client or satwatch, the run goes on."""

from __future__ import annotations

import copy
import gc
import logging
import math
import multiprocessing
import os
import pickle
import threading
import weakref
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from satwatch.client import FakeClient, connect
from satwatch.errors import ConfigError, DeadlineError, InvalidBatchError
from satwatch.hooks import Attachment, use
from satwatch.hooks.core import heartbeat, settings
from satwatch.hooks.core.attachment import subtract
from satwatch.hooks.core.summed import SummedAttachment
from satwatch.sat import clip_bounds
from satwatch.types import Rule


def _batch(rows=4, tokens=25, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    mu = -torch.rand(rows, tokens, generator=generator)
    logprob = mu + torch.randn(rows, tokens, generator=generator) * 0.05
    return logprob.to(dtype), mu.to(dtype)


def _nominal(radii, rule=None):
    rule = Rule() if rule is None else rule
    eps_low, eps_high = torch.tensor(1 - rule.eps_low), torch.tensor(1 + rule.eps_high)
    return bool((radii.bounds.low == eps_low).all() and (radii.bounds.high == eps_high).all())


def _same(one, other):
    return torch.equal(one.low, other.low) and torch.equal(one.high, other.high)


class Scripted(FakeClient):
    """Answers when told to, with what it is told."""

    def __init__(self, **given):
        super().__init__(**given)
        self.futures = []

    def submit(self, log_ratio, **batch):
        self.calls.append((log_ratio, batch))
        self.futures.append(Future())
        return self.futures[-1]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Leave out what other tests' hooks have to say of these optimizers."""
    monkeypatch.setattr(heartbeat, "_beating", ())


@pytest.fixture
def warned(caplog):
    caplog.set_level(logging.WARNING, "satwatch")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "satwatch"]


# What is sent


def test_the_log_ratio_is_above_zero_where_the_trainer_likes_the_token_better_than_the_engine():
    client = FakeClient()
    Attachment("test", client).ask(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -1.0]]))
    assert client.calls[0].batch.log_ratio.tolist() == [[0.5, -1.0]]
    assert client.calls[0].submitted


def test_everything_that_is_known_is_sent():
    client, (logprob, mu) = FakeClient(), _batch()
    mask, advantage = torch.ones(4, 25), torch.randn(4)
    Attachment("test", client).ask(
        logprob,
        mu,
        mask=mask,
        advantage=advantage,
        reference_logprob=mu * 0.9,
        policy_version=7,
        behavior_version=[4, 5, 6, 6],
        microbatch=3,
    )
    sent = client.calls[0].batch
    assert torch.equal(sent.log_ratio, logprob - mu)
    assert torch.equal(sent.behavior_logprob, mu)
    assert torch.equal(sent.reference_logprob, mu * 0.9)
    assert torch.equal(sent.advantage, advantage)
    assert sent.mask.all()
    assert (sent.policy_version, sent.step, sent.microbatch) == (7, 0, 3)
    assert sent.behavior_versions.values.tolist() == [4, 5, 6, 6]


def test_the_radii_are_those_of_the_rule():
    client, (logprob, mu) = FakeClient(rule=Rule(quantile=0.8, eps_high=0.28)), _batch()
    mask = torch.rand(4, 25, generator=torch.Generator().manual_seed(3)) < 0.7
    radii = Attachment("test", client).ask(logprob, mu, mask=mask)
    expected = clip_bounds(logprob - mu, mask=mask, quantile=0.8, eps_high=0.28)
    assert expected.gate.any()
    assert _same(radii.bounds, expected)
    assert torch.equal(1 - radii.low, expected.low)


def test_the_gradient_is_left_alone():
    logprob, mu = _batch()
    logprob.requires_grad_()
    radii = Attachment("test", FakeClient()).ask(logprob, mu)
    assert not radii.low.requires_grad
    ((logprob - mu).exp().clamp(1 - radii.low, 1 + radii.high)).sum().backward()
    assert logprob.grad.isfinite().all()


def test_steps_are_counted_by_the_optimizers_unless_the_trainer_says_which_it_is():
    client, (logprob, mu) = FakeClient(), _batch()
    attachment = Attachment("test", client)
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(2):
        attachment.ask(logprob, mu)
        attachment.ask(logprob, mu)
        optimizer.step()
    attachment.ask(logprob, mu, step=77)
    assert [call.batch.step for call in client.calls] == [0, 0, 1, 1, 77]
    assert attachment.drain()["satwatch/hook_calls_per_step"] == 2


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.bfloat16, torch.bfloat16, torch.float32),
        (torch.float16, torch.float32, torch.float32),
        (torch.float32, torch.float64, torch.float64),
        (torch.float64, torch.bfloat16, torch.float64),
        (torch.float8_e5m2, torch.float32, torch.float32),
    ],
)
def test_any_float_dtype_is_subtracted_in_single_precision_or_better(ours, theirs, expected, warned):
    logprob, mu = torch.tensor([-1.0, -2.0]).to(ours), torch.tensor([-1.5, -0.75]).to(theirs)
    assert subtract(logprob, mu).dtype == expected
    assert subtract(logprob, mu).tolist() == [0.5, -1.25]
    client = FakeClient()
    radii = Attachment("test", client).ask(logprob, mu)
    assert radii.low.dtype == expected
    assert client.calls[0].batch.log_ratio.dtype == expected
    assert warned() == []


def test_a_dtype_that_cannot_be_sent_as_it_is_costs_that_field_and_no_more(warned):
    client = FakeClient()
    logprob, mu = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -0.75]).to(torch.float8_e5m2)
    attachment = Attachment("test", client)
    attachment.ask(logprob, mu, step=4)
    assert client.calls[0].batch.log_ratio.tolist() == [0.5, -1.25]
    assert (client.calls[0].batch.behavior_logprob, client.calls[0].batch.step) == (None, 4)
    assert len(warned()) == 1


def test_lists_with_a_row_a_sequence_come_back_flat():
    client = FakeClient(rule=Rule(level="sequence", quantile=0.5))
    logprob = [torch.full((3,), -1.0), torch.full((1,), -2.0), torch.full((2,), -1.0)]
    mu = [torch.full((3,), -1.1), torch.full((1,), -1.0), torch.full((2,), -1.01)]
    masks = [torch.ones(3), torch.ones(1), torch.tensor([1, 0])]
    radii = Attachment("test", client).ask(logprob, mu, mask=masks, behavior_version=[1, 2, 3], policy_version=3)
    assert client.calls[0].batch.sequence_lengths.tolist() == [3, 1, 2]
    d = torch.cat(logprob) - torch.cat(mu)
    expected = clip_bounds(d, mask=torch.cat(masks), sequence_lengths=[3, 1, 2], level="sequence", quantile=0.5)
    assert _same(radii.bounds, expected)
    assert radii.low.split([3, 1, 2])[1].item() < 0.2


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0)])
def test_an_empty_batch(shape, warned):
    attachment = Attachment("test", FakeClient())
    radii = attachment.ask(torch.empty(shape), torch.empty(shape), behavior_version=1, policy_version=1)
    assert radii.low.shape == radii.high.shape == shape
    assert attachment.drain()["satwatch/tokens"] == 0
    assert warned() == []


def test_log_probs_of_minus_infinity_and_nan_are_counted_and_poison_nothing():
    inf, nan = math.inf, math.nan
    logprob = torch.tensor([[-inf, -inf, -1.0, nan, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0]])
    mu = torch.tensor([[-inf, -1.0, -inf, -1.0, nan, -1.1, -1.1, -1.1, -1.1, -1.1, -1.1, -1.1]])
    attachment = Attachment("test", FakeClient(rule=Rule(quantile=0.5)))
    radii = attachment.ask(logprob, mu)
    low, high = radii.low[0], radii.high[0]
    assert low.isfinite().all()
    assert high.isfinite().all()
    assert [low[i].item() for i in (0, 3, 4)] == [pytest.approx(0.2)] * 3
    assert low[1].item() == high[2].item() == 0.0
    out = attachment.drain()
    assert (out["satwatch/nan_tokens"], out["satwatch/inf_tokens"], out["satwatch/hook_faults"]) == (3, 2, 0)
    assert out["satwatch/log_ratio_mean"] == pytest.approx(0.1)


def test_garbage_in_the_padding_does_nothing():
    client, (logprob, mu) = FakeClient(), _batch()
    mask = torch.ones(4, 25)
    mask[:, 20:] = 0
    clean = Attachment("test", client).ask(logprob, mu, mask=mask)
    dirty = logprob.clone()
    dirty[:, 20] = math.nan
    dirty[:, 21:] = 1e30
    attachment = Attachment("test", client)
    radii = attachment.ask(dirty, mu, mask=mask)
    assert _same(radii.bounds, clean.bounds)
    assert radii.bounds.gate.any()
    assert attachment.drain()["satwatch/nan_tokens"] == 0


# When it is looked at


def test_asking_waits_for_nothing_and_looking_waits_for_the_answer():
    client, (logprob, mu) = Scripted(), _batch()
    attachment = Attachment("test", client)
    radii = attachment.ask(logprob, mu)
    assert not radii.is_resolved
    assert not radii.has_arrived
    answer = clip_bounds(torch.full_like(logprob, 0.1), eps_low=0.1)
    threading.Timer(0.05, lambda: client.futures[0].set_result(answer)).start()
    assert _same(radii.bounds, answer)


def test_asking_reads_no_number_of_a_tensor(monkeypatch):
    # On a CUDA device each of these would wait for what the trainer has queued.
    client, (logprob, mu) = Scripted(), _batch()
    mask, versions = torch.ones(4, 25), torch.tensor([1, 2, 3, 3])
    answer = clip_bounds(logprob - mu, mask=mask)
    attachment = Attachment("test", client)
    reads = []
    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__", "nonzero"):
        real = getattr(torch.Tensor, name)

        def read(self, *given, name=name, real=real, **named):
            reads.append(name)
            return real(self, *given, **named)

        monkeypatch.setattr(torch.Tensor, name, read)
    for _ in range(3):
        radii = attachment.ask(logprob, mu, mask=mask, policy_version=4, behavior_version=versions)
        client.futures[-1].set_result(answer)
        _ = radii.low, radii.high
    assert reads == []
    out = attachment.drain()
    assert reads == ["tolist"]
    assert out["satwatch/tokens"] == 300
    assert out["satwatch/version_lag_max"] == 3


def test_the_trainer_may_overwrite_its_tensors_after_asking():
    client, (logprob, mu) = Scripted(), _batch()
    mask = torch.ones(4, 25, dtype=torch.bool)
    mask[0] = False
    expected = clip_bounds(logprob - mu, mask=mask)
    attachment = Attachment("test", client)
    radii = attachment.ask(logprob, mu, mask=mask)
    for tensor in (logprob, mu, mask):
        tensor.zero_()
    client.futures[0].set_exception(RuntimeError("broken"))
    assert _same(radii.bounds, expected)
    assert attachment.drain()["satwatch/tokens"] == 75


def test_batches_that_nobody_looks_at_are_taken_in_when_their_answers_are_there():
    # A run that is only watched, and a trainer that logs once in a while: no batch may be kept until then.
    client, (logprob, mu) = Scripted(), _batch()
    attachment = Attachment("test", client)
    kept, answer = [], clip_bounds(logprob - mu)
    for number in range(200):
        kept.append(weakref.ref(attachment.ask(logprob.clone(), mu)))
        client.futures[-1].set_result(replace(answer, quantile_reference=torch.tensor(5.0)) if number == 3 else answer)
        client.futures[-1] = client.calls[-1] = None
    gc.collect()
    assert sum(ref() is not None for ref in kept) <= 1
    out = attachment.drain()
    assert out["satwatch/tokens"] == 200 * 100
    assert out["satwatch/gate_rate"] == pytest.approx(0.1, abs=0.01)
    assert out["satwatch/quantile_reference"] == 5.0  # one of long ago


def test_answers_that_do_not_come_are_not_kept_without_end():
    client, (logprob, mu) = Scripted(), _batch()
    attachment = Attachment("test", client)
    kept = [weakref.ref(attachment.ask(logprob, mu)) for _ in range(100)]
    gc.collect()
    alive = [ref for ref in kept if ref() is not None]
    assert len(alive) == 32
    assert alive == kept[-32:]
    for future in client.futures:
        future.set_result(clip_bounds(logprob - mu))
    assert attachment.drain()["satwatch/tokens"] == 100 * 100


def test_a_batch_that_could_not_be_sent_does_not_keep_the_forward_pass():
    logprob, mu = _batch()
    logprob.requires_grad_()
    forward = logprob * 1.0
    ref = weakref.ref(forward)
    radii = Attachment("test", FakeClient()).ask(forward, mu, mask=torch.ones(3))
    del forward
    gc.collect()
    assert ref() is None
    assert _nominal(radii)


def test_drain_waits_for_answers_on_their_way_and_starts_over():
    client, (logprob, mu) = Scripted(), _batch()
    attachment = Attachment("test", client)
    attachment.ask(logprob, mu, policy_version=3, behavior_version=1)
    threading.Timer(0.05, lambda: client.futures[0].set_result(clip_bounds(logprob - mu))).start()
    out = attachment.drain()
    expected = clip_bounds(logprob - mu)
    assert out["satwatch/quantile_reference"] == pytest.approx(float(expected.quantile_reference))
    assert out["satwatch/version_lag_mean"] == 2
    again = attachment.drain()
    assert "satwatch/tokens" not in again
    assert again["satwatch/hook_faults"] == 0


def test_what_drain_says_of_the_hook_itself():
    client, (logprob, mu) = FakeClient([None, "local", "nominal"]), _batch()
    attachment = Attachment("test", client)
    for _ in range(3):
        attachment.ask(logprob, mu, decoupled=True)
    out = attachment.drain()
    assert out["satwatch/client_fallbacks"] == 2
    assert out["satwatch/breaker_open"] == 0
    assert out["satwatch/decoupled"] == 1
    assert "satwatch/hook_calls_per_step" not in out
    assert all(type(value) is float for value in out.values())
    attachment.ask(logprob, mu)
    assert attachment.drain()["satwatch/decoupled"] == 0


# What goes wrong


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("advantage", torch.ones(7)),
        ("advantage", "much"),
        ("reference_logprob", torch.ones(4, 25, dtype=torch.int64)),
        ("policy_version", 1.5),
        ("behavior_version", torch.ones(3, 3)),
        ("step", -1),
        ("microbatch", "first"),
        ("routing", object()),
        ("behavior_version", [torch.ones(25, dtype=torch.int64, device="meta")] * 4),
        ("no_such_field", 1),
    ],
)
def test_a_field_that_cannot_be_read_is_left_out_and_said_once(name, value, warned):
    client, (logprob, mu) = FakeClient(), _batch()
    attachment = Attachment("test", client)
    good = {"advantage": torch.ones(4), "policy_version": 3, "behavior_version": 2, "step": 9}
    for _ in range(5):
        radii = attachment.ask(logprob, mu, mask=torch.ones(4, 25), **{**good, name: value})
        assert _same(radii.bounds, clip_bounds(logprob - mu))
    sent = client.calls[-1].batch
    assert sent.mask is not None
    assert sent.behavior_logprob is not None
    read = {
        "advantage": sent.advantage is not None,
        "policy_version": sent.policy_version == 3,
        "behavior_version": sent.behavior_versions is not None,
        "step": sent.step == 9,
    }
    assert read == {field: field != name for field in read}
    assert len(client.calls) == 5
    assert len(warned()) == 1
    assert name in warned()[0] or "meta tensor" in warned()[0]
    assert attachment.drain()["satwatch/hook_faults"] == 5


@pytest.mark.parametrize(
    ("logprob", "mu", "fields"),
    [
        (torch.zeros(2, 3), torch.zeros(2, 4), {}),
        (torch.zeros(2, 3), None, {}),
        (torch.zeros(2, 3), torch.zeros(2, 3), {"mask": torch.ones(2, 4)}),
        (torch.zeros(2, 3), torch.zeros(2, 3), {"mask": "all"}),
        (torch.zeros(6), torch.zeros(6), {"sequence_lengths": [3, 4]}),
        (torch.zeros(2, 3, 4), torch.zeros(2, 3, 4), {}),
        (torch.zeros(2, 3).to_sparse(), torch.zeros(2, 3), {}),
    ],
)
def test_a_batch_that_cannot_be_bounded_gets_ppos_interval(logprob, mu, fields, warned):
    client = FakeClient(rule=Rule(eps_low=0.1, eps_high=0.3))
    attachment = Attachment("test", client)
    for _ in range(3):
        radii = attachment.ask(logprob, mu, **fields)
        assert _nominal(radii, client.rule)
        assert radii.low.shape in (logprob.shape, ())
    assert client.calls == []
    assert attachment.drain()["satwatch/hook_faults"] == 3
    assert len(warned()) == 1


def test_what_is_no_tensor_at_all_still_gets_radii_that_fit():
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)
    for logprob in (None, "much", nested):
        low, high = Attachment("test", FakeClient()).ask(logprob, torch.zeros(2))
        assert low.shape == high.shape == ()
        assert [float(low), float(high)] == [pytest.approx(0.2)] * 2


def test_different_faults_are_said_each_and_not_without_end(warned):
    attachment = Attachment("test", FakeClient())
    for size in range(5, 15):
        attachment.ask(torch.zeros(2, 3), torch.zeros(2, size))
    assert len(warned()) == 1
    for number in range(100):
        attachment.ask(torch.zeros(3), torch.zeros(3), **{f"field{number}": 1})
    assert len(warned()) <= 16
    assert attachment.drain()["satwatch/hook_faults"] == 110


@pytest.mark.parametrize("breaks", ["submit", "future", "cancelled", "junk", "shape"])
def test_a_client_that_breaks_costs_nothing_but_itself(breaks, warned):
    logprob, mu = _batch()
    wrong = {"junk": SimpleNamespace(low=1), "shape": clip_bounds(torch.zeros(3))}

    class Broken(FakeClient):
        def submit(self, log_ratio, **batch):
            future = Future()
            if breaks == "submit":
                raise RuntimeError(breaks)
            if breaks == "future":
                future.set_exception(OSError("gone"))
            elif breaks == "cancelled":
                future.cancel()
            else:
                future.set_result(wrong[breaks])
            return future

    attachment = Attachment("test", Broken(rule=Rule(quantile=0.8)))
    for _ in range(3):
        radii = attachment.ask(logprob, mu)
        assert _same(radii.bounds, clip_bounds(logprob - mu, quantile=0.8))
    out = attachment.drain()
    assert out["satwatch/hook_faults"] == 3
    assert out["satwatch/tokens"] == 300
    assert len(warned()) == 1


def test_a_fault_of_the_metrics_costs_the_metrics_and_not_the_bounds(monkeypatch, warned):
    logprob, mu = _batch()
    attachment = Attachment("test", FakeClient())

    def fail(*given):
        raise RuntimeError

    for name in ("add_batch", "add_bounds", "read"):
        monkeypatch.setattr(attachment._metrics, name, fail)
    radii = attachment.ask(logprob, mu)
    assert _same(radii.bounds, clip_bounds(logprob - mu))
    assert radii.bounds.gate.any()
    assert attachment.drain()["satwatch/hook_faults"] == 3
    assert len(warned()) == 1


def test_a_client_whose_counts_cannot_be_read_does_not_break_the_log():
    class Broken(FakeClient):
        @property
        def stats(self):
            raise RuntimeError

    out = Attachment("test", Broken()).drain()
    assert out["satwatch/hook_faults"] == 1
    assert "satwatch/breaker_open" not in out


def test_bounds_that_cannot_even_be_computed_here_are_ppos(monkeypatch):
    logprob, mu = _batch()

    def fail(*given):
        raise MemoryError

    monkeypatch.setattr("satwatch.hooks.core.attachment.local_bounds", fail)
    assert _nominal(Attachment("test", FakeClient([RuntimeError("broken")])).ask(logprob, mu))
    assert _nominal(Attachment("test", FakeClient(), sends=False).ask(logprob, mu))


def test_only_a_client_that_raises_raises_and_only_when_looked_at():
    client, (logprob, mu) = FakeClient([DeadlineError("late")] * 2), _batch()
    attachment = Attachment("test", client)
    radii = attachment.ask(logprob, mu)
    with pytest.raises(DeadlineError):
        _ = radii.low
    attachment.ask(logprob, mu)
    with pytest.raises(DeadlineError):
        attachment.drain()
    assert _same(attachment.ask(logprob, mu).bounds, clip_bounds(logprob - mu))
    assert attachment.drain()["satwatch/hook_faults"] == 0


def test_a_keyboard_interrupt_is_no_fault():
    class Interrupted(FakeClient):
        def submit(self, log_ratio, **batch):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Attachment("test", Interrupted()).ask(*_batch())


# How it attaches


def test_whether_it_guards_is_the_rules():
    assert Attachment("test", FakeClient()).guards
    watching = Attachment("test", FakeClient(rule=Rule(enabled=False)))
    assert not watching.guards
    logprob, mu = _batch()
    assert _nominal(watching.ask(logprob, mu))
    assert watching.drain()["satwatch/gate_rate"] == 0
    assert len(watching.client.calls) == 1


def test_other_radii_or_level_than_the_trainers_are_an_error_at_once():
    for wrong in ({"eps_low": 0.1}, {"eps_high": 0.28}, {"level": "sequence"}):
        with pytest.raises(ConfigError):
            Attachment("test", FakeClient(), **wrong)


def test_without_a_client_the_environments_is_asked(monkeypatch):
    monkeypatch.setattr(settings, "_process_client", [])
    for name in ("SATWATCH_RUN", "SATWATCH_CLIENT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError):
        Attachment("test")
    attachment = Attachment("test", eps_high=0.3, run="mine", rank=2, world_size=4)
    assert attachment.rule == Rule(eps_high=0.3, min_reference=1e-3)
    assert (attachment.client.rank, attachment.client.world_size) == (2, 4)
    process = FakeClient()
    use(process)
    assert Attachment("test").client is process


def test_a_rank_that_does_not_send_bounds_what_it_holds_by_the_same_rule(warned):
    client, (logprob, mu) = FakeClient(rule=Rule(quantile=0.7)), _batch()
    mask = torch.rand(4, 25, generator=torch.Generator().manual_seed(3)) < 0.7
    sender, peer = Attachment("test", client), Attachment("test", client, sends=False)
    one, other = sender.ask(logprob, mu, mask=mask), peer.ask(logprob, mu, mask=mask)
    assert len(client.calls) == 1
    assert _same(one.bounds, other.bounds)
    ours, theirs = peer.drain(), sender.drain()
    assert {name: ours[name] for name in ours if "client" not in name} == {
        name: theirs[name] for name in theirs if "client" not in name
    }
    assert warned() == []


def test_pickled_it_attaches_anew():
    attachment = Attachment("test", connect(run="r", eps_low=0.1), eps_low=0.1, level="token", sends=False)
    attachment.ask(*_batch())
    again = pickle.loads(pickle.dumps(attachment))
    assert again.trainer == "test"
    assert again.client is not attachment.client
    assert again.rule == attachment.rule
    assert "satwatch/tokens" not in again.drain()
    assert attachment.drain()["satwatch/tokens"] == 100
    again.ask(*_batch(rows=1))
    assert again.client.stats.batches_sent == 0  # it does not send, as before
    assert again.drain()["satwatch/tokens"] == 25


def test_however_it_is_copied_it_stays_what_it_was():
    attachment = SummedAttachment("test", connect(run="r"))
    for again in (pickle.loads(pickle.dumps(attachment)), copy.deepcopy(attachment), copy.copy(attachment)):
        assert type(again) is SummedAttachment
        again.ask(*_batch())
        assert again.parts(total=100)["satwatch/tokens"] == 100


def test_one_of_the_environment_is_pickled_without_a_client(monkeypatch):
    monkeypatch.setattr(settings, "_process_client", [])
    monkeypatch.setenv("SATWATCH_RUN", "here")
    data = pickle.dumps(Attachment("test"))
    monkeypatch.setenv("SATWATCH_RUN", "there")
    assert "run='there'" in repr(pickle.loads(data).client)


def test_a_deep_copy_of_what_holds_it_shares_the_client():
    client = FakeClient()  # which itself can't be copied
    holder = SimpleNamespace(attachment=Attachment("test", client), eps=0.2)
    holder.attachment.ask(*_batch())
    again = copy.deepcopy(holder)
    assert again.attachment is not holder.attachment
    assert again.attachment.client is client
    assert "satwatch/tokens" not in again.attachment.drain()
    assert holder.attachment.drain()["satwatch/tokens"] == 100


def test_many_of_them_and_an_optimizer(warned):
    client, (logprob, mu) = FakeClient(), _batch()
    many = [Attachment(f"test{i}", client) for i in range(20)]
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    optimizer = torch.optim.Adam([parameter])
    for _ in range(5):
        for attachment in many:
            attachment.ask(logprob, mu)
        optimizer.step()
    assert {attachment.drain()["satwatch/hook_calls_per_step"] for attachment in many} == {1.0}
    assert warned() == []


def test_a_compiled_loss_may_ask():
    client, (logprob, mu) = FakeClient(), _batch()
    attachment = Attachment("test", client)

    def loss(logprob):
        ratio = (logprob - mu).exp()
        low, high = attachment.ask(logprob, mu)
        return ratio.clamp(1 - low, 1 + high).mean()

    plain = loss(logprob)
    torch._dynamo.reset()
    assert torch.compile(loss, backend="eager")(logprob) == plain
    assert len(client.calls) == 2
    assert torch.equal(client.calls[0].batch.log_ratio, client.calls[1].batch.log_ratio)


def test_it_works_in_inference_mode_and_under_another_default_device_and_dtype():
    logprob, mu = _batch()
    expected = clip_bounds(logprob - mu)
    attachment = Attachment("test", FakeClient(["local", RuntimeError("broken")]))
    torch.set_default_device("meta")
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.inference_mode():
            one = attachment.ask(logprob, mu, behavior_version=1, policy_version=2)
            other = attachment.ask(logprob, mu, mask=np.ones((4, 25)))
            assert _same(one.bounds, expected)
            assert _same(other.bounds, expected)
            out = attachment.drain()
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    assert out["satwatch/tokens"] == 200
    assert out["satwatch/hook_faults"] == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_waits_for_no_answer_of_its_parents_and_reports_its_own():
    client, (logprob, mu) = Scripted(), _batch()
    attachment = Attachment("test", client)
    radii = attachment.ask(logprob, mu)

    def child(queue):
        torch.set_num_threads(1)
        same = _same(radii.bounds, clip_bounds(logprob - mu))
        attachment.ask(logprob[:1], mu[:1])
        client.futures[-1].set_result(clip_bounds(logprob[:1] - mu[:1]))
        queue.put((same, attachment.drain()["satwatch/tokens"]))

    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    process.join(30)
    try:
        assert process.exitcode == 0
        assert queue.get() == (True, 25.0)
    finally:
        process.kill()
    client.futures[0].set_result(clip_bounds(logprob - mu))
    assert attachment.drain()["satwatch/tokens"] == 100


def test_two_shapes_are_no_log_ratio():
    with pytest.raises(InvalidBatchError, match=r"behavior_logprob: got shape \(2,\), required \(3,\)"):
        subtract(torch.zeros(3), torch.zeros(2))


@pytest.mark.parametrize(("sends", "on_failure"), [(False, "local"), (False, "raise"), (True, "nominal")])
def test_a_rank_that_sends_nothing_takes_a_client_whose_misses_leave_the_bounds_alone(sends, on_failure):
    with connect("127.0.0.1:1", run="r", on_failure=on_failure) as client:
        assert Attachment("t", client, sends=sends).rule == client.rule


def test_a_rank_that_sends_nothing_refuses_a_client_whose_misses_change_the_bounds():
    refusal = "on_failure: got 'nominal', required 'local'"
    with connect("127.0.0.1:1", run="r", on_failure="nominal") as client, pytest.raises(ConfigError, match=refusal):
        Attachment("t", client, sends=False)
