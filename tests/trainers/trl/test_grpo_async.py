"""SatAsyncGRPOTrainer: TRL's asynchronous trainer with a rollout thread, weight sync, and versions for each sample.

Two of TRL's parts exist for GPUs only: its variable-length attention and its table of devices' peak FLOPs. They have
stand-ins here; all else is TRL's.
"""

from __future__ import annotations

import copy
import math
import queue
import tempfile
import threading
import time
import traceback
import types
from concurrent.futures import Future
from itertools import pairwise

import numpy as np
import pytest
import torch
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer, packing
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

import satwatch
import tests.trainers.trl.tiny as tiny
from satwatch.client import FakeClient
from satwatch.errors import ConfigError, DeadlineError
from satwatch.hooks.trl import SatAsyncGRPOTrainer
from satwatch.types import Rule

GUARD = Rule(min_reference=1e-3)
WATCH = Rule(enabled=False)


def attention(queries, keys, values, query_ends, key_ends, *_, softmax_scale=None, **__):
    """What variable-length flash attention computes: each segment's queries over its own keys, which end with it."""
    groups = queries.shape[1] // keys.shape[1]
    parts = []
    for (a, b), (c, d) in zip(pairwise(query_ends), pairwise(key_ends), strict=True):
        q, k, v = queries[a:b], keys[c:d], values[c:d]
        k, v = (t.repeat_interleave(groups, 1).transpose(0, 1) for t in (k, v))
        scores = q.transpose(0, 1) @ k.transpose(1, 2) * (softmax_scale or q.shape[-1] ** -0.5)
        later = torch.arange(d - c) > torch.arange(b - a)[:, None] + int((d - c) - (b - a))
        parts.append((scores.masked_fill(later, -math.inf).softmax(-1) @ v).transpose(0, 1))
    return torch.cat(parts)


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch):
    monkeypatch.setattr(packing, "_flash_attn", lambda: types.SimpleNamespace(flash_attn_varlen_func=attention))
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_, **__: 1e12)
    for name in ("SATWATCH_RUN", "SATWATCH_ADDRESS", "SATWATCH_CLIENT_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as path:
        tiny.model().save_pretrained(path)
        tiny.TOKENIZER.save_pretrained(path)
        yield path


def sample(prompt, completion, logprobs, advantage, version, group):
    return RolloutSample(
        prompt=[{"role": "user", "content": ""}],
        completion=[{"role": "assistant", "content": ""}],
        input_ids=np.array(prompt + completion),
        completion_mask=np.array([0] * len(prompt) + [1] * len(completion)),
        old_log_probs=np.array([0.0] * len(prompt) + logprobs, dtype=np.float32),
        advantage=advantage,
        model_version=version,
        group_id=group,
        metrics={"reward": advantage},
        enqueued_at=time.time(),
    )


class Worker:
    """What any rollout worker is to TRL."""

    def __init__(self, size=0):
        self.rollout_buffer, self.metrics_queue = queue.Queue(size), queue.Queue()
        self.version, self.error = 0, None

    def start(self): ...

    def stop(self): ...

    def update_model_version(self, version):
        self.version = version

    def check_health(self, _):
        if self.error:
            raise RuntimeError(self.error)


class Scripted(Worker):
    """A worker whose rollouts are all there at the start, of the first weights, each of the version it is told."""

    def __init__(self, version_of, groups=12, noise=0.08):
        super().__init__()
        engine = tiny.model().eval()
        generator = torch.Generator().manual_seed(0)
        for group in range(groups):
            rows = tiny.generate(engine, [tiny.PROMPTS[group % 4]] * 4, seed=group)
            for number, (prompt, completion, logprobs) in enumerate(zip(*rows, strict=True)):
                noisy = torch.tensor(logprobs) + noise * torch.randn(len(logprobs), generator=generator)
                advantage = float(torch.randn((), generator=generator))
                version = version_of(4 * group + number)
                self.rollout_buffer.put(sample(prompt, completion, noisy.tolist(), advantage, version, group))

    def check_health(self, _):
        raise RuntimeError("the script has ended")  # noqa: TRY003 - TRL would wait for ever


class Engine(Worker):
    """A worker that generates in a thread of its own, with the weights of the last sync."""

    def __init__(self):
        super().__init__(size=16)
        self.model, self.serving, self.stopping = tiny.model().eval(), threading.Lock(), threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self):
        self.thread.start()

    def stop(self):
        self.stopping.set()
        while self.thread.is_alive():
            # It may be waiting for room in the queue.
            while not self.rollout_buffer.empty():
                self.rollout_buffer.get_nowait()
            self.thread.join(0.05)

    def run(self):
        group = 0
        try:
            while not self.stopping.is_set():
                with self.serving:
                    version = self.version
                    rows = tiny.generate(self.model, [tiny.PROMPTS[group % 4]] * 4, seed=group)
                rewards = np.array(tiny.vowels([tiny.TOKENIZER.decode(ids) for ids in rows[1]]))
                advantages = ((rewards - rewards.mean()) / (rewards.std() + 1e-4)).tolist()
                for row in zip(*rows, advantages, strict=True):
                    self.rollout_buffer.put(sample(*row, version, group))
                group += 1
        except Exception:  # noqa: BLE001 - it goes on in check_health
            self.error = traceback.format_exc()


class Transfer:
    """A weight transfer into an engine, or into nothing."""

    def __init__(self, engine=None):
        self.engine = engine

    def init_weight_transfer(self): ...

    def destroy(self): ...

    def pause(self):
        if self.engine is not None:
            self.engine.serving.acquire()

    def resume(self):
        if self.engine is not None:
            self.engine.serving.release()

    @torch.no_grad()
    def send_weights(self, named):
        ours = {} if self.engine is None else dict(self.engine.model.named_parameters())
        for name, weight in named:
            if ours:
                ours[name].copy_(weight)


def made(kind, folder, worker, *, satwatch=None, **given):
    args = AsyncGRPOConfig(
        **{
            "output_dir": tempfile.mkdtemp(prefix="satwatch-trl-"),
            "max_steps": 4,
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": tiny.WIDTH,
            "learning_rate": 5e-3,
            "logging_steps": 1,
            "report_to": "none",
            "use_cpu": True,
            "bf16": False,
            "save_strategy": "no",
            "disable_tqdm": True,
            "gradient_checkpointing": False,
            "dtype": "float32",
            "temperature": 1.0,
            "token_budget": 0,
            "max_staleness": 6,
            "run_name": "async",
            **given,
        }
    )
    return kind(
        model=folder,
        args=args,
        train_dataset=tiny.prompts(),
        processing_class=tiny.TOKENIZER,
        reward_funcs=tiny.vowels,
        rollout_worker=worker,
        weight_transfer=Transfer(worker if isinstance(worker, Engine) else None),
        **({} if satwatch is None else {"satwatch": satwatch}),
    )


# From the rollout thread to the sidecar.


@pytest.mark.parametrize("budget", [0, 96], ids=["fixed-count", "token-budget"])
def test_versions_of_each_sample_reach_the_sidecar(budget, folder, sidecar, monkeypatch):
    monkeypatch.setenv("SATWATCH_ADDRESS", sidecar.address)
    engine = Engine()
    trainer = made(SatAsyncGRPOTrainer, folder, engine, max_steps=8, weight_sync_steps=2, token_budget=budget)
    trainer.train()
    assert not engine.thread.is_alive() and engine.error is None
    metrics = sidecar.metrics()
    assert metrics['satwatch_batches_total{run="async"}'] == 8
    assert metrics['satwatch_tokens_total{run="async"}'] == sum(tiny.logged(trainer, "satwatch/tokens"))
    assert metrics['satwatch_tokens_total{run="async"}'] == sum(tiny.logged(trainer, "batch/trained_tokens_per_step"))
    # One cold sync, and one after each two steps.
    assert metrics['satwatch_published_version{run="async"}'] == trainer.model_version == 5
    assert metrics['satwatch_policy_version{run="async"}'] == 5
    assert metrics['satwatch_version_coverage_ratio{run="async"}'] == 1
    assert metrics['satwatch_negative_lag_tokens_total{run="async"}'] == 0
    assert metrics['satwatch_client_fallbacks_total{run="async"}'] == 0
    lags = tiny.logged(trainer, "satwatch/version_lag_max")
    assert len(lags) == 8 and lags[0] == 0 and min(lags[1::2]) >= 1
    assert metrics['satwatch_version_lag_max{run="async"}'] >= 1
    # What is older is also further away.
    assert (
        tiny.logged(trainer, "satwatch/log_ratio_abs_mean")[0]
        < 1e-4
        < tiny.logged(trainer, "satwatch/log_ratio_abs_mean")[-1]
    )
    trainer.attachment.client.close()


@pytest.mark.parametrize("budget", [0, 60], ids=["fixed-count", "token-budget"])
def test_what_is_sent_is_what_the_loss_is_taken_over(budget, folder):
    fake = FakeClient(rule=GUARD)
    worker = Scripted(version_of=lambda number: 1 + number % 3)
    versions = {}
    for given in list(worker.rollout_buffer.queue):
        logprobs = given.old_log_probs[given.completion_mask == 1]
        versions[tuple(logprobs.tolist())] = (given.model_version, given.advantage)
    trainer = made(SatAsyncGRPOTrainer, folder, worker, satwatch=fake, max_steps=3, token_budget=budget)
    trainer.train()
    seen = 0
    for call in fake.calls:
        batch = call.batch
        assert batch.log_ratio.dim() == 1 and batch.sequence_lengths.sum() == len(batch.log_ratio)
        ends = np.cumsum(batch.sequence_lengths).tolist()
        told = batch.behavior_versions
        assert told.unit == "sequence"  # TRL names one a sample, and not what passed while it was generated
        for start, end, named in zip([0, *ends[:-1]], ends, told.values.tolist(), strict=True):
            version, advantage = versions[tuple(batch.behavior_logprob[start:end].tolist())]
            assert named == version
            assert set(batch.advantage[start:end].tolist()) == {np.float32(advantage)}
            seen += 1
    assert seen >= 8 and len(fake.calls) == 3
    # Its version 1 is the cold sync's; the queue is read one microbatch ahead.
    assert [call.batch.policy_version for call in fake.calls] == [1, 2, 3]
    assert [call.batch.step for call in fake.calls] == [0, 1, 2]
    assert fake.published == [1, 2, 3, 4]


def test_weights_that_are_not_published_yet_are_the_next_version(folder):
    """A lag of 0 means equal weights."""
    fake = FakeClient(rule=GUARD)
    trainer = made(SatAsyncGRPOTrainer, folder, Scripted(lambda _: 1), satwatch=fake, max_steps=4, weight_sync_steps=3)
    trainer.train()
    assert [call.batch.policy_version for call in fake.calls] == [1, 2, 2, 2]
    assert tiny.logged(trainer, "satwatch/version_lag_mean") == [0, 1, 1, 1]
    assert fake.published == [1, 2]


def test_the_sign(folder):
    """Rollouts whose engine gave its tokens half a nat less than the trainer does."""
    fake = FakeClient(rule=GUARD)
    worker = Scripted(lambda _: 1, noise=0.0)
    for given in worker.rollout_buffer.queue:
        given.old_log_probs -= 0.5
    made(SatAsyncGRPOTrainer, folder, worker, satwatch=fake, max_steps=1).train()
    torch.testing.assert_close(fake.calls[0].batch.log_ratio, torch.full_like(fake.calls[0].batch.log_ratio, 0.5))


# The loss.


def first_batch(trainer):
    """TRL's first microbatch, as its loss is given it."""
    trainer.current_gradient_accumulation_steps = 2
    return trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))


def loss_and_gradient(trainer, inputs):
    trainer.model.zero_grad()
    loss = trainer.compute_loss(trainer.model, inputs)
    loss.backward()
    return loss.detach(), {name: weight.grad.clone() for name, weight in trainer.model.named_parameters()}


@pytest.mark.parametrize("rule", [GUARD, WATCH], ids=["guard", "watch"])
def test_loss_and_gradient_are_those_of_the_definition(rule, folder):
    """Against float64, sample by sample, from the samples themselves."""
    worker = Scripted(lambda _: 1)
    samples = list(worker.rollout_buffer.queue)[:8]
    trainer = made(SatAsyncGRPOTrainer, folder, worker, satwatch=FakeClient(rule=rule))
    loss, gradient = loss_and_gradient(trainer, first_batch(trainer))

    policy = tiny.model().double()
    rows = []
    for given in samples:
        ids = torch.tensor(given.input_ids)
        scored = torch.log_softmax(policy(input_ids=ids[None]).logits[0, :-1], -1).gather(-1, ids[1:, None])[:, 0]
        active = torch.tensor(given.completion_mask[1:] == 1)
        mu = torch.tensor(given.old_log_probs[1:]).double()
        rows.append((scored[active], mu[active], torch.full_like(mu[active], given.advantage)))
    now, mu, advantage = (torch.cat(parts) for parts in zip(*rows, strict=True))
    d = (now - mu).detach()
    order = d.abs().sort().values
    q = order[next(k for k in range(1, len(d) + 1) if k / len(d) >= rule.quantile) - 1]
    psi = torch.where(d.abs() > q, 1 / (1 + (d / q) ** 2), 1.0) if rule.enabled else torch.ones_like(d)
    low, high = 1 - 0.2 * torch.where(d < 0, psi, 1.0), 1 + 0.2 * torch.where(d > 0, psi, 1.0)
    ratio = (now - mu).exp()
    expected = -torch.minimum(ratio * advantage, torch.maximum(torch.minimum(ratio, high), low) * advantage).mean() / 2
    expected.backward()
    clipped = ((advantage > 0) & (ratio > high)) | ((advantage < 0) & (ratio < low))
    if rule.enabled:
        nominal = ((advantage > 0) & (ratio > 1.2)) | ((advantage < 0) & (ratio < 0.8))
        assert clipped.sum() > nominal.sum() > 0
    assert float(loss) == pytest.approx(float(expected.detach()), rel=2e-5)
    for name, weight in policy.named_parameters():
        torch.testing.assert_close(gradient[name].double(), weight.grad, rtol=1e-3, atol=1e-7)
    share = trainer._metrics["train"]["clip_ratio/region_mean"]
    assert share == [pytest.approx(float(clipped.double().mean()), rel=1e-6)]


def test_a_watched_run_is_the_stock_run_bit_for_bit(folder):
    stock = made(AsyncGRPOTrainer, folder, Scripted(lambda _: 1))
    stock.train()
    fake = FakeClient(rule=WATCH)
    watched = made(SatAsyncGRPOTrainer, folder, Scripted(lambda _: 1), satwatch=fake)
    watched.train()
    for name in ("loss", "grad_norm", "ratio", "clip_ratio/region_mean", "sample/staleness_mean"):
        assert tiny.logged(watched, name) == tiny.logged(stock, name) != []
    weights = watched.model.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in stock.model.state_dict().items())
    assert len(fake.calls) == 4 and tiny.logged(watched, "satwatch/decoupled")[0] == 0
    guarded = made(SatAsyncGRPOTrainer, folder, Scripted(lambda _: 1), satwatch=FakeClient(rule=GUARD))
    guarded.train()
    assert tiny.logged(guarded, "grad_norm") != tiny.logged(stock, "grad_norm")


@pytest.mark.timeout(60)
def test_watching_waits_for_no_answer(folder):
    class Silent(FakeClient):
        def submit(self, log_ratio, **batch):
            return Future()

    trainer = made(SatAsyncGRPOTrainer, folder, Scripted(lambda _: 1), satwatch=Silent(rule=WATCH))
    loss, _ = loss_and_gradient(trainer, first_batch(trainer))
    assert loss.isfinite()


def test_without_a_sidecar_the_losses_are_the_same(folder, sidecar):
    runs = []
    for address in (sidecar.address, "127.0.0.1:1"):
        with satwatch.connect(address, run="async", min_reference=1e-3, timeout=20.0) as client:
            trainer = made(SatAsyncGRPOTrainer, folder, Scripted(lambda _: 1), satwatch=client)
            trainer.train()
            runs.append((trainer, client.stats))
    (alive, stats), (dead, dead_stats) = runs
    assert stats.bounds_from_sidecar == dead_stats.bounds_from_fallback == 4
    assert tiny.logged(alive, "loss") == tiny.logged(dead, "loss")
    weights = alive.model.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in dead.model.state_dict().items())


@pytest.mark.parametrize("where", ["answer", "forward", "metrics"])
def test_the_slots_and_the_model_are_as_they_were_when_the_loss_raises(where, folder, monkeypatch):
    fake = FakeClient([DeadlineError("late")] if where == "answer" else [], rule=GUARD)
    trainer = made(SatAsyncGRPOTrainer, folder, Scripted(lambda _: 1), satwatch=fake)
    inputs = first_batch(trainer)
    hooks = len(trainer.model._forward_hooks)
    if where == "forward":
        monkeypatch.setattr(trainer.model, "forward", lambda **_: 1 / 0)
    elif where == "metrics":
        monkeypatch.setattr(trainer.accelerator, "reduce", lambda *_, **__: 1 / 0)
    with pytest.raises(DeadlineError if where == "answer" else ZeroDivisionError):
        trainer.compute_loss(trainer.model, inputs)
    assert (trainer.epsilon_low, trainer.epsilon_high) == (0.2, 0.2)
    assert len(trainer.model._forward_hooks) == hooks


def test_a_broken_client_does_not_end_the_run(folder):
    class Broken(FakeClient):
        def submit(self, log_ratio, **batch):
            raise RuntimeError

        def publish_version(self, version):
            raise RuntimeError

    trainer = made(SatAsyncGRPOTrainer, folder, Scripted(lambda _: 1), satwatch=Broken(rule=GUARD))
    trainer.train()
    whole = made(SatAsyncGRPOTrainer, folder, Scripted(lambda _: 1), satwatch=FakeClient(rule=GUARD))
    whole.train()
    assert tiny.logged(trainer, "loss") == tiny.logged(whole, "loss")
    assert tiny.logged(trainer, "satwatch/hook_faults")[3] == 4


def test_a_client_of_another_trainer_is_refused(folder):
    with pytest.raises(ConfigError, match="eps_high"):
        made(SatAsyncGRPOTrainer, folder, Worker(), satwatch=FakeClient(rule=GUARD), epsilon_high=0.28)
    with pytest.raises(ConfigError, match="level"):
        made(SatAsyncGRPOTrainer, folder, Worker(), satwatch=FakeClient(rule=Rule(level="sequence")))


def test_the_modules_that_were_lent_are_trls_again(folder):
    before = copy.copy(vars(async_grpo_trainer))
    made(SatAsyncGRPOTrainer, folder, Scripted(lambda _: 1), satwatch=FakeClient(rule=GUARD)).get_train_dataloader()
    assert {name for name, value in vars(async_grpo_trainer).items() if before.get(name) is not value} == set()
