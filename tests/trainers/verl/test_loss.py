"""The policy loss ``sat`` inside verl's real ``ppo_loss``, on nested batches."""

from __future__ import annotations

import copy
import logging
import math
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo import core_algos

from satwatch.client import FakeClient
from satwatch.errors import ConfigError
from satwatch.hooks import use
from satwatch.hooks.verl import sat
from satwatch.types import Rule
from tests.trainers.verl.microbatches import Batch, actor_config, expected, jagged

MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")


def using(**rule):
    client = FakeClient(rule=Rule(**rule))
    use(client)
    return client


def same(one, other):
    """Whether two runs of a loss are the same bit for bit, the hook's own metrics aside."""
    (loss, metrics, gradient), (loss_2, metrics_2, gradient_2) = one, other
    stock = [{k: m.values for k, m in found.items() if "satwatch/" not in k} for found in (metrics, metrics_2)]
    return bool(loss == loss_2) and stock[0] == stock[1] and all(map(torch.equal, gradient, gradient_2))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("recomputed", [False, True], ids=["bypass", "recomputed"])
def test_loss_and_gradient_are_those_of_an_independent_computation(installed, mode, recomputed):
    using(eps_low=0.2, eps_high=0.28)
    batch = Batch(recomputed=recomputed)
    batch.mask[2][1:3] = 0  # as a tool's tokens are
    config = actor_config(loss_agg_mode=mode, clip_ratio_low=0.2, clip_ratio_high=0.28)
    loss, _, gradient = batch.run(installed.ppo_loss, config)
    value, slope = expected(batch, mode, eps_high=0.28)
    assert float(loss) == pytest.approx(value, rel=1e-8)
    torch.testing.assert_close(torch.cat(gradient), torch.cat(slope), rtol=1e-7, atol=1e-12)


def test_the_radii_bite(installed):
    using()
    batch = Batch()
    guarded = batch.run(installed.ppo_loss, actor_config())
    stock = batch.run(installed.ppo_loss, actor_config("vanilla"))
    assert not same(guarded, stock)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("recomputed", [False, True], ids=["bypass", "recomputed"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_watch_only_is_the_stock_loss_bit_for_bit(installed, mode, recomputed, weighted):
    client = using(enabled=False)
    batch = Batch(dtype=torch.float32, recomputed=recomputed)
    if weighted:
        batch.weights = [torch.rand(n) + 0.5 for n in batch.lengths]
    watched = batch.run(installed.ppo_loss, actor_config(loss_agg_mode=mode))
    stock = batch.run(installed.ppo_loss, actor_config("vanilla", loss_agg_mode=mode))
    assert same(watched, stock)
    assert len(client.calls) == 1


def test_a_token_that_the_trainer_likes_better_has_a_positive_log_ratio(installed):
    client = using()
    batch = Batch(recomputed=True)
    batch.mu[0][3] = batch.now[0][3] - 0.75
    batch.mu[1][0] = batch.now[1][0] + 0.5
    batch.run(installed.ppo_loss, actor_config())
    sent = client.calls[0].batch
    assert sent.log_ratio[0, 3] == pytest.approx(0.75) and sent.log_ratio[1, 0] == pytest.approx(-0.5)
    assert torch.equal(sent.behavior_logprob[1, :2], batch.mu[1])
    assert torch.equal(sent.advantage[3, :6], batch.advantages[3])


def test_the_log_ratio_is_raw_where_verl_clamps_its_own(installed):
    client = using()
    batch = Batch()
    batch.now[0][0], batch.mu[0][0] = -2.0, -91.0
    loss, metrics, gradient = batch.run(installed.ppo_loss, actor_config())
    assert client.calls[0].batch.log_ratio[0, 0] == 89.0
    assert loss.isfinite() and torch.cat(gradient).isfinite().all()
    assert all(math.isfinite(value) for metric in metrics.values() for value in metric.values)


def test_only_active_tokens_count(installed):
    client = using()
    batch = Batch()
    batch.mask[0][2] = 0
    before = batch.run(installed.ppo_loss, actor_config())
    batch.mu[0] = batch.mu[0].clone()
    batch.mu[0][2] = math.nan  # garbage where there is no token
    after = batch.run(installed.ppo_loss, actor_config())
    assert before[0] == after[0]
    sent = client.calls[1].batch
    assert sent.mask.sum() == sum(batch.lengths) - 1 and not sent.mask[0, 2]
    # Rows are padded to the longest.
    assert not sent.mask[1, 2:].any()


def test_an_unusable_log_prob_of_the_engine_is_counted_and_leaves_the_loss_finite(installed):
    using()
    batch = Batch(recomputed=True)
    batch.mu[0][0] = math.nan
    loss, metrics, gradient = batch.run(installed.ppo_loss, actor_config())
    assert loss.isfinite() and torch.cat(gradient).isfinite().all()
    assert metrics["satwatch/nan_tokens"].values == [1.0]


def test_the_weights_of_the_importance_correction_are_not_applied_twice(installed):
    using()
    batch = Batch(recomputed=True)
    plain = batch.run(installed.ppo_loss, actor_config())
    batch.weights = [torch.full((n,), 0.5, dtype=torch.float64) for n in batch.lengths]
    assert same(batch.run(installed.ppo_loss, actor_config()), plain)


def test_a_token_that_a_filter_took_out_stays_out(installed):
    using()
    batch = Batch(recomputed=True)
    batch.weights = [torch.ones(n, dtype=torch.float64) for n in batch.lengths]
    batch.weights[0][2] = 0.0  # as IcePop does
    _, _, gradient = batch.run(installed.ppo_loss, actor_config())
    _, slope = expected(batch)
    assert slope[0][2] != 0
    slope[0][2] = 0
    torch.testing.assert_close(torch.cat(gradient), torch.cat(slope), rtol=1e-7, atol=1e-12)


def test_what_is_recomputed_is_said_once(installed, caplog):
    using()
    with caplog.at_level(logging.WARNING, "satwatch"):
        for seed in range(3):
            Batch(seed=seed, recomputed=True).run(installed.ppo_loss, actor_config())
    assert [record.message.count("bypass_mode=true") for record in caplog.records] == [1]


@pytest.mark.parametrize("value", [-1.5, math.nan], ids=["sound", "nan"])
def test_in_bypass_mode_nothing_is_said(installed, caplog, value):
    using()
    batch = Batch()
    batch.mu[0][1] = value  # also in the old log-probs, which are the same
    with caplog.at_level(logging.WARNING, "satwatch"):
        _, metrics, _ = batch.run(installed.ppo_loss, actor_config())
    assert not caplog.records
    assert metrics["satwatch/decoupled"].values == [0.0]


def test_a_watched_loss_of_another_denominator_is_decoupled(installed):
    using(enabled=False)
    _, metrics, _ = Batch(recomputed=True).run(installed.ppo_loss, actor_config())
    assert metrics["satwatch/decoupled"].values == [1.0]


def test_a_first_microbatch_without_active_tokens_tells_nothing_of_the_denominator(installed):
    using(enabled=False)
    empty, batch = Batch(recomputed=True), Batch(recomputed=True)
    empty.mask = [torch.zeros_like(mask) for mask in empty.mask]
    empty.run(installed.ppo_loss, actor_config())
    _, metrics, _ = batch.run(installed.ppo_loss, actor_config())
    assert metrics["satwatch/decoupled"].values == [1.0]


def test_without_the_engines_log_probs_the_loss_is_stock_and_nothing_is_sent(installed, caplog):
    client = using()
    batch = Batch(recomputed=True)
    batch.has_behavior = False
    with caplog.at_level(logging.WARNING, "satwatch"):
        runs = [batch.run(installed.ppo_loss, actor_config()) for _ in range(2)]
    assert same(runs[0], batch.run(installed.ppo_loss, actor_config("vanilla")))
    assert not client.calls
    assert [record.message.count("calculate_log_probs=true") for record in caplog.records] == [1]
    assert not any("satwatch/" in name for name in runs[0][1])


def test_log_probs_that_are_no_tensor_are_none(installed, caplog):
    client, batch = using(), Batch(recomputed=True)
    batch.has_behavior = False
    batch.others = {"rollout_log_probs": [None, [-1.0], [-2.0, -1.0], None]}
    with caplog.at_level(logging.WARNING, "satwatch"):
        outcome = batch.run(installed.ppo_loss, actor_config())
    assert same(outcome, batch.run(installed.ppo_loss, actor_config("vanilla")))
    assert client.calls == []
    assert "nothing to compare" in caplog.text


def test_a_configuration_that_says_bypass_is_believed(installed):
    client = using()
    batch = Batch()
    batch.has_behavior = False  # a trainer of one's own, whose old log-probs are the engine's
    loss, _, _ = batch.run(installed.ppo_loss, actor_config(correction={"rollout_is": None, "bypass_mode": True}))
    assert float(loss) == pytest.approx(expected(batch)[0], rel=1e-8)
    assert len(client.calls) == 1


def test_where_the_microbatch_is_not_remembered_nothing_is_guessed(caplog):
    from verl.workers.utils import losses

    client = using()
    batch = Batch(recomputed=True)
    with caplog.at_level(logging.WARNING, "satwatch"):
        run = batch.run(losses.ppo_loss, actor_config())
    assert same(run, batch.run(losses.ppo_loss, actor_config("vanilla")))
    assert not client.calls
    assert "SATWATCH_RUN" in caplog.text


@pytest.mark.parametrize("mode", MODES)
def test_sequence_level_runs_verls_gspo(installed, mode):
    client = using(level="sequence", quantile=0.5)
    batch = Batch()
    loss, _, gradient = batch.run(installed.ppo_loss, actor_config(loss_agg_mode=mode))
    # The scores are the rows' means, weighted by their length; 7, 2, 5 and 6 tokens.
    means = [float((now - mu).mean()) for now, mu in zip(batch.now, batch.mu, strict=True)]
    scores = sorted((abs(mean), n) for mean, n in zip(means, batch.lengths, strict=True))
    q = next(s for i, (s, _) in enumerate(scores) if sum(n for _, n in scores[: i + 1]) / 20 >= 0.5)
    value = torch.zeros(())
    matrix = torch.zeros(4, 7, dtype=torch.float64)
    slope = torch.zeros(4, 7, dtype=torch.float64)
    for i, mean in enumerate(means):
        factor = 1 / (1 + (mean / q) ** 2) if abs(mean) > q else 1.0
        low, high = 1 - 0.2 * (factor if mean < 0 else 1), 1 + 0.2 * (factor if mean > 0 else 1)
        ratio = math.exp(mean)
        for t, advantage in enumerate(batch.advantages[i].tolist()):
            plain, clipped = -advantage * ratio, -advantage * min(max(ratio, low), high)
            matrix[i, t] = max(plain, clipped)
            slope[i, t] = -advantage * ratio if plain >= clipped else 0.0
    mask = torch.nested.nested_tensor(batch.mask).to_padded_tensor(0.0)
    info = {"batch_num_tokens": 20, "global_batch_size": 4}
    value = core_algos.agg_loss(matrix, mask, mode, **info)
    share = torch.func.grad(lambda m: core_algos.agg_loss(m, mask, mode, **info))(matrix)
    assert float(loss) == pytest.approx(float(value), rel=1e-8)
    for i, row in enumerate(gradient):
        torch.testing.assert_close(row, (share * slope)[i, : len(row)], rtol=1e-7, atol=1e-12)
    assert len(client.calls) == 1


def test_sequence_level_watched_only_is_verls_gspo(installed):
    using(level="sequence", enabled=False)
    batch = Batch(dtype=torch.float32, recomputed=True)
    watched = batch.run(installed.ppo_loss, actor_config())
    assert same(watched, batch.run(installed.ppo_loss, actor_config("gspo")))


class TestBypassMode:
    """The loss that verl's trainer may put in the place of the one that was selected."""

    correction: ClassVar = {"rollout_is": "token", "bypass_mode": True}

    def test_its_clipped_loss_has_the_radii(self, installed):
        client = using()
        batch = Batch()
        loss, metrics, gradient = batch.run(installed.ppo_loss, actor_config("bypass_mode", correction=self.correction))
        value, slope = expected(batch)
        assert float(loss) == pytest.approx(value, rel=1e-8)
        torch.testing.assert_close(torch.cat(gradient), torch.cat(slope), rtol=1e-7, atol=1e-12)
        assert "rollout_corr/rollout_is_mean" in metrics
        assert len(client.calls) == 1

    def test_what_it_rejects_is_in_no_threshold(self, installed):
        client = using()
        batch = Batch()
        batch.now[1] = batch.mu[1] + 3.0
        correction = self.correction | {"rollout_rs": "seq_max_k2", "rollout_rs_threshold": 2.0}
        loss, _, _ = batch.run(installed.ppo_loss, actor_config("bypass_mode", correction=correction))
        assert not client.calls[0].batch.mask[1].any()
        batch.mask[1][:] = 0
        # verl's normaliser still counts the rejected tokens, and stays its own.
        assert float(loss) == pytest.approx(expected(batch)[0] * 18 / 20, rel=1e-8)

    def test_watched_only_it_is_stock(self, installed):
        batch = Batch(dtype=torch.float32)
        config = actor_config("bypass_mode", correction=self.correction)
        using(enabled=False)
        watched = batch.run(installed.ppo_loss, config)
        stock = core_algos.compute_policy_loss_bypass_mode
        core_algos.POLICY_LOSS_REGISTRY["bypass_mode"] = stock
        assert same(watched, batch.run(installed.ppo_loss, config))

    def test_reinforce_clips_nothing_and_is_watched(self, installed):
        client = using()
        batch = Batch(dtype=torch.float32)
        config = actor_config("bypass_mode", correction=self.correction | {"loss_type": "reinforce"})
        watched = batch.run(installed.ppo_loss, config)
        core_algos.POLICY_LOSS_REGISTRY["bypass_mode"] = core_algos.compute_policy_loss_bypass_mode
        assert same(watched, batch.run(installed.ppo_loss, config))
        assert len(client.calls) == 1
        assert watched[1]["satwatch/tokens"].values == [20.0]

    def test_a_rule_of_sequence_level_is_refused(self, installed):
        using(level="sequence")
        with pytest.raises(ConfigError, match="level"):
            Batch().run(installed.ppo_loss, actor_config("bypass_mode", correction=self.correction))

    def test_verls_own_function_is_back_when_the_loss_raises(self, installed):
        using()
        stock = core_algos.compute_policy_loss_vanilla
        config = actor_config("bypass_mode", correction=self.correction, clip_ratio_c=0.5)
        with pytest.raises(AssertionError, match="clip_ratio_c"):
            Batch().run(installed.ppo_loss, config)
        assert core_algos.compute_policy_loss_vanilla is stock

    def test_without_satwatch_it_is_verls_own(self):
        assert core_algos.POLICY_LOSS_REGISTRY["bypass_mode"] is core_algos.compute_policy_loss_bypass_mode


def test_the_trainers_inputs_are_untouched_also_when_the_loss_raises(installed):
    using()
    config = actor_config(clip_ratio_c=0.5, clip_ratio_low=0.2, clip_ratio_high=0.2)
    before = copy.deepcopy({name: config[name] for name in config if name != "global_batch_info"})
    batch = Batch(recomputed=True)
    with pytest.raises(AssertionError, match="clip_ratio_c"):
        batch.run(installed.ppo_loss, config)
    assert {name: config[name] for name in config if name != "global_batch_info"} == before
    assert config.global_batch_info["batch_num_tokens"] == 20
    data, leaves = batch.data(), batch.leaves()
    fields = {name: data[name].values().clone() for name in ("old_log_probs", "rollout_log_probs", "advantages")}
    installed.ppo_loss(config=actor_config(), model_output={"log_probs": jagged(leaves)}, data=data)
    assert all(torch.equal(data[name].values(), values) for name, values in fields.items())


def test_the_stock_radius_serves_where_a_side_has_none_of_its_own(installed):
    using(eps_low=0.3, eps_high=0.3)
    config = actor_config(clip_ratio=0.3, clip_ratio_low=None, clip_ratio_high=None)
    batch = Batch()
    loss, _, _ = batch.run(installed.ppo_loss, config)
    assert float(loss) == pytest.approx(expected(batch, eps_low=0.3, eps_high=0.3)[0], rel=1e-8)


def test_other_radii_than_the_trainers_are_refused(installed):
    using(eps_low=0.1)
    with pytest.raises(ConfigError, match="eps_low"):
        Batch().run(installed.ppo_loss, actor_config())


def test_without_a_run_it_is_refused(installed):
    with pytest.raises(ConfigError, match="run"):
        Batch().run(installed.ppo_loss, actor_config())


def configuration_of_omegaconf(**fields):
    info = {"batch_num_tokens": None, "dp_size": 1, "global_batch_size": None, "loss_scale_factor": None}
    policy_loss = {"rollout_correction": {"bypass_mode": True}}
    ratios = {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 3.0}
    return OmegaConf.create(ratios | {"global_batch_info": info, "policy_loss": policy_loss} | fields)


def test_a_configuration_of_omegaconf_works_too():
    using()
    batch = Batch()
    config = configuration_of_omegaconf()
    padded = {
        name: jagged(rows).to_padded_tensor(0.0)
        for name, rows in (("log_prob", batch.now), ("old_log_prob", batch.mu), ("advantages", batch.advantages))
    }
    mask = jagged(batch.mask).to_padded_tensor(0.0).bool()
    loss, metrics = sat(**padded, response_mask=mask, loss_agg_mode="token-mean", config=config)
    assert float(loss) == pytest.approx(expected(batch)[0], rel=1e-8)
    assert metrics["satwatch/tokens"] == 20.0
    assert config == configuration_of_omegaconf()
    # verl's signature has an order, too.
    again, _ = sat(padded["old_log_prob"], padded["log_prob"], padded["advantages"], mask, "token-mean", config)
    assert again == loss


def test_microbatches_are_numbered_by_optimizer_step(installed):
    client = using()
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(3):
        for seed in range(2):
            Batch(seed=seed).run(installed.ppo_loss, actor_config())
        parameter.grad = torch.ones(1)
        optimizer.step()
    assert [call.batch.step for call in client.calls] == [0, 0, 1, 1, 2, 2]


def test_a_loss_that_is_not_sat_is_warned_of(installed, caplog):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with caplog.at_level(logging.WARNING, "satwatch"):
        for _ in range(4):
            Batch().run(installed.ppo_loss, actor_config("vanilla"))
            parameter.grad = torch.ones(1)
            optimizer.step()
    assert [record.message.count("2 optimizer steps without a call") for record in caplog.records] == [1]


def test_a_loss_that_has_nothing_to_compare_is_called_all_the_same(installed, caplog):
    using()
    batch = Batch(recomputed=True)
    batch.has_behavior = False
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with caplog.at_level(logging.WARNING, "satwatch"):
        for _ in range(4):
            batch.run(installed.ppo_loss, actor_config())
            parameter.grad = torch.ones(1)
            optimizer.step()
    assert ["nothing to compare" in record.message for record in caplog.records] == [True]


def test_a_critics_process_is_not_warned_of(installed, caplog):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with caplog.at_level(logging.WARNING, "satwatch"):
        for _ in range(4):
            parameter.grad = torch.ones(1)
            optimizer.step()
    assert not caplog.records


class Broken(FakeClient):
    """A client that fails in whatever it is asked."""

    def submit(self, log_ratio, **batch):
        raise RuntimeError("broken")


def test_a_broken_client_costs_nothing_but_its_answer(installed):
    use(Broken())
    batch = Batch()
    loss, metrics, _ = batch.run(installed.ppo_loss, actor_config())
    assert float(loss) == pytest.approx(expected(batch)[0], rel=1e-8)
    assert metrics["satwatch/hook_faults"].values == [1.0]


@pytest.mark.parametrize(
    "others",
    [
        {"min_global_steps": ["x", 1.5, None, [1]], "max_global_steps": [object(), 2, None, 3]},
        {"extra_fields": [None, 3, {}, {"min_global_steps": -7}]},
    ],
    ids=["labels", "dictionaries"],
)
def test_fields_that_make_no_sense_cost_nothing_but_themselves(installed, others):
    client = using()
    batch = Batch()
    batch.others = others
    loss, metrics, _ = batch.run(installed.ppo_loss, actor_config())
    assert float(loss) == pytest.approx(expected(batch)[0], rel=1e-8)
    assert metrics["satwatch/version_coverage"].values == [0.0]
    assert len(client.calls) == 1


def test_log_probs_of_another_shape_leave_the_trainers_own_interval(installed):
    client = using()
    batch = Batch(recomputed=True)
    data = batch.data()
    data["rollout_log_probs"] = torch.zeros(4, 3, dtype=torch.float64)
    leaves = batch.leaves()
    loss, metrics = installed.ppo_loss(actor_config(), {"log_probs": jagged(leaves)}, data)
    stock, _, _ = batch.run(installed.ppo_loss, actor_config("vanilla"))
    assert loss == stock
    assert not client.calls and metrics["satwatch/hook_faults"].values == [1.0]


def test_every_microbatch_logs_the_same_names(installed):
    using()
    names = []
    for empty in (False, True):
        batch = Batch()
        if empty:
            batch.mask = [torch.zeros_like(mask) for mask in batch.mask]
        names.append(set(batch.run(installed.ppo_loss, actor_config(), batch_num_tokens=20)[1]))
    assert names[0] == names[1] >= {"satwatch/log_ratio_abs_mean", "satwatch/gate_rate"}


def test_the_numbers_in_verls_metrics_are_the_batchs(installed):
    using()
    batch = Batch()
    _, metrics, _ = batch.run(installed.ppo_loss, actor_config())
    d = torch.cat(batch.now) - torch.cat(batch.mu)
    found = {name: metric.aggregate() for name, metric in metrics.items() if name.startswith("satwatch/")}
    assert found["satwatch/tokens"] == 20
    assert found["satwatch/log_ratio_mean"] == pytest.approx(float(d.mean()))
    assert found["satwatch/log_ratio_abs_mean"] == pytest.approx(float(d.abs().mean()))
    assert found["satwatch/quantile_reference"] == float(d.abs().sort().values[17])
    assert found["satwatch/gate_rate"] == 0.1
    assert found["satwatch/clip_radius_low_mean"] < 0.2 or found["satwatch/clip_radius_high_mean"] < 0.2


def test_a_dataclass_that_is_no_configuration_of_verls(installed):
    using()
    batch = Batch()
    names = ("clip_ratio", "clip_ratio_low", "clip_ratio_high", "policy_loss", "global_batch_info")
    config = actor_config(correction={"rollout_is": None, "bypass_mode": True})
    loose = SimpleNamespace(**{name: config[name] for name in names}, get=lambda name, default: default)
    padded = [jagged(rows).to_padded_tensor(0.0) for rows in (batch.mu, batch.now, batch.advantages, batch.mask)]
    loss, _ = sat(*padded, "token-mean", loose)
    assert float(loss) == pytest.approx(expected(batch)[0], rel=1e-8)
    assert loose.clip_ratio_low == 0.2
