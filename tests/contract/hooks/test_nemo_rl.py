"""NeMo-RL's hook, by signature: the real package is not run here.

The stand-ins below have the arguments, the shapes and the behaviour of NeMo-RL 0.6.0 (commit 7ea279a) as its
``nemo_rl.algorithms.loss`` documents them, in words of their own.
"""

import importlib
import logging
import pickle
import sys
import types
from collections import UserDict
from dataclasses import dataclass

import pytest
import torch

import satwatch
from satwatch.client import FakeClient
from satwatch.errors import ConfigError
from satwatch.hooks.core.notices import Notices
from satwatch.sat import clip_bounds
from satwatch.types import Rule

EPS_LOW, EPS_HIGH = 0.2, 0.28


# The stand-ins. A loss is told next-token log-probs, (B, T - 1), and a batch of (B, T) fields, whose first column is of
# no token; what it returns is divided by the step's tokens or sequences, so that sums over microbatches are right.


@dataclass
class Config:
    disable_ppo_ratio: bool = False
    force_on_policy_ratio: bool = False
    use_cispo: bool = False
    token_level_loss: bool = True
    sequence_level_importance_ratios: bool = False
    ratio_clip_min: float = EPS_LOW
    ratio_clip_max: float = EPS_HIGH
    ratio_clip_c: float | None = None
    reference_policy_kl_penalty: float = 0.0
    use_importance_sampling_correction: bool = False
    truncated_importance_sampling_type: str | None = None
    truncated_importance_sampling_ratio: float | None = None
    truncated_importance_sampling_ratio_min: float | None = None


def per_token(values, mask, count):
    return (values * mask).sum() / (count + 1e-8)


class StockLoss:
    def __init__(self, cfg, use_fused_linear_logprobs=False):
        self.use_fused_linear_logprobs = use_fused_linear_logprobs
        for name, value in vars(cfg).items():
            setattr(self, name, value)
        self.metric_normalizations = {"loss": "tokens", "probs_ratio": "tokens", "num_valid_samples": "none"}

    def __call__(self, next_token_logprobs, data, global_valid_seqs, global_valid_toks):
        now, behavior = next_token_logprobs, data["generation_logprobs"][:, 1:]
        old = now.detach() if self.force_on_policy_ratio else data["prev_logprobs"][:, 1:]
        advantage, token_mask, sample_mask = data["advantages"][:, 1:], data["token_mask"][:, 1:], data["sample_mask"]
        mask = token_mask * sample_mask[:, None]
        ratio = self._ratio(now - old, token_mask)
        clipped = ratio.clamp(1 - self.ratio_clip_min, 1 + self.ratio_clip_max)
        loss = torch.maximum(-advantage * ratio, -advantage * clipped)
        if self.ratio_clip_c is not None:
            loss = torch.where(advantage < 0, torch.minimum(loss, -advantage * self.ratio_clip_c), loss)
        weight = self._weight(old, behavior, mask)
        if self.use_importance_sampling_correction:
            loss = loss * weight
        if self.token_level_loss:
            loss = per_token(loss, mask, global_valid_toks)
        else:
            means = (loss * token_mask).sum(1) / (token_mask.sum(1) + 1e-8)
            loss = per_token(means, sample_mask, global_valid_seqs)
        return loss, {
            "loss": loss.item(),
            "probs_ratio": per_token(ratio.detach(), mask, global_valid_toks).item(),
            "token_mult_prob_error": per_token((old - behavior).abs().exp(), mask, global_valid_toks).item(),
            "sampling_importance_ratio": per_token(weight, mask, global_valid_toks).item(),
            "num_valid_samples": sample_mask.sum().item(),
        }

    def _ratio(self, d, token_mask):
        if not self.sequence_level_importance_ratios:
            return d.exp()
        means = (d * token_mask).sum(1, keepdim=True) / (token_mask.sum(1, keepdim=True) + 1e-8)
        return means.exp().repeat(1, d.shape[1])

    def _weight(self, old, behavior, mask):
        if self.sequence_level_importance_ratios:
            return ((old - behavior) * mask).sum(1, keepdim=True).exp()
        weight, most = (old - behavior).exp(), self.truncated_importance_sampling_ratio
        if self.truncated_importance_sampling_type == "tis":
            weight = weight.clamp(max=most)
        if self.truncated_importance_sampling_type == "icepop":
            weight = weight * (weight <= most) * (weight >= self.truncated_importance_sampling_ratio_min)
        return weight


class Batch(UserDict):
    def slice(self, start, end):
        return Batch({name: value[start:end] for name, value in self.data.items()})


class PackingWrapper:
    """Takes a packed microbatch apart: the loss is called once a sequence, without padding, and the parts are added."""

    def __init__(self, loss_fn, prepare_fn, cu_seqlens_q, cu_seqlens_q_padded=None, **groups):
        self.loss_fn, self.prepare_fn, self.ends, self.groups = loss_fn, prepare_fn, cu_seqlens_q.tolist(), groups

    def __call__(self, next_token_logits, data, global_valid_seqs, global_valid_toks):
        loss, metrics = 0, {}
        for row, (start, end) in enumerate(zip(self.ends, self.ends[1:], strict=False)):
            one = {
                name: value[:, : end - start] if value.ndim > 1 else value
                for name, value in data.slice(row, row + 1).items()
            }
            inputs, one = self.prepare_fn(
                logits=next_token_logits[:, start:end], data=one, loss_fn=self.loss_fn, **self.groups
            )
            part, found = self.loss_fn(
                data=one, global_valid_seqs=global_valid_seqs, global_valid_toks=global_valid_toks, **inputs
            )
            loss = loss + part
            for name, value in found.items():
                metrics[name] = metrics.get(name, 0) + value
        return loss, metrics


def modules():
    """Return the modules that the hook and these tests import from NeMo-RL, by name."""
    loss = types.ModuleType("nemo_rl.algorithms.loss")
    loss.ClippedPGLossConfig, loss.ClippedPGLossFn, loss.SequencePackingLossWrapper = Config, StockLoss, PackingWrapper
    batches = types.ModuleType("nemo_rl.distributed.batched_data_dict")
    batches.BatchedDataDict = Batch
    return {
        "nemo_rl": types.ModuleType("nemo_rl"),
        "nemo_rl.algorithms": types.ModuleType("nemo_rl.algorithms"),
        "nemo_rl.algorithms.loss": loss,
        "nemo_rl.distributed": types.ModuleType("nemo_rl.distributed"),
        "nemo_rl.distributed.batched_data_dict": batches,
    }


@pytest.fixture(scope="module")
def nemo():
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules().items():
            patch.setitem(sys.modules, name, module)
        yield sys.modules["nemo_rl.algorithms.loss"]


@pytest.fixture(scope="module")
def hook(nemo):
    yield importlib.import_module("satwatch.hooks.nemo_rl")
    del sys.modules["satwatch.hooks.nemo_rl"]


@pytest.fixture
def make(hook, nemo):
    """Make a loss and the client that it asks."""

    def make(*, script=(), rule=None, peers=1, **config):
        level = "sequence" if config.get("sequence_level_importance_ratios") else "token"
        client = FakeClient(script, rule=rule or Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, level=level))
        config = {"ratio_clip_min": EPS_LOW, "ratio_clip_max": EPS_HIGH, "reference_policy_kl_penalty": 0.0} | config
        return hook.SatClippedPGLoss(nemo.ClippedPGLossConfig(**config), satwatch=client, peers=peers), client

    return make


WATCH = Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, enabled=False)
SEQUENCES, TOKENS = torch.tensor(4.0), torch.tensor(40.0)


def batch(seed=0, garbage=0.0, rows=4, tokens=12):
    """Return a microbatch and the log-probs of now: float64, with a tail, and with padding of different lengths."""
    draw = torch.Generator().manual_seed(seed)

    def normal(scale):
        return torch.randn(rows, tokens, generator=draw, dtype=torch.float64) * scale

    lengths = torch.tensor([tokens, tokens - 3, tokens - 1, tokens])[:rows]
    mask = (torch.arange(tokens) < lengths[:, None]).double()
    mask[:, :2] = 0  # the prompt
    behavior = normal(0.5) - 2
    old = behavior + normal(0.05) + (normal(1) > 1.2) * normal(0.5)
    now = old + normal(0.02)
    off = mask == 0
    data = sys.modules["nemo_rl.distributed.batched_data_dict"].BatchedDataDict(
        {
            "generation_logprobs": torch.where(off, garbage, behavior),
            "prev_logprobs": torch.where(off, -garbage, old),
            "advantages": normal(1),
            "token_mask": mask,
            "sample_mask": torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=torch.float64)[:rows],
        }
    )
    return data, now[:, 1:].clone().requires_grad_()


def stock_of(nemo, loss):
    """Return a stock loss of the same configuration."""
    stock = nemo.ClippedPGLossFn.__new__(nemo.ClippedPGLossFn)
    vars(stock).update({name: value for name, value in vars(loss).items() if name not in {"_client", "_whole"}})
    return stock


def run(loss, data, now):
    value, metrics = loss(next_token_logprobs=now, data=data, global_valid_seqs=SEQUENCES, global_valid_toks=TOKENS)
    return value, torch.autograd.grad(value, now)[0], metrics


def expected(data, now, level="token", eps=None, quantile=0.9):
    """Return loss and gradient by SAT.md: the clipped surrogate of pi_now/mu, with nothing of the stock loss in it."""
    mask = (data["token_mask"] * data["sample_mask"][:, None])[:, 1:]
    behavior, advantage = data["generation_logprobs"][:, 1:], data["advantages"][:, 1:]
    d = (data["prev_logprobs"] - data["generation_logprobs"])[:, 1:]
    bounds = clip_bounds(d, mask=mask, eps_low=EPS_LOW, eps_high=EPS_HIGH, level=level, quantile=quantile)
    low, high = (bounds.low, bounds.high) if eps is None else (1 - eps[0], 1 + eps[1])
    log_ratio = now - behavior
    if level == "sequence":
        log_ratio = ((log_ratio * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(1)).expand_as(now)
    ratio = log_ratio.exp()
    gain = torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
    if level == "sequence":
        rows = mask.any(1)
        loss = -((gain * mask).sum(1)[rows] / mask.sum(1)[rows]).sum() / SEQUENCES
    else:
        loss = -gain[mask != 0].sum() / TOKENS
    return loss, torch.autograd.grad(loss, now)[0], bounds


def test_a_token_that_the_trainer_likes_better_has_a_log_ratio_above_zero(make):
    loss, client = make()
    data, now = batch()
    data["prev_logprobs"] = data["generation_logprobs"] + 0.25
    run(loss, data, now)
    (call,) = client.calls
    assert call.submitted
    assert torch.allclose(call.batch.log_ratio, torch.full((4, 11), 0.25, dtype=torch.float64))


def test_what_is_sent_is_what_the_loss_sees_of_the_tokens_in_its_mask(make):
    loss, client = make()
    data, now = batch()
    run(loss, data, now)
    (call,) = client.calls
    sent = call.batch
    assert torch.equal(sent.log_ratio, (data["prev_logprobs"] - data["generation_logprobs"])[:, 1:])
    assert torch.equal(sent.mask, (data["token_mask"] * data["sample_mask"][:, None])[:, 1:] != 0)
    assert torch.equal(sent.advantage, data["advantages"][:, 1:])
    assert torch.equal(sent.behavior_logprob, data["generation_logprobs"][:, 1:])
    assert (sent.step, sent.policy_version, sent.behavior_versions, sent.reference_logprob) == (0, None, None, None)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"use_importance_sampling_correction": True},
        {
            "use_importance_sampling_correction": True,
            "truncated_importance_sampling_type": "tis",
            "truncated_importance_sampling_ratio": 0.9,
        },
    ],
)
def test_the_loss_clips_pi_now_to_mu_at_the_bounds_and_weighs_nothing(make, config):
    loss, _ = make(**config)
    data, now = batch()
    value, gradient, metrics = run(loss, data, now)
    right, slope, bounds = expected(data, now)
    assert bounds.gate.any()
    assert torch.allclose(value, right, rtol=1e-7, atol=0)
    assert torch.allclose(gradient, slope, rtol=1e-7, atol=1e-12)
    nominal, _, _ = expected(data, now, eps=(EPS_LOW, EPS_HIGH))
    assert not torch.allclose(value, nominal, rtol=1e-4, atol=0)
    assert metrics["satwatch/decoupled"] == 0


def test_at_sequence_level_the_sequences_ratio_is_clipped_at_the_sequences_bounds(make):
    rule = Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, level="sequence", quantile=0.5)
    loss, client = make(
        rule=rule,
        sequence_level_importance_ratios=True,
        token_level_loss=False,
        use_importance_sampling_correction=True,
    )
    data, now = batch()
    data["generation_logprobs"] = data["generation_logprobs"] - torch.tensor([[0.2], [0.0], [0.0], [0.0]])
    data["advantages"] = data["advantages"].abs()
    value, gradient, _ = run(loss, data, now)
    right, slope, bounds = expected(data, now, level="sequence", quantile=0.5)
    assert bounds.gate.any(1).tolist() == [True, False, False, False]
    assert torch.allclose(value, right, rtol=1e-7, atol=0)
    assert torch.allclose(gradient, slope, rtol=1e-7, atol=1e-9)
    ratio = (now - data["generation_logprobs"][:, 1:])[0, 1:].mean().exp().item()
    assert bounds.high[0, 1].item() < ratio < 1 + EPS_HIGH  # so PPO would let it go on
    assert gradient[0].count_nonzero() == 0
    assert client.calls[0].batch.log_ratio.shape == (4, 11)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_only_watching_leaves_loss_gradient_and_metrics_alone(make, nemo, level):
    config = {"use_importance_sampling_correction": True, "ratio_clip_c": 3.0}
    if level == "sequence":
        config |= {"sequence_level_importance_ratios": True, "token_level_loss": False}
    rule = Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, enabled=False, level=level)
    loss, client = make(rule=rule, **config)
    data, now = batch()
    before = {name: value.clone() for name, value in data.items()}
    value, gradient, metrics = run(loss, data, now)
    stock, slope, stock_metrics = run(stock_of(nemo, loss), data, now)
    assert torch.equal(value, stock)
    assert torch.equal(gradient, slope)
    assert {name: metrics[name] for name in stock_metrics} == stock_metrics
    assert all(torch.equal(data[name], value) for name, value in before.items())
    assert len(client.calls) == 1
    assert metrics["satwatch/decoupled"] == pytest.approx(metrics["satwatch/tokens"] / float(TOKENS))


@pytest.mark.parametrize("kind", ["icepop", "seq-mask-tis"])
def test_a_weight_that_drops_tokens_is_kept_and_the_run_reported_as_decoupled(make, nemo, kind):
    loss, _ = make(
        use_importance_sampling_correction=True,
        truncated_importance_sampling_type=kind,
        truncated_importance_sampling_ratio=3.0,
        truncated_importance_sampling_ratio_min=0.3,
    )
    data, now = batch()
    now = (now + 0.3 * torch.sign(data["advantages"][:, 1:])).detach().requires_grad_()
    value, gradient, metrics = run(loss, data, now)
    stock = stock_of(nemo, loss)
    nominal, _, _ = run(stock, data, now)
    _, _, bounds = expected(data, now)
    stock.ratio_clip_min, stock.ratio_clip_max = 1 - bounds.low, bounds.high - 1
    right, slope, _ = run(stock, data, now)
    assert torch.equal(value, right)
    assert torch.equal(gradient, slope)
    assert not torch.equal(value, nominal)
    assert metrics["satwatch/decoupled"] > 0


def test_the_trainers_data_and_epsilons_are_as_before(make):
    loss, _ = make(use_importance_sampling_correction=True)
    data, now = batch()
    before = {name: value.clone() for name, value in data.items()}
    run(loss, data, now)
    assert all(torch.equal(data[name], value) for name, value in before.items())
    assert (loss.ratio_clip_min, loss.ratio_clip_max, loss.use_importance_sampling_correction) == (0.2, 0.28, True)


def test_the_epsilons_are_put_back_when_the_loss_raises(make, nemo, monkeypatch):
    loss, _ = make(use_importance_sampling_correction=True)
    stock, seen = nemo.ClippedPGLossFn.__call__, []

    def fails(self, *args, **kwargs):
        if isinstance(self.ratio_clip_min, torch.Tensor):
            seen.append((self.ratio_clip_min, self.ratio_clip_max))
            raise FloatingPointError
        return stock(self, *args, **kwargs)

    monkeypatch.setattr(nemo.ClippedPGLossFn, "__call__", fails)
    data, now = batch()
    with pytest.raises(FloatingPointError):
        run(loss, data, now)
    ((low, high),) = seen
    _, _, bounds = expected(data, now)
    assert torch.equal(1 - low, bounds.low)
    assert torch.equal(1 + high, bounds.high)
    assert (loss.ratio_clip_min, loss.ratio_clip_max, loss.use_importance_sampling_correction) == (0.2, 0.28, True)


@pytest.mark.parametrize("config", [{}, {"use_importance_sampling_correction": True}])
def test_the_trainers_own_measures_of_the_mismatch_still_measure_it(make, nemo, config):
    loss, _ = make(**config)
    data, now = batch()
    _, _, metrics = run(loss, data, now)
    _, _, stock = run(stock_of(nemo, loss), data, now)
    assert stock["token_mult_prob_error"] != pytest.approx(metrics["satwatch/tokens"] / float(TOKENS))
    for name in ("token_mult_prob_error", "sampling_importance_ratio"):
        assert metrics[name] == stock[name]
    assert metrics["probs_ratio"] != stock["probs_ratio"]


def test_padding_counts_for_nothing(make):
    results = []
    for garbage in (0.0, 3.0):
        loss, client = make()
        data, now = batch(garbage=garbage)
        value, gradient, metrics = run(loss, data, now)
        results.append((value, gradient, metrics, client.calls[0].batch.log_ratio[client.calls[0].batch.mask]))
    (value, gradient, metrics, sent), (other, slope, others, also_sent) = results
    assert torch.equal(value, other)
    assert torch.equal(gradient, slope)
    assert metrics == others
    assert torch.equal(sent, also_sent)
    assert sent.isfinite().all()


def test_where_the_engine_said_nothing_of_padding_the_loss_is_no_nan(make):
    loss, _ = make()
    data, now = batch()
    off = data["token_mask"] * data["sample_mask"][:, None] == 0
    data["generation_logprobs"] = data["generation_logprobs"].masked_fill(off, float("nan"))
    value, gradient, metrics = run(loss, data, now)
    right, slope, _ = expected(*batch())
    assert torch.allclose(value, right, rtol=1e-7, atol=0)
    assert torch.allclose(gradient, slope.nan_to_num(), rtol=1e-7, atol=1e-12)
    assert metrics["satwatch/nan_tokens"] == 0


@pytest.mark.parametrize("config", [{}, {"sequence_level_importance_ratios": True, "token_level_loss": False}])
@pytest.mark.parametrize("mu", [float("nan"), float("-inf"), float("inf"), -1000.0])
def test_an_absurd_log_prob_of_the_engine_gives_a_finite_loss_and_gradient(make, nemo, mu, config):
    """As the stock loss does, which weighs no token by it."""
    loss, client = make(**config)
    data, now = batch()
    data["generation_logprobs"][0, 5] = mu
    for one in (stock_of(nemo, loss), loss):
        value, gradient, _ = run(one, data, now)
        assert value.isfinite()
        assert gradient.isfinite().all()
    # The sidecar sees what came, not what the loss was spared.
    assert not client.calls[0].batch.log_ratio[0, 4].abs() < 80


def test_a_token_without_a_log_prob_has_the_ratio_that_the_stock_loss_takes(make):
    data, now = batch()
    data["generation_logprobs"][0, 5] = float("nan")
    value, gradient, metrics = run(make()[0], data, now)
    coupled = data.copy()
    coupled["generation_logprobs"] = torch.where(
        data["generation_logprobs"].isnan(), data["prev_logprobs"], data["generation_logprobs"]
    )
    right, slope, _ = expected(coupled, now)
    assert metrics["satwatch/nan_tokens"] == 1
    assert torch.allclose(value, right, rtol=1e-2, atol=0)
    assert torch.allclose(gradient[0, 4], slope[0, 4], rtol=1e-7, atol=0)


@pytest.mark.parametrize("field", ["generation_logprobs", "prev_logprobs"])
def test_without_log_probs_nothing_is_sent_and_the_stock_loss_has_its_way(make, hook, caplog, monkeypatch, field):
    monkeypatch.setattr(hook, "_notices", Notices("NeMo-RL"))
    loss, client = make()
    data, now = batch()
    del data[field]
    with caplog.at_level(logging.WARNING, "satwatch"):
        for _ in range(2):
            with pytest.raises(KeyError, match=field):  # the stock loss's own: it needs them
                run(loss, data, now)
    assert client.calls == []
    assert [record.message.startswith("satwatch, NeMo-RL: the training data has no") for record in caplog.records] == [
        True
    ]
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]).step()
    assert loss._attachment().heartbeat.calls_last_step == 2  # it was called, whatever it had to compare


@pytest.mark.parametrize("outcome", [TimeoutError("late"), ValueError("broken"), "local"])
def test_without_an_answer_the_bounds_are_the_same(make, outcome):
    loss, _ = make(script=[outcome])
    data, now = batch()
    value, gradient, _ = run(loss, data, now)
    right, slope, _ = expected(data, now)
    assert torch.allclose(value, right, rtol=1e-7, atol=0)
    assert torch.allclose(gradient, slope, rtol=1e-7, atol=1e-12)


def test_a_client_that_fails_in_every_way_costs_nothing(make, monkeypatch):
    loss, client = make()
    data, now = batch()

    def fails(*args, **kwargs):
        raise RuntimeError("broken")

    monkeypatch.setattr(client, "submit", fails)
    value, _, metrics = run(loss, data, now)
    assert torch.allclose(value, expected(data, now)[0], rtol=1e-7, atol=0)
    assert metrics["satwatch/hook_faults"] == 1
    _, _, metrics = run(loss, data, now)
    assert metrics["satwatch/hook_faults"] == 1  # one more: these are added up


def test_a_field_that_can_t_be_read_is_left_out_and_counted(make):
    loss, client = make(rule=WATCH)
    data, now = batch()
    data["advantages"] = data["advantages"][:1]  # which the stock loss broadcasts
    value, _, metrics = run(loss, data, now)
    assert value.isfinite()
    assert metrics["satwatch/hook_faults"] == 1
    assert client.calls[0].batch.advantage is None


# A packed microbatch, which NeMo-RL takes apart.


def pack(data, now):
    lengths = data["token_mask"].sum(1).int() + 2
    ends = torch.cat([torch.zeros(1, dtype=torch.int32), lengths.cumsum(0).int()])
    parts = [torch.cat([now[row, : length - 1], now.new_zeros(1)]) for row, length in enumerate(lengths.tolist())]
    return torch.cat(parts)[None], ends


def prepare(logits, data, loss_fn, **groups):
    return {"next_token_logprobs": logits[:, :-1]}, data


@pytest.mark.parametrize("rule", [None, WATCH])
def test_a_packed_microbatch_is_one_request_with_one_threshold(make, nemo, rule):
    data, now = batch()
    loss, _ = make(rule=rule)
    value, gradient, metrics = run(loss, data, now)
    loss, client = make(rule=rule)
    packed, ends = pack(data, now)
    total, found = nemo.SequencePackingLossWrapper(loss, prepare, ends)(packed, data, SEQUENCES, TOKENS)
    assert len(client.calls) == 1
    assert torch.allclose(total, value, rtol=1e-12, atol=0)
    assert torch.allclose(torch.autograd.grad(total, now)[0], gradient, rtol=1e-12, atol=1e-15)
    ours = {name for name in metrics if name.startswith("satwatch/")}
    assert {name: found[name] for name in ours} == {name: metrics[name] for name in ours}
    run(loss, data, now)  # and the next one that is not packed is asked for by itself
    assert len(client.calls) == 2


def test_a_packed_microbatch_of_a_loss_that_raises_leaves_nothing_behind(make, nemo):
    data, now = batch()
    loss, _ = make()
    packed, ends = pack(data, now)
    with pytest.raises(RuntimeError):
        nemo.SequencePackingLossWrapper(loss, lambda logits, data, **_: ({"next_token_logprobs": logits}, data), ends)(
            packed, data, SEQUENCES, TOKENS
        )
    value, _, _ = run(loss, data, now)
    assert torch.allclose(value, expected(data, now)[0], rtol=1e-7, atol=0)


def test_other_losses_are_packed_as_ever(make, nemo):
    loss, client = make()
    data, now = batch()
    packed, ends = pack(data, now)
    stock = stock_of(nemo, loss)
    value, metrics = nemo.SequencePackingLossWrapper(stock, prepare, ends)(packed, data, SEQUENCES, TOKENS)
    assert torch.allclose(value, run(stock, data, now)[0], rtol=1e-12, atol=0)
    assert client.calls == []
    assert not any(name.startswith("satwatch/") for name in metrics)


# Set-up.


@pytest.mark.parametrize("name", ["disable_ppo_ratio", "force_on_policy_ratio", "use_cispo"])
def test_a_loss_that_clips_no_ratio_is_refused_unless_it_is_only_watched(make, name):
    data, now = batch()
    loss, client = make(**{name: True})
    with pytest.raises(ConfigError, match=rf"loss_fn\.{name}: got True, required False, or enabled = false"):
        run(loss, data, now)
    loss, client = make(rule=WATCH, **{name: True})
    run(loss, data, now)
    assert len(client.calls) == 1


def test_where_old_is_now_what_is_sent_is_now_against_mu(make):
    loss, client = make(rule=WATCH, force_on_policy_ratio=True)
    data, now = batch()
    data["prev_logprobs"] = torch.zeros_like(data["prev_logprobs"])  # NeMo-RL's placeholder
    run(loss, data, now)
    assert torch.equal(client.calls[0].batch.log_ratio, now.detach() - data["generation_logprobs"][:, 1:])


@pytest.mark.parametrize(
    ("rule", "config", "name"),
    [
        (Rule(eps_low=0.1, eps_high=EPS_HIGH), {}, "eps_low"),
        (Rule(eps_low=EPS_LOW, eps_high=0.2), {}, "eps_high"),
        (Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, level="sequence"), {}, "level"),
        (
            Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH),
            {"sequence_level_importance_ratios": True, "token_level_loss": False},
            "level",
        ),
    ],
)
def test_a_client_of_another_rule_is_refused(make, rule, config, name):
    loss, client = make(rule=rule, **config)
    with pytest.raises(ConfigError, match=f"^{name}: "):
        run(loss, *batch())
    assert client.calls == []


def test_a_run_without_a_name_is_refused_at_the_first_call_and_not_before(hook, nemo, monkeypatch):
    monkeypatch.delenv("SATWATCH_RUN", raising=False)
    monkeypatch.delenv("SATWATCH_CLIENT_CONFIG", raising=False)
    loss = hook.SatClippedPGLoss(nemo.ClippedPGLossConfig(reference_policy_kl_penalty=0.0))
    loss = pickle.loads(pickle.dumps(loss))
    with pytest.raises(ConfigError, match="SATWATCH_RUN"):
        run(loss, *batch())


def test_every_copy_that_ray_hands_a_worker_asks_through_the_same_attachment(hook, nemo, make, monkeypatch):
    _, client = make()
    monkeypatch.setattr("satwatch.hooks.core.settings._process_client", [client])
    config = nemo.ClippedPGLossConfig(ratio_clip_min=EPS_LOW, ratio_clip_max=EPS_HIGH, reference_policy_kl_penalty=0.0)
    loss = hook.SatClippedPGLoss(config)
    attachments = set()
    for _ in range(3):
        copied = pickle.loads(pickle.dumps(loss))
        run(copied, *batch())
        attachments.add(copied._attachment())
    assert len(client.calls) == 3
    assert len(attachments) == 1
    assert hook.SatClippedPGLoss(config)._attachment() not in attachments


def test_a_client_travels_as_a_configuration_and_gets_its_workers_rank(hook, nemo, monkeypatch):
    client = satwatch.connect("127.0.0.1:9", run="a-run", eps_low=EPS_LOW, eps_high=EPS_HIGH)
    config = nemo.ClippedPGLossConfig(ratio_clip_min=EPS_LOW, ratio_clip_max=EPS_HIGH, reference_policy_kl_penalty=0.0)
    loss = pickle.loads(pickle.dumps(hook.SatClippedPGLoss(config, satwatch=client, peers=2)))
    monkeypatch.setattr("satwatch.hooks.core.ranks.distributed_rank", lambda: (6, 8))
    own = loss._attachment().client
    assert own is not client
    assert "run='a-run', rank=3, world_size=4" in repr(own)
    own.close()


@pytest.mark.parametrize(("rank", "peers", "sends"), [(4, 2, True), (5, 2, False), (5, 1, True)])
def test_ranks_that_hold_another_ones_tokens_bound_them_and_send_nothing(make, monkeypatch, rank, peers, sends):
    monkeypatch.setattr("satwatch.hooks.core.ranks.distributed_rank", lambda: (rank, 8))
    loss, client = make(peers=peers)
    data, now = batch()
    value, _, _ = run(loss, data, now)
    assert len(client.calls) == sends
    assert torch.allclose(value, expected(data, now)[0], rtol=1e-7, atol=0)


@pytest.mark.parametrize(("tensor", "context", "sends"), [(0, 0, True), (1, 0, False), (0, 1, False)])
def test_megatron_is_asked_where_it_runs(make, monkeypatch, tensor, context, sends):
    state = types.ModuleType("megatron.core.parallel_state")
    state.model_parallel_is_initialized = lambda: True
    state.get_tensor_model_parallel_rank = lambda: tensor
    state.get_context_parallel_rank = lambda: context
    state.get_data_parallel_rank = lambda: 2
    state.get_data_parallel_world_size = lambda: 5
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    loss, client = make()
    run(loss, *batch())
    assert len(client.calls) == sends


# Metrics: NeMo-RL adds them up over microbatches and ranks.


def test_metrics_add_up_to_those_of_the_step(make):
    loss, client = make()
    total = {}
    for seed in (1, 2):
        _, _, metrics = run(loss, *batch(seed))
        for name, value in metrics.items():
            if name.startswith("satwatch/"):
                assert isinstance(value, float)
                total[name] = total.get(name, 0) + value
    d = torch.cat([call.batch.log_ratio[call.batch.mask] for call in client.calls])
    low, gates = 0.0, 0
    for call in client.calls:
        bounds = clip_bounds(call.batch.log_ratio, mask=call.batch.mask, eps_low=EPS_LOW, eps_high=EPS_HIGH)
        low += (1 - bounds.low[call.batch.mask]).sum().item()
        gates += bounds.gate.sum().item()
    assert total["satwatch/tokens"] == len(d)
    assert total["satwatch/hook_calls_per_step"] == 2
    assert total["satwatch/log_ratio_abs_mean"] == pytest.approx(d.abs().sum().item() / float(TOKENS))
    assert total["satwatch/log_ratio_mean"] == pytest.approx(d.sum().item() / float(TOKENS))
    assert total["satwatch/clip_radius_low_mean"] == pytest.approx(low / float(TOKENS))
    assert total["satwatch/gate_rate"] == pytest.approx(gates / float(TOKENS))
    assert "satwatch/quantile_reference" not in total
    assert not any("_min" in name or "_max" in name for name in total)  # which NeMo-RL does not add up


def test_what_is_divided_by_tokens_is_advertised(make):
    loss, _ = make()
    _, _, metrics = run(loss, *batch())
    normalizations = loss.metric_normalizations
    ours = {name for name in metrics if name.startswith("satwatch/")}
    assert ours <= set(normalizations)
    assert normalizations["satwatch/gate_rate"] == normalizations["probs_ratio"]
    assert normalizations["satwatch/tokens"] == normalizations["num_valid_samples"]
