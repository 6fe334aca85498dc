"""AReaL's hook, by signature: the real package is not run here (tests/trainers/areal does that).

The stand-ins have the arguments, the shapes and the behaviour of AReaL 1.0.4's ``areal.trainer.ppo.actor``, in words of
their own.
"""

import functools
import logging
import sys
import types
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore

from satwatch.client import FakeClient, connect
from satwatch.errors import ConfigError, DeadlineError
from satwatch.hooks import areal, use
from satwatch.sat import clip_bounds
from satwatch.types import Rule
from tests.contract.hooks.areal_stand_in import EPS_HIGH, EPS_LOW, LENGTHS, batch, close, expected, run, stock_loss

RULE = Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH)
WATCH = Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, enabled=False)


# The stand-ins.


class PPOActor:
    def __init__(self, config, engine):
        self.config, self.engine = config, engine

    def _ppo_update(self, data):
        settings = {name: getattr(self.config, name) for name in ("eps_clip", "eps_clip_higher", "c_clip")}
        settings |= {name: getattr(self.config, name) for name in ("rejection_sampling", "use_decoupled_loss")}
        module = sys.modules["areal.trainer.ppo.actor"]
        loss_fn = functools.partial(module.grpo_loss_fn, **settings, current_version=self.engine.version)
        return [self.engine.train_batch(batch, loss_fn) for batch in data]


@dataclass
class Config:
    eps_clip: float = EPS_LOW
    eps_clip_higher: float | None = EPS_HIGH
    c_clip: float | None = None
    rejection_sampling: object = None
    use_decoupled_loss: bool = False
    recompute_logprob: bool = False


class Engine:
    version = 7

    def train_batch(self, batch, loss_fn):
        return loss_fn(batch["now"], torch.zeros(len(batch["now"])), batch["inputs"])


@dataclass
class Tracker:
    scalars: dict = field(default_factory=dict)

    def scalar(self, **values):
        self.scalars |= values


@pytest.fixture
def actors(monkeypatch):
    """AReaL's module of actors."""
    module = types.ModuleType("areal.trainer.ppo.actor")
    module.grpo_loss_fn, module.stats_tracker = stock_loss, Tracker()
    module.PPOActor = type("PPOActor", (PPOActor,), {"_ppo_update": PPOActor._ppo_update})
    for name in ("areal", "areal.trainer", "areal.trainer.ppo"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.fixture
def installed(actors):
    """Install with a client that is returned."""
    handles = []

    def install(script=(), rule=RULE):
        client = FakeClient(script, rule=rule)
        handles.append(areal.install(client))
        return client

    yield install
    for handle in handles:
        handle.uninstall()


def test_a_token_that_the_trainer_likes_better_has_a_log_ratio_above_zero(actors, installed):
    client = installed()
    inputs, _ = batch(decoupled=True)
    run(actors.grpo_loss_fn, inputs, (inputs["logprobs"] + 0.25).requires_grad_(), use_decoupled_loss=True)
    (call,) = client.calls
    assert call.submitted
    assert torch.allclose(call.batch.log_ratio, torch.full_like(call.batch.log_ratio, 0.25))


def test_what_is_sent_is_the_policy_of_now_against_mu_with_all_that_is_known(actors, installed):
    client = installed()
    inputs, now = batch(decoupled=True)
    run(actors.grpo_loss_fn, inputs, now, use_decoupled_loss=True)
    (sent,) = (call.batch for call in client.calls)
    assert torch.equal(sent.log_ratio, (now - inputs["logprobs"]).detach())
    assert torch.equal(sent.mask, inputs["loss_mask"] != 0)
    assert torch.equal(sent.advantage, inputs["advantages"])
    assert torch.equal(sent.behavior_logprob, inputs["logprobs"])
    assert sent.sequence_lengths.tolist() == list(LENGTHS)
    assert (sent.step, sent.policy_version, sent.reference_logprob) == (0, 9, None)


def test_a_tokens_version_goes_with_its_log_prob_though_areal_keeps_it_one_place_later(actors, installed):
    client = installed()
    inputs, now = batch()
    run(actors.grpo_loss_fn, inputs, now)
    (sent,) = (call.batch for call in client.calls)
    own = inputs["versions"].split(LENGTHS)
    # The place of a token's log-prob is the one before the token.
    assert sent.behavior_versions.unit == "token"
    assert sent.behavior_versions.values[sent.mask].tolist() == [v for row in own for v in row[2:].tolist()]
    assert (sent.behavior_versions.values[sent.mask] >= 0).all()


def test_padded_rows_are_taken_too(actors, installed):
    client = installed()
    inputs, now = batch()
    rows = {name: torch.stack(value.split(LENGTHS)[:1] * 2) for name, value in inputs.items() if name != "cu_seqlens"}
    now = torch.stack(now.detach().split(LENGTHS)[:1] * 2).requires_grad_()
    run(actors.grpo_loss_fn, rows, now)
    (sent,) = (call.batch for call in client.calls)
    assert sent.log_ratio.shape == (2, 8)
    assert sent.behavior_versions.values.reshape(2, 8)[:, :-1].tolist() == rows["versions"][:, 1:].tolist()


@pytest.mark.parametrize("garbage", [0.0, 5.0])
def test_the_loss_clips_pi_now_to_mu_at_the_bounds(actors, installed, garbage):
    installed()
    inputs, now = batch(garbage=garbage)
    value, gradient = run(actors.grpo_loss_fn, inputs, now)
    right, slope, bounds = expected(inputs, now)
    assert bounds.gate.any()
    assert close(value, right)
    assert close(gradient, slope)
    nominal, _ = run(stock_loss, inputs, now)
    assert not torch.allclose(value, nominal, rtol=1e-4, atol=0)


def test_one_epsilon_stands_for_both_sides(actors, installed):
    client = installed(rule=Rule(eps_low=0.2, eps_high=0.2))
    inputs, now = batch()
    value, _ = run(actors.grpo_loss_fn, inputs, now, eps_clip_higher=None)
    bounds = clip_bounds((now - inputs["logprobs"]).detach(), mask=inputs["loss_mask"])
    right, _ = run(stock_loss, inputs, now, eps_clip=1 - bounds.low, eps_clip_higher=bounds.high - 1)
    assert torch.equal(value, right)
    assert len(client.calls) == 1


WEIGHS = SimpleNamespace(action="clamp", upper=0.9)


@pytest.mark.parametrize("settings", [{}, {"rejection_sampling": WEIGHS}, {"prox_logp_method": "metrics"}])
def test_a_decoupled_loss_gets_mu_for_its_proximal_policy_and_weighs_nothing(actors, installed, settings, caplog):
    installed()
    inputs, now = batch(decoupled=True, garbage=2.0)
    with caplog.at_level(logging.WARNING, logger="satwatch"):
        run(actors.grpo_loss_fn, inputs, now, use_decoupled_loss=True, **settings)
        value, gradient = run(actors.grpo_loss_fn, inputs, now, use_decoupled_loss=True, **settings)
    (record,) = caplog.records
    assert "in the place of the proximal policy's" in record.getMessage()
    right, slope, _ = expected(inputs, now)
    assert close(value, right)
    assert close(gradient, slope)
    assert areal.install().metrics()["satwatch/decoupled"] == 0


def test_what_stands_in_padding_has_no_part_in_the_gradient(actors, installed):
    installed()
    inputs, now = batch(decoupled=True)
    inputs["logprobs"] = torch.where(inputs["loss_mask"] != 0, inputs["logprobs"], -1e4)  # whose ratio is infinite
    _, gradient = run(actors.grpo_loss_fn, inputs, now, use_decoupled_loss=True)
    _, slope, _ = expected(batch(decoupled=True)[0], now)
    assert close(gradient, slope)


def test_a_loss_of_mu_already_gets_the_trainers_own_inputs(actors, installed):
    installed()
    inputs, now = batch()
    seen = []
    areal.install()._stock_loss = lambda *args, **kwargs: seen.append((args, kwargs)) or stock_loss(*args, **kwargs)
    run(actors.grpo_loss_fn, inputs, now, rejection_sampling=WEIGHS)
    ((args, kwargs),) = seen
    assert args[2] is inputs
    assert kwargs["rejection_sampling"] is WEIGHS


def test_without_a_proximal_policy_the_decoupled_loss_gets_mu(actors, installed):
    installed()
    inputs, now = batch(prox_logp=None)
    value, _ = run(actors.grpo_loss_fn, inputs, now, use_decoupled_loss=True, prox_logp_method="loglinear")
    right, _, _ = expected(inputs, now)
    assert close(value, right)


@pytest.mark.parametrize(
    "settings", [{"rejection_sampling": SimpleNamespace(action="mask", upper=1.1)}, {"m2_threshold": 0.01}]
)
def test_what_drops_tokens_is_kept_and_the_run_reported_as_decoupled(actors, installed, settings):
    installed()
    inputs, now = batch(decoupled=True)
    moved, now = (inputs["prox_logp"] - inputs["logprobs"]).abs(), now.detach().clone()
    kept = torch.where(inputs["loss_mask"] != 0, moved, torch.inf).argsort()[:4]
    now[kept] += 0.5 * torch.sign(inputs["advantages"][kept])  # gated by pi_now/mu, and not dropped by pi_prox/mu
    now.requires_grad_()
    value, gradient = run(actors.grpo_loss_fn, inputs, now, use_decoupled_loss=True, **settings)
    _, _, bounds = expected(inputs, now)
    radii = {"eps_clip": 1 - bounds.low, "eps_clip_higher": bounds.high - 1}
    right, slope = run(stock_loss, inputs, now, **settings, **radii)
    nominal, _ = run(stock_loss, inputs, now, **settings)
    assert torch.equal(value, right)
    assert torch.equal(gradient, slope)
    assert not torch.equal(value, nominal)
    assert areal.install().metrics()["satwatch/decoupled"] == 1


def test_a_token_that_the_engine_has_no_number_for_keeps_the_proximal_policy(actors, installed):
    installed()
    inputs, now = batch(decoupled=True)
    inputs["logprobs"][3] = float("nan")
    value, gradient = run(actors.grpo_loss_fn, inputs, now, use_decoupled_loss=True)
    d = (now - inputs["logprobs"]).detach()
    bounds = clip_bounds(d, mask=inputs["loss_mask"], eps_low=EPS_LOW, eps_high=EPS_HIGH)
    handed = torch.where(inputs["logprobs"].isnan(), inputs["prox_logp"], inputs["logprobs"])
    ratio, advantage, mask = (now - handed).exp(), inputs["advantages"], inputs["loss_mask"] != 0
    right = -torch.minimum(ratio * advantage, ratio.clamp(bounds.low, bounds.high) * advantage)[mask].mean()
    assert close(value, right)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("mu", [-91.0, -1000.0, float("-inf")])
def test_a_log_prob_that_no_engine_means_makes_no_nan(actors, installed, mu):
    installed()
    inputs, now = batch(decoupled=True, dtype=torch.float32)
    inputs["logprobs"][3], inputs["advantages"][3] = mu, 1.0
    value, gradient = run(actors.grpo_loss_fn, inputs, now, use_decoupled_loss=True)
    assert value.isfinite()
    assert gradient.isfinite().all()
    assert gradient[3] == 0  # far outward: clipped


def test_at_sequence_level_the_sequences_ratio_is_clipped_at_the_sequences_bounds(actors, installed):
    client = installed(rule=Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, level="sequence", quantile=0.5))
    inputs, now = batch()
    inputs["advantages"] = inputs["advantages"].abs()
    now = (now + 0.15 * (torch.arange(len(now)) < LENGTHS[0])).detach().requires_grad_()
    value, gradient = run(actors.grpo_loss_fn, inputs, now, importance_sampling_level="sequence")
    right, slope, bounds = expected(inputs, now, level="sequence", quantile=0.5)
    assert bounds.gate.any()
    assert close(value, right)
    assert close(gradient, slope)
    nominal, _ = run(stock_loss, inputs, now, importance_sampling_level="sequence")
    assert not torch.allclose(value, nominal, rtol=1e-4, atol=0)
    assert len(client.calls) == 1


@pytest.mark.parametrize(("rule", "unit"), [(RULE, "sequence"), (Rule(eps_high=EPS_HIGH, level="sequence"), "token")])
def test_bounds_of_another_unit_than_the_ratio_are_refused(actors, installed, rule, unit):
    installed(rule=rule)
    inputs, now = batch()
    with pytest.raises(ConfigError, match="level"):
        run(actors.grpo_loss_fn, inputs, now, importance_sampling_level=unit)


@pytest.mark.parametrize(("rule", "eps_high"), [(Rule(), EPS_HIGH), (RULE, None)])
def test_other_radii_than_the_trainers_are_refused(actors, installed, rule, eps_high):
    installed(rule=rule)
    inputs, now = batch()
    with pytest.raises(ConfigError, match="eps_high"):
        run(actors.grpo_loss_fn, inputs, now, eps_clip_higher=eps_high)


def test_a_run_without_a_name_is_refused(actors, monkeypatch):
    monkeypatch.delenv("SATWATCH_RUN", raising=False)
    use(None)
    handle = areal.install()
    inputs, now = batch()
    try:
        with pytest.raises(ConfigError, match="run"):
            run(actors.grpo_loss_fn, inputs, now)
    finally:
        handle.uninstall()


def test_a_loss_that_clips_nothing_can_only_be_watched(actors, installed):
    installed()
    inputs, now = batch()
    with pytest.raises(ConfigError, match="use_sapo_loss"):
        run(actors.grpo_loss_fn, inputs, now, use_sapo_loss=True)
    areal.install().uninstall()
    client = installed(rule=WATCH)
    run(actors.grpo_loss_fn, inputs, now, use_sapo_loss=True)
    assert len(client.calls) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"eps_clip_higher": None},
        {"c_clip": 3.0},
        {"use_decoupled_loss": True},
        {"use_decoupled_loss": True, "rejection_sampling": WEIGHS},
        {"use_decoupled_loss": True, "m2_threshold": 0.01},
    ],
)
def test_only_watching_leaves_loss_gradient_and_inputs_alone(actors, installed, settings):
    eps_high = EPS_LOW if "eps_clip_higher" in settings else EPS_HIGH
    client = installed(rule=Rule(eps_low=EPS_LOW, eps_high=eps_high, enabled=False))
    inputs, now = batch(decoupled="use_decoupled_loss" in settings)
    before = {name: value.clone() for name, value in inputs.items()}
    seen = []
    areal.install()._stock_loss = lambda *args, **kwargs: seen.append((args, kwargs)) or stock_loss(*args, **kwargs)
    value, gradient = run(actors.grpo_loss_fn, inputs, now, **settings)
    stock, slope = run(stock_loss, inputs, now, **settings)
    assert torch.equal(value, stock)
    assert torch.equal(gradient, slope)
    ((args, kwargs),) = seen
    assert args[2] is inputs
    assert (kwargs["eps_clip"], kwargs["eps_clip_higher"]) == (EPS_LOW, settings.get("eps_clip_higher", EPS_HIGH))
    assert all(torch.equal(inputs[name], value) for name, value in before.items())
    assert len(client.calls) == 1
    assert areal.install().metrics()["satwatch/decoupled"] == ("use_decoupled_loss" in settings)


def test_the_trainers_inputs_are_as_before_also_when_the_loss_raises(actors, installed):
    installed()
    inputs, now = batch(decoupled=True)
    before = dict(inputs)
    run(actors.grpo_loss_fn, inputs, now, use_decoupled_loss=True)
    assert all(inputs[name] is value for name, value in before.items())
    assert len(inputs) == len(before)

    def fails(*args, **kwargs):
        raise FloatingPointError

    areal.install()._stock_loss = fails
    with pytest.raises(FloatingPointError):
        run(actors.grpo_loss_fn, inputs, now, use_decoupled_loss=True)
    assert all(inputs[name] is value for name, value in before.items())


def test_where_areal_overwrites_the_engines_log_probs_nothing_is_sent(actors, installed, caplog):
    client = installed()
    inputs, now = batch()
    actor = actors.PPOActor(Config(recompute_logprob=True), Engine())
    with caplog.at_level(logging.WARNING, logger="satwatch"):
        values = actor._ppo_update([{"now": now, "inputs": inputs}] * 2)
    stock, _ = run(stock_loss, inputs, now)
    assert all(torch.equal(value, stock) for value in values)
    assert client.calls == []
    (record,) = caplog.records
    assert "recompute_logprob" in record.getMessage()
    assert actors.stats_tracker.scalars == {}
    run(actors.grpo_loss_fn, inputs, now)  # in no update: nobody says that they are overwritten
    assert len(client.calls) == 1


def test_recomputed_log_probs_beside_the_engines_are_no_hindrance(actors, installed):
    client = installed()
    inputs, now = batch(decoupled=True)
    config = Config(recompute_logprob=True, use_decoupled_loss=True)
    actors.PPOActor(config, Engine())._ppo_update([{"now": now, "inputs": inputs}])
    (call,) = client.calls
    assert torch.equal(call.batch.log_ratio, (now - inputs["logprobs"]).detach())


def test_an_update_logs_its_metrics_into_areals_own_tracker(actors, installed):
    client = installed()
    inputs, now = batch()
    actors.PPOActor(Config(), Engine())._ppo_update([{"now": now, "inputs": inputs}] * 3)
    assert len(client.calls) == 3
    logged = actors.stats_tracker.scalars
    tokens = inputs["loss_mask"].sum().item()
    assert logged["satwatch/tokens"] == 3 * tokens
    assert logged["satwatch/version_coverage"] == 1
    assert logged["satwatch/gate_rate"] > 0
    assert all(isinstance(value, float) for value in logged.values())
    assert client.calls[0].batch.policy_version == Engine.version


def test_versions_that_are_not_there_stay_unknown(actors, installed):
    client = installed()
    inputs, now = batch()
    del inputs["versions"]
    run(actors.grpo_loss_fn, inputs, now, current_version=None)
    (sent,) = (call.batch for call in client.calls)
    assert (sent.behavior_versions, sent.policy_version) == (None, None)


@pytest.mark.parametrize("field", ["versions", "cu_seqlens"])
@pytest.mark.parametrize("value", [torch.zeros(2, dtype=torch.int32), torch.zeros((), dtype=torch.int32), "broken"])
def test_a_field_that_can_not_be_read_costs_no_more_than_itself(actors, installed, field, value):
    client = installed()
    inputs, now = batch(**{field: value})
    loss, _ = run(actors.grpo_loss_fn, inputs, now)
    right, _, _ = expected(batch()[0], now)
    assert close(loss, right)
    (sent,) = (call.batch for call in client.calls)
    assert sent.advantage is not None
    assert (sent.behavior_versions is None) == (field == "versions")


@pytest.mark.parametrize("error", [DeadlineError("late"), ValueError("broken")])
def test_a_broken_client_never_breaks_the_loss(actors, installed, error):
    def broken(*args, **kwargs):
        raise error

    client = installed()
    client.submit = broken
    inputs, now = batch()
    value, _ = run(actors.grpo_loss_fn, inputs, now)
    right, _, _ = expected(inputs, now)
    assert close(value, right)
    assert areal.install().metrics()["satwatch/hook_faults"] == 1


def test_the_interval_of_a_sidecar_that_answers_nominal_is_the_trainers(actors, installed):
    installed(["nominal"])
    inputs, now = batch()
    value, _ = run(actors.grpo_loss_fn, inputs, now)
    right, _ = run(stock_loss, inputs, now)
    assert close(value, right)


def test_installing_twice_is_installing_once(actors, installed):
    client = installed()
    handle, loss = areal.install(), actors.grpo_loss_fn
    assert areal.install(client) is handle
    assert actors.grpo_loss_fn is loss
    with pytest.raises(ConfigError, match="uninstall"):
        areal.install(FakeClient())
    inputs, now = batch()
    run(actors.grpo_loss_fn, inputs, now)
    assert len(client.calls) == 1


def test_uninstalling_puts_areals_own_back(actors, installed):
    update = actors.PPOActor._ppo_update
    installed()
    assert actors.grpo_loss_fn is not stock_loss
    areal.install().uninstall()
    assert actors.grpo_loss_fn is stock_loss
    assert actors.PPOActor._ppo_update is update


def test_installing_attaches_nothing_before_the_first_loss(actors, monkeypatch):
    monkeypatch.delenv("SATWATCH_RUN", raising=False)
    handle = areal.install()
    assert handle.metrics() == {}
    handle.uninstall()


@pytest.fixture
def group():
    """Make a group of ranks, as one of sixteen sees it."""

    def make(rank, peers):
        torch.distributed.init_process_group("fake", rank=rank, world_size=16, store=FakeStore())
        return torch.distributed.new_group(peers)

    yield make
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("rank", "peers", "stage", "sends"),
    [
        (4, [4, 5, 6, 7], 0, True),  # two tensor-parallel, two sequence-parallel
        (6, [4, 5, 6, 7], 0, False),
        (12, [4, 5, 12, 13], 1, True),  # two stages of two: the loss runs in the second
        (13, [4, 5, 12, 13], 1, False),
        (3, [1, 3, 5, 7], 1, False),
        (5, [1, 3, 5, 7], 1, True),
    ],
)
def test_one_rank_of_those_with_the_same_tokens_sends(group, rank, peers, stage, sends):
    engine = SimpleNamespace(
        context_and_model_parallel_group=group(rank, peers),
        data_parallel_rank=1,
        data_parallel_world_size=4,
        pipeline_parallel_rank=stage,
    )
    assert areal.place(engine) == (1, 4, sends)


def test_a_client_for_all_ranks_is_given_each_ones_own(actors, monkeypatch, tmp_path):
    monkeypatch.setattr(areal, "place", lambda engine: (1, 4, True))
    with connect(f"unix:{tmp_path}/nobody", run="ranks", eps_high=EPS_HIGH) as client:
        handle = areal.install(client)
        run(actors.grpo_loss_fn, *batch())
        assert "rank=1, world_size=4" in repr(handle._attachment.client)
        handle._attachment.client.close()
        handle.uninstall()


def test_a_rank_that_does_not_send_has_the_same_bounds(actors, installed, monkeypatch):
    client = installed()
    monkeypatch.setattr(areal, "place", lambda engine: (0, 1, False))
    inputs, now = batch()
    value, _ = run(actors.grpo_loss_fn, inputs, now)
    right, _, _ = expected(inputs, now)
    assert client.calls == []
    assert close(value, right)


def test_a_loss_that_is_never_called_is_said(actors, installed, caplog):
    installed()
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight])
    with caplog.at_level(logging.WARNING, logger="satwatch"):
        for _ in range(4):
            optimizer.step()
    (record,) = caplog.records
    assert record.getMessage().startswith("satwatch, AReaL: 2 optimizer steps without a call")


@pytest.mark.parametrize("config", [Config(), Config(recompute_logprob=True)])
def test_a_loss_that_is_called_makes_no_noise(actors, installed, caplog, config):
    installed()
    inputs, now = batch()
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    actors.PPOActor(config, Engine())._ppo_update([{"now": now, "inputs": inputs}])
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="satwatch"):
        for _ in range(4):
            optimizer.step()
            actors.PPOActor(config, Engine())._ppo_update([{"now": now, "inputs": inputs}])
        areal.install().uninstall()
        for _ in range(300):
            optimizer.step()
    assert caplog.records == []


def test_without_an_engine_torch_distributed_says_which_rank_this_is():
    assert areal.place(None) == (0, 1, True)
