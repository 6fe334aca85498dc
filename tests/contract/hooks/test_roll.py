"""ROLL's hook, by signature: the real package is not run here.

The stand-ins below have the arguments, the shapes and the behaviour of ROLL 0.3.0 (commit 8eb27cc) as the actor workers
of its RLVR and agentic pipelines document them, in words of their own.
"""

import importlib
import logging
import sys
import types
from types import SimpleNamespace

import pytest
import torch

from satwatch.client import FakeClient
from satwatch.errors import ConfigError
from satwatch.hooks import use
from satwatch.sat import clip_bounds
from satwatch.types import Rule

EPS_LOW, EPS_HIGH = 0.2, 0.28


# The stand-ins. A loss gets a batch of (B, T) ids and masks, with (B, T - 1) log-probs, and what the model put out; it
# asks its strategy for the log-probs of now and itself for the old ones, and returns parts of the step's metrics.


def correction(cfg, response_mask, old_log_probs, infer_log_probs, global_valid_samples=None, global_valid_tokens=None):
    """Return the weight pi_old/mu, the tokens that the filters keep, and metrics."""
    ratio = (old_log_probs - infer_log_probs).exp()
    kept = torch.ones_like(response_mask)
    for one in cfg.filters:
        if one.enabled:
            kept = kept * (ratio >= one.ratio_low) * (ratio <= one.ratio_high)
    weight = ratio.clamp(max=cfg.is_weight.upper_bound) if cfg.is_weight.enabled else torch.ones_like(ratio)
    means = (ratio * response_mask).sum(1) / response_mask.sum(1).clamp(1)
    name = "actor/train_infer_ratio_token_mean@sum"
    return weight.detach(), kept, {name: (means.sum() / global_valid_samples).item()}


class Worker:
    """What the pipelines' actor workers have in common."""

    def get_old_log_probs_with_cache(self, data, log_probs):
        if self.pipeline_config.enable_old_logprobs_recompute or "sample_uuid" not in data.non_tensor_batch:
            return data.batch["old_log_probs"]
        for row, name in enumerate(data.non_tensor_batch["sample_uuid"]):
            self._logprobs_cache.setdefault(name, log_probs[row : row + 1].detach())
        return torch.cat([self._logprobs_cache[name] for name in data.non_tensor_batch["sample_uuid"]])

    def loss_func(self, data, output_tensor):
        config, batch = self.pipeline_config, data.batch
        mask = batch["response_mask"][:, 1:].long()
        final = self.final_mask(batch, mask)
        log_probs = self.strategy.op_compute_log_probs(
            logits=output_tensor, input_ids=batch["input_ids"], attention_mask=batch["response_mask"]
        )
        old = self.get_old_log_probs_with_cache(data, log_probs)
        behavior, metrics = batch.get("infer_logprobs", old), {}
        if config.enable_old_logprobs_recompute:
            weight = batch["train_infer_is_weight"]
        else:
            weight, kept, metrics = correction(
                config.train_infer_correction,
                mask,
                old,
                behavior if len(behavior) else old,
                data.meta_info["global_valid_samples"]["response_mask"],
                data.meta_info["batch_num_tokens"]["response_mask"],
            )
            final = final * kept
        ratio = self.ratio(log_probs - old, final)
        low = config.pg_clip_low if config.use_pg_clip_range else config.pg_clip
        high = config.pg_clip_high if config.use_pg_clip_range else config.pg_clip
        gain = torch.minimum(ratio * batch["advantages"], ratio.clamp(1 - low, 1 + high) * batch["advantages"])
        if config.dual_clip_loss:
            floor = torch.maximum(gain, (1 + 2 * config.pg_clip) * batch["advantages"])
            gain = torch.where(batch["advantages"] < 0, floor, gain)
        if config.train_infer_correction.is_weight.enabled:
            gain = gain * weight
        means = (gain * final).sum(1) / (final.sum(1) + 1e-8)
        loss = -means.sum() / (data.meta_info["global_valid_samples"]["response_mask"] + 1e-8)
        return loss, {"actor/total_loss@sum": loss.item(), "actor/ratio_max@max": ratio.max().item()} | metrics


class RLVRWorker(Worker):
    def final_mask(self, batch, mask):
        return batch.get("final_response_mask", mask)

    def ratio(self, d, mask):
        if self.pipeline_config.importance_sampling == "token":
            return d.exp()
        return ((d * mask).sum(1, keepdim=True) / (mask.sum(1, keepdim=True) + 1e-8)).exp().expand_as(d)


class AgenticWorker(Worker):
    def final_mask(self, batch, mask):
        return mask

    def ratio(self, d, mask):
        return d.exp()


def modules():
    """Return the modules that the hook imports from ROLL, by name."""
    made = {
        name: types.ModuleType(name)
        for name in (
            "roll",
            "roll.pipeline",
            "roll.pipeline.agentic",
            "roll.pipeline.agentic.agentic_actor_worker",
            "roll.pipeline.rlvr",
            "roll.pipeline.rlvr.actor_worker",
            "roll.utils",
            "roll.utils.train_infer_corrections",
        )
    }
    made["roll.pipeline.rlvr.actor_worker"].ActorWorker = RLVRWorker
    made["roll.pipeline.agentic.agentic_actor_worker"].ActorWorker = AgenticWorker
    made["roll.utils.train_infer_corrections"].compute_train_infer_correction = correction
    return made


@pytest.fixture(scope="module")
def hook():
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules().items():
            patch.setitem(sys.modules, name, module)
        yield importlib.import_module("satwatch.hooks.roll")
        del sys.modules["satwatch.hooks.roll"]


def worker_of(kind, *, place=None, packing=False, weighs=False, filters=(), **config):
    """Make a worker as Ray would have it after its start, without a cluster, a model and a device."""
    config = {
        "use_pg_clip_range": True,
        "pg_clip": 0.2,
        "pg_clip_low": EPS_LOW,
        "pg_clip_high": EPS_HIGH,
        "dual_clip_loss": False,
        "enable_old_logprobs_recompute": True,
        "ppo_epochs": 2,
        "loss_agg_mode": "seq-mean-token-mean",
        "use_kl_loss": False,
        "kl_loss_coef": 0.0,
        "rl_loss_coef": 1.0,
        "entropy_loss_coef": 0.0,
        "difficulty_loss_weight": False,
        "length_loss_weight": False,
    } | config
    config.setdefault("ratio_type" if kind.__name__.endswith("AgenticActorWorker") else "importance_sampling", "token")
    weight = SimpleNamespace(enabled=weighs, weight_type="token", upper_bound=1.2, detach=True)
    config["train_infer_correction"] = SimpleNamespace(is_weight=weight, filters=list(filters))
    worker = kind.__new__(kind)
    worker.pipeline_config = SimpleNamespace(**config)
    worker.worker_config = SimpleNamespace(use_sequence_packing=packing)
    worker.rank_info = place or SimpleNamespace(dp_rank=0, dp_size=1, tp_rank=0, cp_rank=0)
    worker.strategy = SimpleNamespace(op_compute_log_probs=log_probs_of)
    worker._logprobs_cache = {}
    return worker


def log_probs_of(logits, input_ids, attention_mask):
    return logits * attention_mask[:, 1:]


@pytest.fixture
def make(hook):
    """Make a worker and the client that it asks."""

    def make(kind="SatActorWorker", *, script=(), rule=None, **settings):
        level = "sequence" if settings.get("importance_sampling") == "seq" else "token"
        client = FakeClient(script, rule=rule or Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, level=level))
        use(client)
        return worker_of(getattr(hook, kind), **settings), client

    yield make
    use(None)


WATCH = Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, enabled=False)
KINDS = ["SatActorWorker", "SatAgenticActorWorker"]
TOKENS, SAMPLES = 60, 6


def batch(kind="SatActorWorker", seed=0, garbage=0.0, rows=4, tokens=12):
    """Return a microbatch and what the model put out: float64, with a tail, and with padding of different lengths."""
    draw = torch.Generator().manual_seed(seed)

    def normal(scale):
        return torch.randn(rows, tokens - 1, generator=draw, dtype=torch.float64) * scale

    mask = (torch.arange(tokens) < torch.tensor([tokens, tokens - 3, tokens - 1, tokens])[:rows, None]).long()
    mask[:, :2] = 0  # the prompt
    behavior = normal(0.5) - 2
    old = behavior + normal(0.05) + (normal(1) > 1.2) * normal(0.5)
    now = (old + normal(0.02)).clone().requires_grad_()
    off = mask[:, 1:] == 0
    fields = {
        "input_ids": torch.zeros(rows, tokens, dtype=torch.long),
        "response_mask": mask,
        "advantages": normal(1).masked_fill(off, 0.0),
        "old_log_probs": old.masked_fill(off, 0.0),
        "ref_log_probs": old.masked_fill(off, 0.0),
        "infer_logprobs": behavior.masked_fill(off, garbage),
        "train_infer_is_weight": (old - behavior).exp().clamp(max=1.2),
    }
    counts = {"response_mask": torch.tensor(TOKENS)}
    samples = {"response_mask": torch.tensor(SAMPLES)}
    if kind == "SatActorWorker":
        fields["final_response_mask"] = mask[:, 1:] * torch.tensor([1, 1, 0, 1])[:rows, None]
        counts["final_response_mask"], samples["final_response_mask"] = torch.tensor(TOKENS), torch.tensor(SAMPLES)
    meta = {"batch_num_tokens": counts, "global_valid_samples": samples}
    return SimpleNamespace(batch=fields, meta_info=meta, non_tensor_batch={}), now


def active(data):
    return data.batch.get("final_response_mask", data.batch["response_mask"][:, 1:])


def run(worker, data, now):
    loss, metrics = worker.loss_func(data, now)
    return loss, torch.autograd.grad(loss, now)[0], metrics


def stock_of(worker, data, now, **config):
    """Run the stock loss of the same configuration, or of another one."""
    stock = type(worker).__mro__[2]
    twin = stock.__new__(stock)
    vars(twin).update({name: value for name, value in vars(worker).items() if name != "_attachment"})
    twin.pipeline_config = SimpleNamespace(**(vars(worker.pipeline_config) | config))
    twin._logprobs_cache = dict(worker._logprobs_cache)
    return run(twin, data, now)


def expected(data, now, level="token", eps=None, quantile=0.9):
    """Return loss and gradient by SAT.md: the clipped surrogate of pi_now/mu, with nothing of the stock loss in it."""
    mask = active(data) != 0
    d = (now - data.batch["infer_logprobs"]).detach()
    bounds = clip_bounds(d, mask=mask, eps_low=EPS_LOW, eps_high=EPS_HIGH, level=level, quantile=quantile)
    low, high = (bounds.low, bounds.high) if eps is None else (1 - eps[0], 1 + eps[1])
    log_ratio = torch.where(mask, now - data.batch["infer_logprobs"], 0.0)
    if level == "sequence":
        log_ratio = (log_ratio.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(1)).expand_as(now)
    ratio, advantage = log_ratio.exp(), data.batch["advantages"]
    gain = torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
    loss = -((gain * mask).sum(1) / mask.sum(1).clamp(1)).sum() / SAMPLES
    return loss, torch.autograd.grad(loss, now)[0], bounds


def close(value, right):
    return torch.allclose(value, right, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_that_the_trainer_likes_better_has_a_log_ratio_above_zero(make, kind):
    worker, client = make(kind)
    data, _ = batch(kind)
    now = (data.batch["infer_logprobs"] + 0.25).requires_grad_()
    run(worker, data, now)
    (call,) = client.calls
    assert call.submitted
    sent = call.batch.log_ratio[call.batch.mask]
    assert torch.allclose(sent, torch.full_like(sent, 0.25))


def test_what_is_sent_is_the_policy_of_now_against_mu_of_the_tokens_in_the_loss(make):
    worker, client = make()
    data, now = batch()
    run(worker, data, now)
    (call,) = client.calls
    sent, mask = call.batch, data.batch["final_response_mask"] != 0
    assert torch.equal(sent.mask, mask)
    assert torch.equal(sent.log_ratio[mask], (now - data.batch["infer_logprobs"]).detach()[mask])
    assert torch.equal(sent.advantage, data.batch["advantages"])
    assert torch.equal(sent.behavior_logprob, data.batch["infer_logprobs"])
    assert (sent.step, sent.policy_version, sent.behavior_versions, sent.reference_logprob) == (0, None, None, None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recomputed", [True, False])
@pytest.mark.parametrize("weighs", [True, False])
def test_the_loss_clips_pi_now_to_mu_at_the_bounds_and_weighs_nothing(make, kind, recomputed, weighs):
    worker, _ = make(kind, weighs=weighs, enable_old_logprobs_recompute=recomputed)
    data, now = batch(kind)
    data.batch["advantages"] = data.batch["advantages"].abs() * torch.sign(now.detach() - data.batch["infer_logprobs"])
    if not recomputed:
        data.non_tensor_batch["sample_uuid"] = list("abcd")
    value, gradient, metrics = run(worker, data, now)
    right, slope, bounds = expected(data, now)
    nominal, _, _ = expected(data, now, eps=(EPS_LOW, EPS_HIGH))
    assert bounds.gate.any()
    assert close(value, right)
    assert close(gradient, slope)
    assert not torch.allclose(value, nominal, rtol=1e-4, atol=0)
    assert metrics["satwatch/decoupled@sum"] == 0


def test_a_trainer_with_one_epsilon_gets_a_radius_for_each_side_and_keeps_its_dual_clip(make):
    worker, _ = make(rule=Rule(eps_low=0.1, eps_high=0.1), use_pg_clip_range=False, pg_clip=0.1, dual_clip_loss=True)
    data, now = batch()
    behavior, mask = data.batch["infer_logprobs"], active(data)
    data.batch["advantages"] = data.batch["advantages"].abs() * torch.sign(now.detach() - behavior)
    data.batch["advantages"][0, 3], now = -2.0, now.detach().clone()
    now[0, 3] = behavior[0, 3] + 0.3  # a ratio above 1.2 at a negative advantage is the dual clip's
    now.requires_grad_()
    value, gradient, _ = run(worker, data, now)
    bounds = clip_bounds((now - behavior).detach(), mask=mask, eps_low=0.1, eps_high=0.1)
    radii = {"use_pg_clip_range": True, "pg_clip_low": 1 - bounds.low, "pg_clip_high": bounds.high - 1}
    data.batch["old_log_probs"] = torch.where(mask != 0, behavior, data.batch["old_log_probs"])
    right, slope, _ = stock_of(worker, data, now, **radii)
    undamped, _, _ = stock_of(worker, data, now, dual_clip_loss=False, **radii)
    nominal, _, _ = stock_of(worker, data, now)
    assert torch.equal(value, right)
    assert torch.equal(gradient, slope)
    assert not torch.equal(value, undamped)
    assert not torch.equal(value, nominal)


def test_at_sequence_level_the_sequences_ratio_is_clipped_at_the_sequences_bounds(make):
    rule = Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, level="sequence", quantile=0.5)
    worker, _ = make(rule=rule, importance_sampling="seq")
    data, now = batch()
    data.batch["advantages"] = data.batch["advantages"].abs()
    now = (now + torch.tensor([[0.1], [0.0], [0.0], [0.0]])).detach().requires_grad_()
    value, gradient, _ = run(worker, data, now)
    right, slope, bounds = expected(data, now, level="sequence", quantile=0.5)
    assert bounds.gate.any(1).tolist() == [True, False, False, False]
    assert close(value, right)
    assert close(gradient, slope)
    ratio = (now - data.batch["infer_logprobs"])[0, 1:].mean().exp().item()
    assert bounds.high[0, 1].item() < ratio < 1 + EPS_HIGH  # so PPO would let it go on
    assert gradient[0].count_nonzero() == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recomputed", [True, False])
def test_only_watching_leaves_loss_gradient_and_metrics_alone(make, kind, recomputed):
    one = SimpleNamespace(
        enabled=True, agg_type="token", ratio_enabled=True, ratio_low=0.8, ratio_high=1.2, diff_enabled=False
    )
    worker, client = make(
        kind, rule=WATCH, weighs=True, filters=[one], dual_clip_loss=True, enable_old_logprobs_recompute=recomputed
    )
    data, now = batch(kind)
    before = {name: value.clone() for name, value in data.batch.items()}
    value, gradient, metrics = run(worker, data, now)
    stock, slope, stock_metrics = stock_of(worker, data, now)
    assert torch.equal(value, stock)
    assert torch.equal(gradient, slope)
    assert {name: metrics[name] for name in stock_metrics} == stock_metrics
    assert all(torch.equal(data.batch[name], value) for name, value in before.items())
    assert len(client.calls) == 1
    assert metrics["satwatch/decoupled@sum"] == pytest.approx(metrics["satwatch/tokens@sum"] / TOKENS)


def test_a_correction_in_the_loss_that_drops_tokens_is_kept_and_the_run_reported_as_decoupled(make):
    one = SimpleNamespace(
        enabled=True, agg_type="token", ratio_enabled=True, ratio_low=0.5, ratio_high=2.0, diff_enabled=False
    )
    worker, _ = make(weighs=True, filters=[one], enable_old_logprobs_recompute=False)
    data, now = batch()
    now = (now + 0.2 * torch.sign(data.batch["advantages"])).detach().requires_grad_()
    value, gradient, metrics = run(worker, data, now)
    nominal, _, _ = stock_of(worker, data, now)
    _, _, bounds = expected(data, now)
    right, slope, _ = stock_of(worker, data, now, pg_clip_low=1 - bounds.low, pg_clip_high=bounds.high - 1)
    assert torch.equal(value, right)
    assert torch.equal(gradient, slope)
    assert not torch.equal(value, nominal)
    assert metrics["satwatch/decoupled@sum"] > 0


def test_filters_of_the_pipeline_have_done_their_work_before_the_loss(make):
    one = SimpleNamespace(enabled=True)
    worker, _ = make(filters=[one], enable_old_logprobs_recompute=True)
    data, now = batch()
    value, _, metrics = run(worker, data, now)
    assert close(value, expected(data, now)[0])
    assert metrics["satwatch/decoupled@sum"] == 0


def test_the_old_log_probs_of_the_first_epoch_are_remembered_for_the_next_as_ever(make):
    worker, _ = make(enable_old_logprobs_recompute=False)
    data, now = batch()
    data.non_tensor_batch["sample_uuid"] = list("abcd")
    run(worker, data, now)
    kept = torch.cat([worker._logprobs_cache[name] for name in "abcd"])
    assert torch.equal(kept, log_probs_of(now.detach(), None, data.batch["response_mask"]))


@pytest.mark.parametrize("weighs", [True, False])
def test_the_trainers_own_measures_of_the_mismatch_still_measure_it(make, weighs):
    worker, _ = make(weighs=weighs, enable_old_logprobs_recompute=False)
    data, now = batch()
    _, _, metrics = run(worker, data, now)
    _, _, stock = stock_of(worker, data, now)
    measures = {name for name in stock if name.startswith("actor/train_infer_")}
    assert measures
    assert {name: metrics[name] for name in measures} == {name: stock[name] for name in measures}
    assert set(stock) <= set(metrics)
    data.batch["infer_logprobs"] = data.batch["old_log_probs"]
    _, _, none = stock_of(worker, data, now)
    assert any(none[name] != stock[name] for name in measures)


def test_the_trainers_batch_and_configuration_are_as_before(make):
    worker, _ = make(weighs=True)
    data, now = batch()
    before = {name: value.clone() for name, value in data.batch.items()}
    config = worker.pipeline_config
    run(worker, data, now)
    assert all(torch.equal(data.batch[name], value) for name, value in before.items())
    assert worker.pipeline_config is config
    assert (config.pg_clip, config.pg_clip_low, config.pg_clip_high) == (0.2, EPS_LOW, EPS_HIGH)
    assert config.train_infer_correction.is_weight.enabled


def test_the_configuration_is_put_back_when_the_loss_raises(make):
    worker, _ = make()
    data, now = batch()
    config, seen = worker.pipeline_config, []

    class Advantages(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function is torch.Tensor.__mul__ or function is torch.Tensor.mul:
                seen.append(worker.pipeline_config)
                raise FloatingPointError
            return super().__torch_function__(function, types, args, kwargs or {})

    whole = data.batch["advantages"]
    data.batch["advantages"] = whole.as_subclass(Advantages)
    with pytest.raises(FloatingPointError):
        worker.loss_func(data, now)
    assert seen[0] is not config
    assert worker.pipeline_config is config
    data.batch["advantages"] = whole
    assert close(run(worker, data, now)[0], expected(data, now)[0])


def test_padding_counts_for_nothing(make):
    results = []
    for garbage in (0.0, 3.0, float("nan")):
        worker, client = make()
        data, now = batch(garbage=garbage)
        value, gradient, metrics = run(worker, data, now)
        results.append((value, gradient, client.calls[0].batch.log_ratio[client.calls[0].batch.mask]))
        assert metrics["satwatch/nan_tokens@sum"] == 0
    for value, gradient, sent in results[1:]:
        assert torch.equal(value, results[0][0])
        assert torch.equal(gradient, results[0][1])
        assert torch.equal(sent, results[0][2])


@pytest.mark.parametrize("level", ["token", "seq"])
@pytest.mark.parametrize("mu", [float("nan"), float("-inf"), float("inf"), -1000.0])
def test_an_absurd_log_prob_of_the_engine_gives_a_finite_loss_and_gradient(make, mu, level):
    """As the stock loss does, which has no use for it."""
    worker, client = make(importance_sampling=level)
    data, now = batch()
    data.batch["infer_logprobs"][0, 5] = mu
    for value, gradient, _ in (stock_of(worker, data, now), run(worker, data, now)):
        assert value.isfinite()
        assert gradient.isfinite().all()
    # The sidecar sees what came, not what the loss was spared.
    assert not client.calls[0].batch.log_ratio[0, 5].abs() < 80


@pytest.mark.parametrize("absent", [None, torch.zeros(0, 11)])
def test_without_the_engines_log_probs_nothing_is_sent_and_the_stock_loss_runs(make, caplog, absent):
    worker, client = make(weighs=True)
    data, now = batch()
    del data.batch["infer_logprobs"]
    if absent is not None:
        data.batch["infer_logprobs"] = absent
    with caplog.at_level(logging.WARNING, "satwatch"):
        for _ in range(2):
            value, gradient, metrics = run(worker, data, now)
    stock, slope, stock_metrics = stock_of(worker, data, now)
    assert torch.equal(value, stock)
    assert torch.equal(gradient, slope)
    assert {name: metrics[name] for name in stock_metrics} == stock_metrics
    assert client.calls == []
    assert [
        record.message.startswith("satwatch, ROLL: the training data has no infer_logprobs")
        for record in caplog.records
    ] == [True]
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]).step()
    assert worker._attachment.heartbeat.calls_last_step == 2  # it was called, whatever it had to compare


@pytest.mark.parametrize("outcome", [TimeoutError("late"), ValueError("broken"), "local"])
def test_without_an_answer_the_bounds_are_the_same(make, outcome):
    worker, _ = make(script=[outcome])
    data, now = batch()
    value, gradient, _ = run(worker, data, now)
    right, slope, _ = expected(data, now)
    assert close(value, right)
    assert close(gradient, slope)


def test_a_client_and_a_field_that_fail_cost_nothing(make, monkeypatch):
    worker, client = make()
    data, now = batch()

    def fails(*args, **kwargs):
        raise RuntimeError

    monkeypatch.setattr(client, "submit", fails)
    value, _, metrics = run(worker, data, now)
    assert close(value, expected(data, now)[0])
    assert metrics["satwatch/hook_faults@sum"] == 1
    monkeypatch.undo()
    data.batch["advantages"] = torch.tensor(1.0, dtype=torch.float64)  # which the stock loss broadcasts
    value, _, metrics = run(worker, data, now)
    assert close(value, expected(data, now)[0])
    assert metrics["satwatch/hook_faults@sum"] == 1  # one more: these are added up
    assert client.calls[0].batch.advantage is None


# Set-up.


def test_ratios_of_segments_are_refused_unless_they_are_only_watched(make):
    data, now = batch("SatAgenticActorWorker")
    worker, client = make("SatAgenticActorWorker", ratio_type="segment")
    with pytest.raises(ConfigError, match="ratio_type: got segment, required token, or enabled = false"):
        run(worker, data, now)
    worker, client = make("SatAgenticActorWorker", ratio_type="segment", rule=WATCH)
    run(worker, data, now)
    assert len(client.calls) == 1


def test_packing_shows_one_sequence_at_a_time_which_is_refused_at_sequence_level(make):
    data, now = batch()
    worker, _ = make(importance_sampling="seq", packing=True)
    with pytest.raises(ConfigError, match="use_sequence_packing"):
        run(worker, data, now)
    worker, client = make(packing=True)
    run(worker, data, now)
    assert len(client.calls) == 1


@pytest.mark.parametrize(
    ("rule", "config", "name"),
    [
        (Rule(eps_low=0.1, eps_high=EPS_HIGH), {}, "eps_low"),
        (Rule(eps_low=EPS_LOW, eps_high=0.2), {}, "eps_high"),
        (Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH), {"use_pg_clip_range": False}, "eps_high"),
        (Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, level="sequence"), {}, "level"),
        (Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH), {"importance_sampling": "seq"}, "level"),
    ],
)
def test_a_client_of_another_rule_is_refused(make, rule, config, name):
    worker, client = make(rule=rule, **config)
    with pytest.raises(ConfigError, match=f"^{name}: "):
        run(worker, *batch())
    assert client.calls == []


def test_a_run_without_a_name_is_refused_at_the_first_loss(hook, monkeypatch):
    monkeypatch.delenv("SATWATCH_RUN", raising=False)
    monkeypatch.delenv("SATWATCH_CLIENT_CONFIG", raising=False)
    with pytest.raises(ConfigError, match="SATWATCH_RUN"):
        run(worker_of(hook.SatActorWorker), *batch())


@pytest.mark.parametrize(("tensor", "context", "sends"), [(0, 0, True), (1, 0, False), (0, 1, False)])
def test_ranks_that_hold_another_ones_tokens_bound_them_and_send_nothing(make, tensor, context, sends):
    place = SimpleNamespace(dp_rank=2, dp_size=5, tp_rank=tensor, cp_rank=context)
    worker, client = make(place=place)
    data, now = batch()
    value, _, _ = run(worker, data, now)
    assert len(client.calls) == sends
    assert close(value, expected(data, now)[0])


def test_a_client_from_the_environment_has_the_workers_rank_and_radii(hook, monkeypatch):
    monkeypatch.setenv("SATWATCH_RUN", "a-run")
    monkeypatch.delenv("SATWATCH_CLIENT_CONFIG", raising=False)
    place = SimpleNamespace(dp_rank=2, dp_size=5, tp_rank=0, cp_rank=0)
    client = worker_of(hook.SatActorWorker, place=place)._attach().client
    assert "run='a-run', rank=2, world_size=5" in repr(client)
    assert (client.rule.eps_low, client.rule.eps_high, client.rule.level) == (EPS_LOW, EPS_HIGH, "token")
    client.close()


# Metrics: ROLL adds up those whose name ends in @sum.


def test_metrics_add_up_to_those_of_the_step(make):
    worker, client = make()
    total = {}
    for seed in (1, 2):
        _, _, metrics = run(worker, *batch(seed=seed))
        for name, value in metrics.items():
            if name.startswith("satwatch/"):
                assert isinstance(value, float)
                total[name] = total.get(name, 0) + value
    d = torch.cat([call.batch.log_ratio[call.batch.mask] for call in client.calls])
    assert all(name.endswith("@sum") for name in total)
    assert total["satwatch/tokens@sum"] == len(d)
    assert total["satwatch/hook_calls_per_step@sum"] == 2
    assert total["satwatch/log_ratio_abs_mean@sum"] == pytest.approx(d.abs().sum().item() / TOKENS)
    assert 0 < total["satwatch/gate_rate@sum"] < 0.1
    assert "satwatch/quantile_reference@sum" not in total


def test_an_agentic_step_is_divided_by_its_response_tokens(make):
    worker, client = make("SatAgenticActorWorker")
    _, _, metrics = run(worker, *batch("SatAgenticActorWorker"))
    d = client.calls[0].batch.log_ratio[client.calls[0].batch.mask]
    assert metrics["satwatch/log_ratio_abs_mean@sum"] == pytest.approx(d.abs().sum().item() / TOKENS)
