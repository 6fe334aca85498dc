"""OpenRLHF's hook, by signature: the real package is not run here (tests/trainers/openrlhf does that).

The stand-ins have the arguments, the shapes and the behaviour of OpenRLHF 0.11.2 and 0.11.0, in words of their own.
"""

import logging
import math
from types import SimpleNamespace

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from satwatch.client import FakeClient, connect
from satwatch.errors import ConfigError, DeadlineError
from satwatch.hooks import openrlhf, use
from satwatch.sat import clip_bounds
from satwatch.types import Rule
from tests.contract.hooks.openrlhf_stand_in import (
    EPS_HIGH,
    EPS_LOW,
    OlderPolicyLoss,
    PolicyLoss,
    batch,
    close,
    expected,
    run,
)

RULE = Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH)
WATCH = Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, enabled=False)

# What turns the correction on, so that vLLM returns log-probs: without dropping tokens, and with.
CLIPS = {"is_correction_level": "token", "is_correction_mode": "clip", "is_correction_threshold": (0.9, 1.1)}
TIS = {"enable_vllm_is_correction": True, "vllm_is_truncated_threshold": [0.9, 1.1]}
WEIGHS = [(PolicyLoss, {}), (PolicyLoss, CLIPS), (OlderPolicyLoss, {}), (OlderPolicyLoss, TIS)]
DROPS = [
    (PolicyLoss, {"is_correction_level": "token", "is_correction_threshold": (0.9, 1.1)}),
    (PolicyLoss, {"is_correction_level": "seq", "is_correction_threshold": (0.95, 1.1)}),
    (OlderPolicyLoss, TIS | {"vllm_is_correction_type": "icepop"}),
    (OlderPolicyLoss, TIS | {"vllm_is_correction_type": "seq-mask-tis"}),
]


class Trainer:
    """Trains as ``ActorPPOTrainer`` does, where the hook looks."""

    def __init__(self, loss_fn, is_async=True):
        self.actor_loss_fn = loss_fn
        self.args = SimpleNamespace(train=SimpleNamespace(async_enable=is_async))
        self.strategy = SimpleNamespace(args=self.args)
        self.batches = []

    def ppo_train(self, kl_ctl):
        losses = [run(self.actor_loss_fn, arguments)[0][0].item() for arguments in self.batches]
        return {"policy_loss": sum(losses) / len(losses), "kl_ctl": kl_ctl}


@pytest.fixture
def attached():
    """Make a trainer with the hook in it, and the client that it asks."""
    handles = []

    def attach(kind=PolicyLoss, settings=None, script=(), rule=RULE, **trainer):
        client = FakeClient(script, rule=rule)
        handles.append(openrlhf.install(Trainer(kind(**(settings or {})), **trainer), client))
        return handles[-1], handles[-1].trainer.actor_loss_fn, client

    yield attach
    for handle in handles:
        handle.uninstall()


def slots(loss_fn):
    return {name: value for name, value in vars(loss_fn).items() if not name.startswith("_")}


def test_a_token_that_the_trainer_likes_better_has_a_log_ratio_above_zero(attached):
    _, loss_fn, client = attached()
    arguments = batch()
    arguments["log_probs"] = (arguments["rollout_log_probs"] + 0.25).requires_grad_()
    run(loss_fn, arguments)
    (call,) = client.calls
    assert call.submitted
    assert torch.allclose(call.batch.log_ratio, torch.full_like(call.batch.log_ratio, 0.25))


def test_what_is_sent_is_the_policy_of_now_against_mu_of_the_tokens_in_the_mask(attached):
    _, loss_fn, client = attached()
    arguments = batch()
    run(loss_fn, arguments)
    (sent,) = (call.batch for call in client.calls)
    assert torch.equal(sent.log_ratio, (arguments["log_probs"] - arguments["rollout_log_probs"]).detach())
    assert torch.equal(sent.mask, arguments["action_mask"] != 0)
    assert torch.equal(sent.advantage, arguments["advantages"])
    assert torch.equal(sent.behavior_logprob, arguments["rollout_log_probs"])
    assert (sent.step, sent.policy_version, sent.behavior_versions, sent.reference_logprob) == (0, None, None, None)


def test_in_turns_with_vllm_the_old_log_probs_are_those_at_the_rollouts_weights(attached):
    _, loss_fn, client = attached(is_async=False)
    arguments = batch()
    run(loss_fn, arguments)
    assert torch.equal(client.calls[0].batch.reference_logprob, arguments["old_log_probs"])


@pytest.mark.parametrize("garbage", [0.0, 5.0])
@pytest.mark.parametrize(("kind", "settings"), WEIGHS)
def test_the_loss_clips_pi_now_to_mu_at_the_bounds_and_weighs_nothing(attached, kind, settings, garbage, caplog):
    handle, loss_fn, client = attached(kind, settings)
    arguments = batch(garbage=garbage)
    with caplog.at_level(logging.WARNING, logger="satwatch"):
        run(loss_fn, arguments)
        out, gradient = run(loss_fn, arguments)
    (record,) = caplog.records
    assert "in the place of the old policy's" in record.getMessage()
    right, slope, bounds = expected(arguments)
    assert bounds.gate.any()
    assert close(out[0], right)
    assert close(gradient, slope)
    stock, _ = run(kind(**settings), arguments)
    assert not close(out[0], stock[0], 1e-4)
    assert handle.metrics()["satwatch/decoupled"] == 0
    assert len(client.calls) == 2


@pytest.mark.parametrize(("kind", "settings"), DROPS)
def test_a_correction_that_drops_tokens_is_kept_and_the_run_reported_as_decoupled(attached, kind, settings):
    handle, loss_fn, _ = attached(kind, settings, rule=Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, quantile=0.3))
    arguments = batch()
    towards = torch.sign(arguments["advantages"]) * (arguments["action_mask"] != 0)
    arguments["log_probs"] = (arguments["log_probs"] + 0.25 * towards).detach().requires_grad_()
    out, gradient = run(loss_fn, arguments)
    _, _, bounds = expected(arguments, quantile=0.3)
    radii = {"clip_eps_low": 1 - bounds.low, "clip_eps_high": bounds.high - 1}
    right, slope = run(kind(**settings, **radii), arguments)
    nominal, _ = run(kind(**settings), arguments)
    unfiltered, _ = run(kind(**radii), arguments)
    assert torch.equal(out[0], right[0])
    assert torch.equal(gradient, slope)
    assert not torch.equal(out[0], nominal[0])
    assert not torch.equal(out[0], unfiltered[0])
    assert handle.metrics()["satwatch/decoupled"] == 1


@pytest.mark.parametrize(("kind", "settings"), [*WEIGHS, *DROPS])
@pytest.mark.parametrize("unit", ["ppo", "gspo"])
def test_only_watching_leaves_everything_alone(attached, kind, settings, unit):
    settings = {**settings, "policy_loss_type": unit, "dual_clip": 3.0}
    level = "sequence" if unit == "gspo" else "token"
    handle, loss_fn, client = attached(
        kind, settings, rule=Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, level=level, enabled=False)
    )
    arguments, before = batch(), slots(loss_fn)
    kept = {name: value.clone() for name, value in arguments.items()}
    seen = []
    forward = loss_fn.forward
    loss_fn.forward = lambda *args, **kwargs: seen.append((args, kwargs, slots(loss_fn))) or forward(*args, **kwargs)
    out, gradient = run(loss_fn, arguments)
    del loss_fn.forward
    stock, slope = run(kind(**settings), arguments)
    assert all(
        torch.equal(one, other) if other is not None else one is None for one, other in zip(out, stock, strict=True)
    )
    assert torch.equal(gradient, slope)
    ((args, kwargs, during),) = seen
    handed = [*args, kwargs["action_mask"], kwargs["rollout_log_probs"]]
    assert all(one is other for one, other in zip(handed, arguments.values(), strict=True))
    assert {name: value for name, value in during.items() if name != "forward"} == before
    assert all(torch.equal(arguments[name], value) for name, value in kept.items())
    assert len(client.calls) == 1
    is_over_mu = unit == "gspo" and bool(settings.keys() & {"is_correction_level", "enable_vllm_is_correction"})
    assert handle.metrics()["satwatch/decoupled"] == (not is_over_mu)


@pytest.mark.parametrize(("kind", "settings"), [*WEIGHS, *DROPS])
def test_at_sequence_level_the_sequences_ratio_is_clipped_at_the_sequences_bounds(attached, kind, settings):
    rule = Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, level="sequence", quantile=0.5)
    handle, loss_fn, client = attached(kind, {**settings, "policy_loss_type": "gspo"}, rule=rule)
    arguments = batch()
    arguments["advantages"] = arguments["advantages"].abs()
    shift = torch.tensor([[0.2], [0.0], [0.0], [0.0]])
    arguments["log_probs"] = (arguments["log_probs"] + shift).detach().requires_grad_()
    out, gradient = run(loss_fn, arguments)
    right, slope, bounds = expected(arguments, "sequence", 0.5, "sequence")
    assert bounds.gate[0].any()
    assert close(out[0], right)
    assert close(gradient, slope)
    assert gradient[0].count_nonzero() == 0  # PPO's own interval would let it go on
    assert handle.metrics()["satwatch/decoupled"] == 0
    assert len(client.calls) == 1


def test_the_dual_clip_works_as_before(attached):
    _, loss_fn, _ = attached(settings={"dual_clip": 1.1})
    arguments = batch()
    arguments["advantages"] = -arguments["advantages"].abs()
    out, _ = run(loss_fn, arguments)
    _, _, bounds = expected(arguments)
    coupled = arguments | {"old_log_probs": arguments["rollout_log_probs"]}
    radii = {"clip_eps_low": 1 - bounds.low, "clip_eps_high": bounds.high - 1}
    right, _ = run(PolicyLoss(dual_clip=1.1, **radii), coupled)
    undamped, _ = run(PolicyLoss(**radii), coupled)
    assert close(out[0], right[0])
    assert not close(out[0], undamped[0], 1e-4)


@pytest.mark.parametrize(("kind", "settings"), [(PolicyLoss, CLIPS), (OlderPolicyLoss, TIS)])
def test_the_trainers_own_measures_of_the_mismatch_still_measure_it(attached, kind, settings):
    _, loss_fn, _ = attached(kind, settings)
    arguments = batch()
    out, _ = run(loss_fn, arguments)
    stock, _ = run(kind(**settings), arguments)
    assert out[3:] == stock[3:]
    assert out[3] is not None
    assert out[2] != stock[2]  # its KL is of the ratio that is clipped


@pytest.mark.parametrize(("kind", "settings"), [*WEIGHS, *DROPS])
def test_the_loss_and_its_arguments_are_as_before(attached, kind, settings):
    _, loss_fn, _ = attached(kind, settings)
    arguments, before = batch(), slots(loss_fn)
    kept = {name: value.clone() for name, value in arguments.items()}
    run(loss_fn, arguments)
    assert slots(loss_fn) == before
    assert all(torch.equal(arguments[name], value) for name, value in kept.items())


@pytest.mark.parametrize(("kind", "settings"), [*WEIGHS, *DROPS])
def test_what_was_lent_is_put_back_when_the_loss_raises(attached, kind, settings):
    _, loss_fn, _ = attached(kind, settings)
    arguments, before, seen = batch(), slots(loss_fn), []
    forward = loss_fn.forward

    def fails(*args, **kwargs):
        if isinstance(loss_fn.clip_eps_low, torch.Tensor):
            seen.append(slots(loss_fn))
            raise FloatingPointError
        return forward(*args, **kwargs)

    loss_fn.forward = fails
    with pytest.raises(FloatingPointError):
        run(loss_fn, arguments)
    del loss_fn.forward
    _, _, bounds = expected(arguments)
    assert torch.equal(1 - seen[0]["clip_eps_low"], bounds.low)
    assert torch.equal(1 + seen[0]["clip_eps_high"], bounds.high)
    assert slots(loss_fn) == before
    out, _ = run(loss_fn, arguments)
    assert out[0].isfinite()


def test_what_an_interrupt_leaves_lent_is_put_back_before_the_next_loss(attached):
    _, loss_fn, _ = attached(settings=CLIPS)
    arguments, before, calls = batch(), slots(loss_fn), []
    right, _ = run(loss_fn, arguments)
    forward = loss_fn.forward

    def interrupted(*args, **kwargs):
        calls.append(slots(loss_fn))
        if isinstance(loss_fn.clip_eps_low, torch.Tensor):
            raise KeyboardInterrupt
        return forward(*args, **kwargs)

    loss_fn.forward = interrupted
    with pytest.raises(KeyboardInterrupt):
        run(loss_fn, arguments)
    del loss_fn.forward
    again, _ = run(loss_fn, arguments)
    assert torch.equal(again[0], right[0])
    assert again[3:] == right[3:]
    assert slots(loss_fn) == before


def test_without_the_engines_log_probs_nothing_is_sent_and_the_log_says_how_to_get_them(attached, caplog):
    handle, loss_fn, client = attached()
    arguments = batch() | {"rollout_log_probs": None}
    with caplog.at_level(logging.WARNING, logger="satwatch"):
        out, gradient = run(loss_fn, arguments)
        run(loss_fn, arguments)
    stock, slope = run(PolicyLoss(), arguments)
    assert torch.equal(out[0], stock[0])
    assert torch.equal(gradient, slope)
    assert (client.calls, handle.metrics()) == ([], {})
    (record,) = caplog.records
    assert "is_correction_level" in record.getMessage()


def test_a_token_that_the_engine_has_no_number_for_keeps_the_old_policy(attached):
    handle, loss_fn, _ = attached(settings=CLIPS)
    arguments = batch()
    arguments["rollout_log_probs"][0, 3] = float("nan")
    arguments["rollout_log_probs"][3, 9] = float("nan")  # padding
    out, gradient = run(loss_fn, arguments)
    d = (arguments["log_probs"] - arguments["rollout_log_probs"]).detach()
    bounds = clip_bounds(d, mask=arguments["action_mask"], eps_low=EPS_LOW, eps_high=EPS_HIGH)
    handed = torch.where(
        arguments["rollout_log_probs"].isnan(), arguments["old_log_probs"], arguments["rollout_log_probs"]
    )
    ratio, advantage = (arguments["log_probs"] - handed).exp(), arguments["advantages"]
    gain = torch.minimum(ratio * advantage, ratio.clamp(bounds.low, bounds.high) * advantage)
    assert close(out[0], -gain[arguments["action_mask"] != 0].mean())
    assert gradient.isfinite().all()
    assert handle.metrics()["satwatch/nan_tokens"] == 1


@pytest.mark.parametrize("mu", [-91.0, -1000.0, float("-inf")])
def test_a_log_prob_that_no_engine_means_makes_no_nan(attached, mu):
    _, loss_fn, _ = attached(settings=CLIPS)
    arguments = batch(dtype=torch.float32)
    arguments["rollout_log_probs"][0, 3] = mu
    arguments["advantages"][0, 3] = 1.0
    out, gradient = run(loss_fn, arguments)
    assert out[0].isfinite()
    assert gradient.isfinite().all()
    assert gradient[0, 3] == 0  # far outward: clipped


def test_a_sequence_with_such_a_token_ends_no_run(attached):
    rule = Rule(eps_low=EPS_LOW, eps_high=EPS_HIGH, level="sequence")
    kind, settings = DROPS[0]
    _, loss_fn, _ = attached(kind, {**settings, "policy_loss_type": "gspo"}, rule=rule)
    arguments = batch()
    arguments["rollout_log_probs"][0, 3] = float("nan")
    out, gradient = run(loss_fn, arguments)
    assert out[0].isfinite()
    assert gradient.isfinite().all()


def test_what_stands_in_padding_has_no_part_in_the_gradient(attached):
    _, loss_fn, _ = attached(settings={"policy_loss_type": "gspo"}, rule=Rule(eps_high=EPS_HIGH, level="sequence"))
    arguments = batch()
    padding = arguments["action_mask"] == 0
    right, slope, _ = expected(arguments, "sequence", reduction="sequence")
    arguments["rollout_log_probs"] = arguments["rollout_log_probs"].masked_fill(padding, float("inf"))
    out, gradient = run(loss_fn, arguments)
    assert close(out[0], right)
    assert close(gradient, slope)


def test_log_probs_of_another_shape_cost_the_run_nothing(attached):
    handle, loss_fn, client = attached()
    arguments = batch()
    arguments["rollout_log_probs"] = arguments["rollout_log_probs"][:, :5]
    out, _ = run(loss_fn, arguments)
    stock, _ = run(PolicyLoss(), arguments)
    assert close(out[0], stock[0])
    assert client.calls == []
    assert handle.metrics()["satwatch/hook_faults"] == 1


@pytest.mark.parametrize("error", [DeadlineError("late"), ValueError("broken")])
def test_a_broken_client_never_breaks_the_loss(attached, error):
    def broken(*args, **kwargs):
        raise error

    handle, loss_fn, client = attached()
    client.submit = broken
    arguments = batch()
    out, _ = run(loss_fn, arguments)
    right, _, _ = expected(arguments)
    assert close(out[0], right)
    assert handle.metrics()["satwatch/hook_faults"] == 1


def test_a_client_that_raises_leaves_nothing_lent(attached):
    _, loss_fn, _ = attached(settings=CLIPS, script=[DeadlineError("late")])
    arguments, before = batch(), slots(loss_fn)
    with pytest.raises(DeadlineError):
        run(loss_fn, arguments)
    assert slots(loss_fn) == before


def test_training_returns_the_metrics_beside_its_status(attached):
    handle, _, client = attached()
    handle.trainer.batches = [batch(0), batch(1)]
    status = handle.trainer.ppo_train(0.5)
    assert status["kl_ctl"] == 0.5
    assert "policy_loss" in status
    assert status["satwatch/tokens"] == sum(arguments["action_mask"].sum() for arguments in handle.trainer.batches)
    assert status["satwatch/gate_rate"] > 0
    assert len(client.calls) == 2
    assert "satwatch/tokens" not in handle.trainer.ppo_train(0.5).keys() - status.keys()


@pytest.mark.parametrize(("rule", "unit"), [(RULE, "gspo"), (Rule(eps_high=EPS_HIGH, level="sequence"), "ppo")])
def test_bounds_of_another_unit_than_the_ratio_are_refused(attached, rule, unit):
    _, loss_fn, _ = attached(settings={"policy_loss_type": unit}, rule=rule)
    with pytest.raises(ConfigError, match="level"):
        run(loss_fn, batch())


def test_other_radii_than_the_trainers_are_refused(attached):
    _, loss_fn, _ = attached(rule=Rule())
    with pytest.raises(ConfigError, match="eps_high"):
        run(loss_fn, batch())


def test_a_run_without_a_name_is_refused(monkeypatch):
    monkeypatch.delenv("SATWATCH_RUN", raising=False)
    use(None)
    handle = openrlhf.install(Trainer(PolicyLoss()))
    try:
        with pytest.raises(ConfigError, match="run"):
            run(handle.trainer.actor_loss_fn, batch())
    finally:
        handle.uninstall()


def test_installing_twice_is_installing_once(attached):
    handle, loss_fn, client = attached()
    assert openrlhf.install(handle.trainer) is handle
    assert openrlhf.install(SimpleNamespace(trainer=handle.trainer), client) is handle
    with pytest.raises(ConfigError, match="uninstall"):
        openrlhf.install(handle.trainer, FakeClient())
    run(loss_fn, batch())
    assert len(client.calls) == 1


def test_two_trainers_have_a_hook_each(attached):
    _, first, client = attached()
    _, second, other = attached()
    run(first, batch())
    assert (len(client.calls), len(other.calls)) == (1, 0)
    run(second, batch())
    assert (len(client.calls), len(other.calls)) == (1, 1)


def test_uninstalling_leaves_the_trainer_as_it_was(attached):
    handle, loss_fn, client = attached()
    handle.trainer.batches = [batch()]
    handle.uninstall()
    out, _ = run(loss_fn, batch())
    stock, _ = run(PolicyLoss(), batch())
    assert torch.equal(out[0], stock[0])
    assert handle.trainer.ppo_train.__func__ is Trainer.ppo_train
    assert client.calls == []


def test_what_has_no_policy_loss_is_refused():
    with pytest.raises(ConfigError, match="ActorPPOTrainer"):
        openrlhf.install(SimpleNamespace())


@pytest.fixture
def meshes():
    """Make the mesh that ``DeepspeedStrategy`` has, as one rank of several sees it."""

    def mesh(rank, **sizes):
        world = math.prod(sizes.values())
        torch.distributed.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
        return init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))

    yield mesh
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("rank", "place"), [(0, (0, 3, True)), (4, (1, 3, True)), (5, (1, 3, False)), (6, (1, 3, False)), (8, (2, 3, True))]
)
def test_one_rank_of_those_with_the_same_tokens_sends(meshes, rank, place):
    strategy = SimpleNamespace(ds_device_mesh=meshes(rank, dp=3, sp=2, tp=2))
    assert openrlhf.place(strategy) == place


def test_a_rank_that_does_not_send_has_the_same_bounds(attached, meshes):
    handle, loss_fn, client = attached()
    handle.trainer.strategy.ds_device_mesh = meshes(1, dp=1, sp=2, tp=1)
    arguments = batch()
    out, _ = run(loss_fn, arguments)
    right, _, _ = expected(arguments)
    assert close(out[0], right)
    assert client.calls == []


def test_a_client_for_all_ranks_is_given_each_ones_own(monkeypatch, tmp_path):
    monkeypatch.setattr(openrlhf, "place", lambda strategy: (1, 4, True))
    with connect(f"unix:{tmp_path}/nobody", run="ranks", eps_high=EPS_HIGH) as client:
        handle = openrlhf.install(Trainer(PolicyLoss()), client)
        run(handle.trainer.actor_loss_fn, batch())
        assert "rank=1, world_size=4" in repr(handle._attachment.client)
        handle._attachment.client.close()
        handle.uninstall()


def test_a_loss_that_is_never_called_is_said(attached, caplog):
    attached()
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight])
    with caplog.at_level(logging.WARNING, logger="satwatch"):
        for _ in range(4):
            optimizer.step()
    # Of this hook: others that live as long as the process may be as silent.
    (said,) = [message for message in caplog.messages if message.startswith("satwatch, OpenRLHF: ")]
    assert said.startswith("satwatch, OpenRLHF: 2 optimizer steps without a call")


@pytest.mark.parametrize("rollout", [{}, {"rollout_log_probs": None}])
def test_a_loss_that_is_called_makes_no_noise(attached, caplog, rollout):
    handle, loss_fn, _ = attached()
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    run(loss_fn, batch() | rollout)
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="satwatch"):
        for _ in range(4):
            optimizer.step()
            run(loss_fn, batch() | rollout)
        handle.uninstall()
        for _ in range(300):
            optimizer.step()
    assert caplog.records == []


def test_without_a_mesh_torch_distributed_says_which_rank_this_is():
    assert openrlhf.place(SimpleNamespace()) == (0, 1, True)
