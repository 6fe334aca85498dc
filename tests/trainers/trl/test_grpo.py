"""SatGRPOTrainer in training: a real TRL, a real sidecar, rollouts that are two versions old."""

from __future__ import annotations

import doctest
import importlib
import itertools
import sys
import types

import pytest
import torch
from trl import GRPOTrainer

import satwatch.hooks.trl
import tests.trainers.trl.tiny as tiny
from satwatch.client import FakeClient
from satwatch.errors import ConfigError
from satwatch.hooks.core.settings import CONFIG_VARIABLE
from satwatch.hooks.trl import SatGRPOTrainer, guarded, versions
from satwatch.types import Rule

GUARD = Rule(min_reference=1e-3)
WATCH = Rule(enabled=False)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ("SATWATCH_RUN", "SATWATCH_ADDRESS", CONFIG_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def trained(kind=SatGRPOTrainer, rule=GUARD, **given):
    """Train, and return the trainer and what it asked."""
    fake = FakeClient(rule=rule)
    client = {} if kind is GRPOTrainer else {"satwatch": fake}
    trainer = tiny.trainer(kind, **client, **given)
    trainer.train()
    return trainer, fake


def warnings_of(caplog):
    return [record.message for record in caplog.records if record.name == "satwatch" and record.levelno >= 30]


# From the rollout to the sidecar.


def test_a_lagged_run_is_seen_by_the_sidecar_and_in_the_trainers_log(sidecar, monkeypatch):
    """Nothing is given but the environment: the run's name is the trainer's, the rule is the hook's."""
    monkeypatch.setenv("SATWATCH_ADDRESS", sidecar.address)
    trainer = tiny.trainer(
        SatGRPOTrainer,
        rollout_func=tiny.LaggedRollouts(lag=2),
        max_steps=5,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        run_name="lagged",
    )
    trainer.train()
    metrics = sidecar.metrics()

    def metric(name, **labels):
        text = ",".join(f'{key}="{value}"' for key, value in {"run": "lagged", **labels}.items())
        return metrics.get(f"satwatch_{name}{{{text}}}")

    tokens = tiny.logged(trainer, "satwatch/tokens")
    assert len(tokens) == 5
    # One request a microbatch, and no two that the sidecar took for one.
    assert metric("batches_total") == 10 and metric("duplicate_batches_total") == 0
    assert metric("tokens_total") == sum(tokens)
    assert metric("client_fallbacks_total") == 0 and metric("nan_tokens_total") == 0
    assert metric("policy_version") == 4 and metric("version_lag_max") == 2
    assert metric("version_coverage_ratio") == 1 and metric("negative_lag_tokens_total") == 0
    # What only the rollout_func knows is not claimed: it has not said that weights were published.
    assert metric("published_version") is None
    lags = tiny.logged(trainer, "satwatch/version_lag_mean")
    assert lags == [0, 1, 2, 2, 2]
    assert tiny.logged(trainer, "satwatch/version_lag_max") == lags
    mismatch = tiny.logged(trainer, "satwatch/log_ratio_abs_mean")
    assert mismatch[0] < 1e-4 < 1e-2 < min(mismatch[2:])
    assert tiny.logged(trainer, "satwatch/client_fallbacks")[-1] == 0
    assert tiny.logged(trainer, "satwatch/hook_calls_per_step")[:5] == [2] * 5
    assert all(0 < rate <= 0.1 for rate in tiny.logged(trainer, "satwatch/gate_rate")[2:])
    assert 0.15 < tiny.logged(trainer, "satwatch/clip_radius_low_mean")[-1] < 0.2
    assert tiny.logged(trainer, "satwatch/decoupled")[0] == 0
    trainer.attachment.client.close()


def test_the_sidecars_numbers_are_those_of_the_log(sidecar):
    """At sequence level, with a client of one's own."""
    with satwatch.connect(sidecar.address, run="own", level="sequence", min_reference=1e-3) as client:
        trainer = tiny.trainer(
            SatGRPOTrainer,
            satwatch=client,
            rollout_func=tiny.LaggedRollouts(lag=1),
            importance_sampling_level="sequence",
            loss_type="grpo",
            max_steps=3,
        )
        trainer.train()
        metrics = sidecar.metrics()
        assert client.stats.bounds_from_sidecar == client.stats.batches_sent == 3
    assert metrics['satwatch_quantile_reference{run="own"}'] == pytest.approx(
        tiny.logged(trainer, "satwatch/quantile_reference")[-1], rel=1e-6
    )
    assert metrics['satwatch_batches_total{run="own"}'] == 3


# Versions.


@pytest.mark.parametrize("rule", [GUARD, WATCH], ids=["guard", "watch"])
def test_the_lag_grows_while_a_generation_is_used_again(rule, caplog):
    """TRL's own generator: four steps' worth of microbatches, each used twice, before the next generation."""
    trainer, fake = trained(
        rule=rule,
        max_steps=8,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        steps_per_generation=4,
        num_iterations=2,
    )
    batches = [call.batch for call in fake.calls]
    assert [batch.step for batch in batches] == [step for step in range(8) for _ in range(2)]
    assert [batch.policy_version for batch in batches] == [batch.step for batch in batches]
    generated = [set(batch.behavior_versions.values.tolist()) for batch in batches]
    assert generated == [{0}] * 8 + [{4}] * 8
    assert tiny.logged(trainer, "satwatch/version_lag_mean") == [0, 1, 2, 3, 0, 1, 2, 3]
    assert fake.published == [0, 4]
    # Its log-probs are TRL's old ones: equal at lag 0, and not after.
    assert batches[0].log_ratio[batches[0].mask].abs().max() < 1e-5
    assert batches[-1].log_ratio[batches[-1].mask].abs().max() > 1e-3
    assert len(warnings_of(caplog)) == 1 and "stand in" in warnings_of(caplog)[0]


class Marked(tiny.ScriptedRollouts):
    """Rollouts whose log-probs tell which completion they are of, so that its version can be told too."""

    def __init__(self, report):
        super().__init__()
        self.report = report

    def __call__(self, texts, trainer):
        rollouts = super().__call__(texts, trainer)
        rollouts["logprobs"] = [[-1.0 - row] * len(ids) for row, ids in enumerate(rollouts["completion_ids"])]
        return rollouts | {"weight_version": self.report(rollouts["completion_ids"])}


def each_row(fake):
    """Number, versions and active tokens of every completion that was sent."""
    for call in fake.calls:
        batch = call.batch
        values = batch.behavior_versions.values
        rows = values.reshape(len(batch.mask), -1)
        for row, mask, mu in zip(rows, batch.mask, batch.behavior_logprob, strict=True):
            yield round(-1 - float(mu[mask][0])), row, mask


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (lambda ids: [10 + row for row in range(len(ids))], lambda row: 10 + row),
        (lambda ids: [str(10 + row) for row in range(len(ids))], lambda row: 10 + row),
        (lambda ids: torch.arange(len(ids)) + 10, lambda row: 10 + row),
        (
            lambda ids: [None if row % 2 else 10 + row for row in range(len(ids))],
            lambda row: -1 if row % 2 else 10 + row,
        ),
        (lambda ids: 7, lambda row: 7),
        (lambda ids: "default", lambda row: -1),
    ],
    ids=["ints", "strings", "tensor", "some", "one", "unknown"],
)
def test_a_completion_keeps_the_version_that_rollout_func_reported(report, expected):
    """Through TRL's shuffling and splitting."""
    _, fake = trained(rollout_func=Marked(report), per_device_train_batch_size=4, steps_per_generation=2, max_steps=2)
    seen = {number: row.tolist() for number, row, _ in each_row(fake)}
    assert seen == {row: [expected(row)] for row in range(8)}
    assert [number for number, _, _ in each_row(fake)] != list(range(8))


def test_a_completion_may_have_seen_several_versions():
    """As many for each as it has tokens; TRL pads."""

    def report(completions):
        return [3 if row == 1 else [row] * (len(ids) - 1) + [row + 1] for row, ids in enumerate(completions)]

    _, fake = trained(rollout_func=Marked(report), per_device_train_batch_size=4, steps_per_generation=2, max_steps=2)
    assert fake.calls[0].batch.behavior_versions.unit == "token"
    for number, row, mask in each_row(fake):
        tokens = int(mask.sum())
        expected = [3] * tokens if number == 1 else [number] * (tokens - 1) + [number + 1]
        assert row[mask].tolist() == expected


STEPS = itertools.count()
UNREADABLE = {
    "too-many": lambda: [1] * 9,
    "too-long": lambda: [[1] * 99] * 8,
    "floats": lambda: [0.5 + next(STEPS)] * 8,
    "dicts": lambda: [{"version": next(STEPS)}] * 8,
    "endless": lambda: [10**5000] * 8,
    "nowhere": lambda: torch.zeros(8, device="meta"),
}


@pytest.mark.parametrize("report", UNREADABLE.values(), ids=UNREADABLE)
def test_versions_that_can_not_be_read_are_unknown_and_it_is_counted_and_said_once(report, caplog):
    trainer, fake = trained(rollout_func=Marked(lambda _: report()), max_steps=2)
    assert [set(call.batch.behavior_versions.values.tolist()) for call in fake.calls] == [{-1}, {-1}]
    assert tiny.logged(trainer, "satwatch/version_coverage") == [0, 0]
    assert tiny.logged(trainer, "satwatch/hook_faults")[:2] == [1, 2]
    assert len(warnings_of(caplog)) == 1 and "weight_version" in warnings_of(caplog)[0]


def test_versions_that_can_not_be_read_are_unknown_whatever_else_is_known():
    trainer = tiny.trainer(SatGRPOTrainer, satwatch=FakeClient(rule=GUARD))
    trainer._reported = ["1", "2", 0.5]
    assert trainer._versions(torch.Size((3, 4)), otherwise=7).tolist() == [-1, -1, -1]
    trainer._reported = None
    assert trainer._versions(torch.Size((3, 4)), otherwise=7).tolist() == [7, 7, 7]


def test_a_version_is_published_once():
    """Two generations a step, and one to evaluate."""
    _, fake = trained(
        max_steps=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        steps_per_generation=2,
        eval_dataset=tiny.prompts(1),
        num_generations_eval=2,
        eval_strategy="steps",
        eval_steps=1,
    )
    assert fake.published == [0, 1, 2]


def test_a_rollout_func_that_reports_nothing_has_unknown_versions():
    """Its weights are its own affair: the step at which it was called says nothing of them."""
    trainer, fake = trained(rollout_func=tiny.ScriptedRollouts(), max_steps=2)
    assert tiny.logged(trainer, "satwatch/version_coverage") == [0, 0]
    assert tiny.logged(trainer, "satwatch/version_lag_mean") == []
    assert fake.published == []


def test_the_reference_is_known_where_the_engine_had_the_trainers_weights():
    """TRL's old log-probs are the trainer's at generation: the rollout weights', if the engine had those."""
    _, fake = trained(
        rollout_func=Marked(lambda ids: [2 * (row % 2) for row in range(len(ids))]),
        per_device_train_batch_size=4,
        steps_per_generation=2,
        max_steps=2,
    )
    for call in fake.calls:
        batch = call.batch
        own = batch.behavior_versions.values == 0
        assert batch.reference_logprob[own].isfinite().all() and batch.reference_logprob[~own].isnan().all()


# Watching only.


@pytest.mark.parametrize("kind", ["grpo", "bnpo", "dr_grpo", "dapo", "luspo"])
def test_a_watched_run_is_the_stock_run_bit_for_bit(kind):
    given = {
        "loss_type": kind,
        "importance_sampling_level": "sequence" if kind == "luspo" else "token",
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 4,
        "max_steps": 4,
    }
    level = given["importance_sampling_level"]
    stock, _ = trained(GRPOTrainer, rollout_func=tiny.ScriptedRollouts(), **given)
    watched, fake = trained(rule=Rule(enabled=False, level=level), rollout_func=tiny.ScriptedRollouts(), **given)
    for name in ("loss", "grad_norm", "entropy", "clip_ratio/region_mean", "reward"):
        assert tiny.logged(watched, name) == tiny.logged(stock, name) != []
    weights = watched.model.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in stock.model.state_dict().items())
    assert len(fake.calls) == 8
    # And a guarded run is another one: watching was not all that could be done.
    guarded, _ = trained(rule=Rule(level=level), rollout_func=tiny.ScriptedRollouts(), **given)
    assert tiny.logged(guarded, "grad_norm") != tiny.logged(stock, "grad_norm")


@pytest.mark.parametrize("kind", ["cispo", "sapo", "vespo"])
def test_a_loss_without_an_interval_is_watched_and_not_guarded(kind):
    given = {"loss_type": kind, "epsilon_high": 5.0} if kind == "cispo" else {"loss_type": kind}
    with pytest.raises(ConfigError, match=f"loss_type.*{kind}.*dapo.*enabled=False"):
        tiny.trainer(SatGRPOTrainer, satwatch=FakeClient(rule=GUARD), **given)
    with pytest.raises(ConfigError, match="loss_type"):
        tiny.trainer(SatGRPOTrainer, **given)
    trainer, fake = trained(rule=WATCH, rollout_func=tiny.ScriptedRollouts(), max_steps=1, **given)
    assert len(fake.calls) == 1 and len(tiny.logged(trainer, "satwatch/tokens")) == 1


def test_a_file_turns_a_run_into_a_watched_one(tmp_path, monkeypatch):
    file = tmp_path / "satwatch.toml"
    file.write_text('enabled = false\nrun = "of-the-file"\nquantile = 0.8\n')
    monkeypatch.setenv(CONFIG_VARIABLE, str(file))
    trainer = tiny.trainer(SatGRPOTrainer, epsilon=0.1, epsilon_high=0.3, importance_sampling_level="sequence")
    rule = trainer.attachment.rule
    assert (rule.enabled, rule.quantile, rule.level) == (False, 0.8, "sequence")
    assert (rule.eps_low, rule.eps_high, rule.min_reference) == (0.1, 0.3, 1e-3)
    assert "of-the-file" in repr(trainer.attachment.client)


# What is refused when the trainer is made.


@pytest.mark.parametrize(
    ("rule", "given", "message"),
    [
        (Rule(eps_low=0.1), {}, "eps_low"),
        (Rule(eps_low=0.1, enabled=False), {}, "eps_low"),
        (Rule(), {"epsilon_high": 0.28}, "eps_high"),
        (Rule(level="token"), {"importance_sampling_level": "sequence"}, "level"),
        (Rule(level="sequence"), {"importance_sampling_level": "token"}, "level"),
    ],
    ids=["low", "low-watched", "high", "token", "sequence"],
)
def test_a_client_of_another_trainer_is_refused(rule, given, message):
    with pytest.raises(ConfigError, match=message):
        tiny.trainer(SatGRPOTrainer, satwatch=FakeClient(rule=rule), **given)


def test_a_run_needs_a_name():
    with pytest.raises(ConfigError, match="run"):
        tiny.trainer(SatGRPOTrainer, run_name=None)


# The heartbeat, and batches that are not for it.


def test_a_loss_that_is_not_the_hooks_is_seen(caplog):
    trainer = tiny.trainer(
        SatGRPOTrainer, satwatch=FakeClient(rule=GUARD), rollout_func=tiny.ScriptedRollouts(), max_steps=4
    )
    trainer._compute_loss = types.MethodType(GRPOTrainer._compute_loss, trainer)
    trainer.train()
    assert tiny.logged(trainer, "satwatch/hook_calls_per_step")[-1] == 0
    assert any("without a call" in message for message in warnings_of(caplog))


def test_an_on_policy_run_has_nothing_to_compare_and_says_so_once(caplog):
    """TRL's defaults: no vLLM, and each generation used at once."""
    stock, _ = trained(GRPOTrainer, max_steps=3)
    caplog.clear()
    trainer, fake = trained(max_steps=3)
    assert tiny.logged(trainer, "loss") == tiny.logged(stock, "loss")
    assert tiny.logged(trainer, "grad_norm") == tiny.logged(stock, "grad_norm")
    assert fake.calls == [] and len(warnings_of(caplog)) == 1
    assert tiny.logged(trainer, "satwatch/hook_calls_per_step")[0] == 1
    assert tiny.logged(trainer, "satwatch/tokens") == []


def test_evaluation_sends_nothing_and_is_trls_own():
    given = {
        "eval_dataset": tiny.prompts(1),
        "per_device_eval_batch_size": 8,
        "num_generations_eval": 2,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "max_steps": 2,
        "logging_steps": 2,
    }
    stock, _ = trained(GRPOTrainer, rollout_func=tiny.LaggedRollouts(), **given)
    trainer, fake = trained(rule=WATCH, rollout_func=tiny.LaggedRollouts(), **given)
    assert tiny.logged(trainer, "eval_loss") == tiny.logged(stock, "eval_loss") != []
    assert len(fake.calls) == 2 and [call.batch.step for call in fake.calls] == [0, 1]
    assert not any(name.startswith("eval_satwatch") for row in trainer.state.log_history for name in row)
    # Nor does the line that it logs take anything from the line of the training.
    assert tiny.logged(trainer, "satwatch/tokens") == [sum(int(call.batch.mask.sum()) for call in fake.calls)]


def test_what_several_steps_sent_is_logged_as_one(caplog):
    """Sums and counts, not a mean of means."""
    trainer, fake = trained(rollout_func=tiny.LaggedRollouts(), max_steps=4, logging_steps=2)
    tokens = [int(call.batch.mask.sum()) for call in fake.calls]
    assert tiny.logged(trainer, "satwatch/tokens") == [sum(tokens[:2]), sum(tokens[2:])]
    ratios = torch.cat([call.batch.log_ratio[call.batch.mask] for call in fake.calls[2:]]).double()
    assert tiny.logged(trainer, "satwatch/log_ratio_abs_mean")[-1] == pytest.approx(float(ratios.abs().mean()))
    assert warnings_of(caplog) == []


def test_trls_experimental_part_is_loaded_by_those_who_use_it(monkeypatch):
    monkeypatch.setattr(satwatch.hooks, "trl", satwatch.hooks.trl)  # what the import below sets is taken back
    for name in list(sys.modules):
        if name.startswith(("satwatch.hooks.trl", "trl.experimental.async_grpo")):
            monkeypatch.delitem(sys.modules, name)
    fresh = importlib.import_module("satwatch.hooks.trl")
    assert fresh.SatGRPOTrainer is not SatGRPOTrainer
    assert "trl.experimental.async_grpo" not in sys.modules
    with pytest.raises(AttributeError, match="SatPPOTrainer"):
        fresh.SatPPOTrainer  # noqa: B018 - the access is the test


def test_another_release_of_trl_is_said(monkeypatch, caplog):
    monkeypatch.setattr(guarded, "version", lambda _: "1.17.0")
    tiny.trainer(SatGRPOTrainer, satwatch=FakeClient(rule=GUARD))
    assert len(warnings_of(caplog)) == 1 and "1.17.0" in warnings_of(caplog)[0] and "1.16" in warnings_of(caplog)[0]


@pytest.mark.parametrize("module", [satwatch.hooks.trl, versions], ids=lambda module: module.__name__)
def test_examples(module):
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0
