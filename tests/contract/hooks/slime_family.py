"""A stand-in for what slime and miles give a custom loss, and the tests that both hooks have to pass.

By signature: the real packages are not run here. What is stood in for was read from slime 0.3.1 and miles 0.1.0 (the
state of August 2026 of both): ``policy_loss_function`` and the module-level ``get_log_probs_and_entropy`` it calls, the
two slicing functions of ``cp_utils``, and where the ranks are told. Tensors have the shapes of the real ones: one 1-d
tensor a sample, as long as its response, or as this rank's part of it; masks always as long as the response.
"""

from __future__ import annotations

import logging
import math
from argparse import Namespace
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import ModuleType

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from satwatch.client import FakeClient
from satwatch.client.settings import RUN_VARIABLE
from satwatch.errors import ConfigError, UnavailableError
from satwatch.hooks import use
from satwatch.sat import clip_bounds
from satwatch.types import Rule

PROMPTS, RESPONSES, VOCABULARY = (3, 5, 2, 4), (9, 14, 6, 11), 7
TOTALS = tuple(map(sum, zip(PROMPTS, RESPONSES, strict=True)))
# Half of the tokens are in the tail, so that the few of a test are bounded visibly.
RULE = Rule(eps_low=0.2, eps_high=0.28, quantile=0.5)
SEQUENCE_RULE = Rule(eps_low=0.2, eps_high=0.28, quantile=0.5, level="sequence")


@dataclass
class Ranks:
    """Where the stand-in's process is: (its number, how many there are)."""

    data: tuple[int, int] = (0, 1)
    context: tuple[int, int] = (0, 1)
    tensor: tuple[int, int] = (0, 1)


@dataclass
class Trainer:
    """A trainer's modules, stood in for, and what happened in them."""

    name: str
    losses: ModuleType
    hook: ModuleType
    ranks: Ranks
    events: list[str] = field(default_factory=list)
    clipped_at: tuple[object, object] | None = None
    whole: list[torch.Tensor] = field(default_factory=list)

    def cut(self, response: torch.Tensor) -> torch.Tensor:
        """Return a rank's part of a response: here, every so many-th token."""
        rank, size = self.ranks.context
        return response[rank::size]

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        """Return the response that a part is of, as the ranks' collective would."""
        return next(known for known in self.whole if torch.equal(self.cut(known), part))


def stand_in(trainer: Trainer, pack, unpack) -> None:
    """Fill a module of losses: PPO and GSPO over lists, clipping at ``args.eps_clip`` and ``args.eps_clip_high``.

    Args:
        trainer: whose module.
        pack: makes the trainer's form of scores from a list of log-probs.
        unpack: the other way.
    """
    module = trainer.losses

    def get_log_probs_and_entropy(logits, *, args, unconcat_tokens, total_lengths, response_lengths, **_):
        trainer.events.append("scored")
        rows = logits[0].log_softmax(-1).split(list(total_lengths))
        return pack(
            [
                trainer.cut(row[-response - 1 : -1].gather(1, tokens[-response:, None])[:, 0])
                for row, tokens, response in zip(rows, unconcat_tokens, response_lengths, strict=True)
            ]
        )

    def policy_loss_function(args, batch, logits, sum_of_sample_mean):
        scores = module.get_log_probs_and_entropy(
            logits,
            args=args,
            unconcat_tokens=batch["unconcat_tokens"],
            total_lengths=batch["total_lengths"],
            response_lengths=batch["response_lengths"],
            with_entropy=True,
        )
        now = unpack(scores)
        old = batch["rollout_log_probs"] if args.use_rollout_logprobs else batch["log_probs"]
        ratios = [mine - theirs for mine, theirs in zip(now, old or [values.detach() for values in now], strict=True)]
        if args.advantage_estimator == "gspo":
            kept = [trainer.cut(mask) for mask in batch["loss_masks"]]
            ratios = [((d * mask).sum() / mask.sum()).expand_as(d) for d, mask in zip(ratios, kept, strict=True)]
        ratio, advantage = torch.cat(ratios).exp(), torch.cat(batch["advantages"])
        trainer.events.append("clipped")
        trainer.clipped_at = args.eps_clip, args.eps_clip_high
        clipped = ratio.clamp(1 - args.eps_clip, 1 + args.eps_clip_high)
        losses = -torch.minimum(ratio * advantage, clipped * advantage)
        if args.use_tis:
            assert batch["rollout_log_probs"]
            weight = (torch.cat(batch["log_probs"]) - torch.cat(batch["rollout_log_probs"])).exp()
            losses = losses * weight.clamp(0, 2)
        loss = sum_of_sample_mean(losses)
        return loss, {"loss": loss.detach(), "pg_clipfrac": sum_of_sample_mean((ratio != clipped).float()).detach()}

    module.get_log_probs_and_entropy = get_log_probs_and_entropy
    module.policy_loss_function = policy_loss_function


def arguments(**changes) -> Namespace:
    """Return the trainer's arguments that its loss and the hook read."""
    settings = {
        "advantage_estimator": "grpo",
        "custom_tis_function_path": None,
        "eps_clip": 0.2,
        "eps_clip_high": 0.28,
        "keep_old_actor": False,
        "qkv_format": "thd",
        "recompute_loss_function": False,
        "use_rollout_logprobs": False,
        "use_tis": False,
    }
    return Namespace(**settings | changes)


def tokens_and_logits(dtype=torch.float32):
    """Return the samples' tokens and the model's output for them, packed."""
    random = torch.Generator().manual_seed(11)
    tokens = [torch.randint(VOCABULARY, (total,), generator=random) for total in TOTALS]
    logits = torch.randn(1, sum(TOTALS), VOCABULARY, generator=random, dtype=torch.float64)
    return tokens, logits.to(dtype).requires_grad_()


def responses():
    """Return, a sample, the log-probs before the update, the engine's, and the mask, all as long as the response."""
    tokens, logits = tokens_and_logits(torch.float64)
    random = torch.Generator().manual_seed(12)
    scores = logits.detach()[0].log_softmax(-1).split(TOTALS)
    now = [
        row[-response - 1 : -1].gather(1, own[-response:, None])[:, 0]
        for row, own, response in zip(scores, tokens, RESPONSES, strict=True)
    ]
    drift = [torch.randn(response, generator=random, dtype=torch.float64) for response in RESPONSES]
    noise = [torch.randn(response, generator=random, dtype=torch.float64) for response in RESPONSES]
    old = [(values + 0.02 * by).float() for values, by in zip(now, drift, strict=True)]
    bias = (0.2, -0.17, 0.02, -0.03)
    mu = [(values - by + 0.08 * n).float() for values, by, n in zip(now, bias, noise, strict=True)]
    masks = [(torch.rand(response, generator=random) > 0.2).int() for response in RESPONSES]
    return old, mu, masks


def make_batch(trainer: Trainer, **changes):
    """Return a microbatch of this rank."""
    old, mu, masks = responses()
    advantages = [torch.full((n,), a) for n, a in zip(RESPONSES, (1.0, -1.0, 0.5, -0.7), strict=True)]
    trainer.whole[:] = [*old, *mu, *advantages]
    batch = {
        "unconcat_tokens": tokens_and_logits()[0],
        "total_lengths": list(TOTALS),
        "response_lengths": list(RESPONSES),
        "log_probs": [trainer.cut(values) for values in old],
        "rollout_log_probs": [trainer.cut(values) for values in mu],
        "advantages": [trainer.cut(values) for values in advantages],
        "loss_masks": masks,
    }
    return batch | changes


def reducer(trainer: Trainer, batch):
    """Return the trainer's normaliser: the sum over samples of the mean over the active tokens."""
    masks = [trainer.cut(mask) for mask in batch["loss_masks"]]

    def sum_of_sample_mean(values):
        parts = values.split([len(mask) for mask in masks])
        whole = [mask.sum() for mask in batch["loss_masks"]]
        return sum((part * mask).sum() / n for part, mask, n in zip(parts, masks, whole, strict=True))

    return sum_of_sample_mean


@dataclass
class Outcome:
    """What a loss came to."""

    loss: torch.Tensor
    gradient: torch.Tensor
    metrics: dict[str, torch.Tensor]
    client: FakeClient

    @property
    def sent(self):
        """The one batch that was sent."""
        (call,) = self.client.calls
        return call.batch


def run(trainer: Trainer, args=None, *, client=None, batch=None, loss=None) -> Outcome:
    """Run the hook, or another loss, as the trainer does, and check that it got its own arguments and batch back."""
    client = FakeClient(rule=RULE) if client is None else client
    use(client)
    trainer.hook._loss = type(trainer.hook._loss)()
    args, batch = arguments() if args is None else args, make_batch(trainer) if batch is None else batch
    before = dict(vars(args)), {name: list(values or ()) for name, values in batch.items()}
    scores = trainer.losses.get_log_probs_and_entropy
    _, logits = tokens_and_logits()
    try:
        value, metrics = (loss or trainer.hook.sat_loss)(args, batch, logits, reducer(trainer, batch))
        value.backward()
    finally:
        assert trainer.losses.get_log_probs_and_entropy is scores
        assert vars(args) == before[0]
        for name, values in before[1].items():
            assert all(now is then for now, then in zip(batch[name] or (), values, strict=True)), name
    return Outcome(value.detach(), logits.grad, metrics, client)


def stock(trainer: Trainer, args=None, batch=None) -> Outcome:
    """Run the trainer's own loss."""
    return run(trainer, args, batch=batch, loss=trainer.losses.policy_loss_function)


def sat_by_hand(rule: Rule, numerator=None):
    """Return SAT's loss in float64, and its gradient: ratio pi / mu, bounds from the numerator's log-ratio."""
    old, mu, masks = responses()
    tokens, logits = tokens_and_logits(torch.float64)
    rows = logits[0].log_softmax(-1).split(TOTALS)
    now = [
        row[-response - 1 : -1].gather(1, own[-response:, None])[:, 0]
        for row, own, response in zip(rows, tokens, RESPONSES, strict=True)
    ]
    scored = torch.cat(old if numerator is None else numerator)
    bounds = clip_bounds(
        (scored - torch.cat(mu)).double(),
        mask=torch.cat(masks),
        quantile=rule.quantile,
        eps_low=rule.eps_low,
        eps_high=rule.eps_high,
        level=rule.level,
        sequence_lengths=RESPONSES,
    )
    total = torch.zeros((), dtype=torch.float64)
    edges = bounds.low.split(RESPONSES), bounds.high.split(RESPONSES)
    for pi, engine, mask, low, high, a in zip(now, mu, masks, *edges, (1.0, -1.0, 0.5, -0.7), strict=True):
        d = pi - engine.double()
        r = ((d * mask).sum() / mask.sum()).expand_as(d).exp() if rule.level == "sequence" else d.exp()
        surrogate = torch.minimum(r * a, torch.minimum(torch.maximum(r, low), high) * a)
        total = total - (surrogate * mask).sum() / mask.sum()
    total.backward()
    return total.detach(), logits.grad


def close(left, right):
    return torch.allclose(left.double(), right.double(), rtol=0, atol=1e-6)


class SlimeFamilyContract:
    """What the hook of a trainer of this family does; a subclass has the fixture ``trainer``."""

    levels = pytest.mark.parametrize(
        ("estimator", "rule"), [("grpo", RULE), ("gspo", SEQUENCE_RULE)], ids=["token", "sequence"]
    )

    def test_a_token_the_trainer_likes_better_has_a_positive_log_ratio(self, trainer):
        batch = make_batch(trainer)
        batch["log_probs"][1][2] = batch["rollout_log_probs"][1][2] + 0.5
        sent = run(trainer, batch=batch).sent
        assert sent.log_ratio[RESPONSES[0] + 2].item() == pytest.approx(0.5, abs=1e-6)
        assert torch.equal(sent.log_ratio, torch.cat(batch["log_probs"]) - torch.cat(batch["rollout_log_probs"]))

    def test_what_is_sent(self, trainer):
        outcome, batch = run(trainer), make_batch(trainer)
        assert torch.equal(outcome.sent.mask, torch.cat(batch["loss_masks"]).bool())
        assert torch.equal(outcome.sent.advantage, torch.cat(batch["advantages"]))
        assert torch.equal(outcome.sent.behavior_logprob, torch.cat(batch["rollout_log_probs"]))
        assert list(outcome.sent.sequence_lengths) == list(RESPONSES)
        assert outcome.sent.step == 0
        # Neither trainer's loss knows a version, and its score before the update is no reference at the rollout's.
        assert outcome.sent.behavior_versions is outcome.sent.policy_version is outcome.sent.reference_logprob is None
        assert outcome.client.calls[0].submitted

    @levels
    def test_the_guarded_loss_is_sats(self, trainer, estimator, rule):
        outcome = run(trainer, arguments(advantage_estimator=estimator), client=FakeClient(rule=rule))
        loss, gradient = sat_by_hand(rule)
        assert close(outcome.loss, loss)
        assert close(outcome.gradient, gradient)
        # The radii matter here: PPO's own interval around mu has another gradient.
        nominal = stock(trainer, arguments(advantage_estimator=estimator, use_rollout_logprobs=True))
        assert not close(outcome.gradient, nominal.gradient)

    @levels
    @pytest.mark.parametrize("changes", [{}, {"use_tis": True}, {"use_rollout_logprobs": True}], ids=str)
    def test_watching_is_the_stock_loss_bit_for_bit(self, trainer, estimator, rule, changes):
        args = arguments(advantage_estimator=estimator, **changes)
        watched = run(trainer, args, client=FakeClient(rule=replace(rule, enabled=False)))
        own = stock(trainer, args)
        assert torch.equal(watched.loss, own.loss)
        assert torch.equal(watched.gradient, own.gradient)
        assert {name: watched.metrics[name] for name in own.metrics} == own.metrics
        assert watched.sent.log_ratio.numel() == sum(RESPONSES)
        assert bool(watched.metrics["satwatch/decoupled"]) != args.use_rollout_logprobs

    def test_the_radii_are_taken_out_when_the_loss_raises(self, trainer):
        def broken(values):
            raise ZeroDivisionError

        batch, args = make_batch(trainer), arguments()
        use(FakeClient(rule=RULE))
        trainer.hook._loss = type(trainer.hook._loss)()
        scores = trainer.losses.get_log_probs_and_entropy
        with pytest.raises(ZeroDivisionError):
            trainer.hook.sat_loss(args, batch, tokens_and_logits()[1], broken)
        assert trainer.losses.get_log_probs_and_entropy is scores
        assert (args.eps_clip, args.eps_clip_high, args.use_rollout_logprobs) == (0.2, 0.28, False)

    @pytest.mark.parametrize("absent", [None, [], "no key"])
    def test_without_the_engines_log_probs_the_loss_is_the_stock_one_and_nothing_is_sent(self, trainer, absent, caplog):
        batch = make_batch(trainer, rollout_log_probs=absent)
        if absent == "no key":
            del batch["rollout_log_probs"]
        own = stock(trainer, batch=batch)
        with caplog.at_level(logging.WARNING, "satwatch"):
            outcome = run(trainer, batch=batch)
            trainer.hook.sat_loss(arguments(), batch, tokens_and_logits()[1], reducer(trainer, batch))
        assert torch.equal(outcome.loss, own.loss)
        assert torch.equal(outcome.gradient, own.gradient)
        assert outcome.metrics.keys() == own.metrics.keys()
        assert not outcome.client.calls
        (said,) = caplog.messages
        assert said.startswith(f"satwatch, {trainer.name}: no rollout_log_probs in the batch")

    @pytest.mark.parametrize("garbage", [float("nan"), float("inf"), -1000.0], ids=str)
    def test_masked_tokens_have_no_say(self, trainer, garbage):
        batch = make_batch(trainer)
        clean = run(trainer)
        for values, mask in zip(batch["rollout_log_probs"], batch["loss_masks"], strict=True):
            values[mask == 0] = garbage
        outcome = run(trainer, batch=batch)
        assert torch.equal(outcome.loss, clean.loss)
        assert torch.equal(outcome.gradient, clean.gradient)

    @pytest.mark.parametrize(("estimator", "rule"), [("grpo", RULE), ("gspo", SEQUENCE_RULE)])
    @pytest.mark.parametrize("unusable", [float("nan"), float("-inf"), float("inf")], ids=str)
    def test_a_token_whose_log_prob_of_the_engines_is_no_number_leaves_the_loss_and_the_gradient_finite(
        self, trainer, estimator, rule, unusable, monkeypatch
    ):
        batch, loss, denominators = make_batch(trainer), trainer.losses.policy_loss_function, []
        place = batch["loss_masks"][1].nonzero()[0, 0]
        batch["rollout_log_probs"][1][place] = unusable

        def policy_loss_function(args, batch, *rest):
            denominators.extend(batch["rollout_log_probs"])
            return loss(args, batch, *rest)

        monkeypatch.setattr(trainer.losses, "policy_loss_function", policy_loss_function)
        outcome = run(trainer, arguments(advantage_estimator=estimator), client=FakeClient(rule=rule), batch=batch)
        assert outcome.loss.isfinite()
        assert outcome.gradient.isfinite().all()
        if math.isnan(unusable):  # unknown: the trainer's own stays
            assert denominators[1][place] == batch["log_probs"][1][place]
        assert not outcome.sent.log_ratio.isfinite().all()  # what the engine said is counted all the same

    @pytest.mark.parametrize("advantage", [1.0, -1.0])
    @pytest.mark.parametrize("use_rollout_logprobs", [False, True])
    def test_a_ratio_that_has_no_number_leaves_the_gradient_finite(self, trainer, advantage, use_rollout_logprobs):
        batch = make_batch(trainer)
        place = batch["loss_masks"][1].nonzero()[0, 0]
        batch["rollout_log_probs"][1][place], batch["advantages"][1][place] = -91.0, advantage
        outcome = run(trainer, arguments(use_rollout_logprobs=use_rollout_logprobs), batch=batch)
        assert outcome.sent.log_ratio.max() > 80  # as it is
        assert outcome.loss.isfinite()
        assert outcome.gradient.isfinite().all()

    def test_a_client_that_breaks_costs_its_metrics_and_not_the_run(self, trainer):
        class Broken(FakeClient):
            def submit(self, log_ratio, **batch):
                raise RuntimeError("broken")

        outcome, sound = run(trainer, client=Broken(rule=RULE)), run(trainer)
        assert torch.equal(outcome.gradient, sound.gradient)  # the bounds are computed here
        # Weighted as the trainer weighs: four samples in the microbatch.
        assert outcome.metrics["satwatch/hook_faults"].item() == 4

    def test_a_field_that_does_not_fit_costs_itself(self, trainer):
        batch, args = make_batch(trainer), arguments(keep_old_actor=True)
        outcome, sound = run(trainer, args, batch=batch | {"log_probs": batch["log_probs"][:-1]}), run(trainer, args)
        assert torch.equal(outcome.gradient, sound.gradient)
        assert outcome.sent.reference_logprob is None
        assert torch.equal(outcome.sent.log_ratio, sound.sent.log_ratio)

    def test_a_missing_answer_raises_where_the_client_is_told_to(self, trainer):
        with pytest.raises(UnavailableError):
            run(trainer, client=FakeClient([UnavailableError("away")], rule=RULE))

    def test_tis_is_left_out_of_a_guarded_loss_and_that_is_said_once(self, trainer, caplog):
        with caplog.at_level(logging.WARNING, "satwatch"):
            outcome = run(trainer, arguments(use_tis=True))
            batch = make_batch(trainer)
            trainer.hook.sat_loss(arguments(use_tis=True), batch, tokens_and_logits()[1], reducer(trainer, batch))
        assert torch.equal(outcome.gradient, run(trainer).gradient)
        assert [record.message for record in caplog.records if "use_tis" in record.message] == [
            f"satwatch, {trainer.name}: use_tis is left out of the guarded loss: the engine's own log-probs are its "
            "denominator, and the weight would correct a second time"
        ]

    def test_a_correction_of_the_users_own_is_refused_unless_satwatch_only_watches(self, trainer):
        args = arguments(use_tis=True, custom_tis_function_path="mis.weights")
        with pytest.raises(ConfigError, match=r"use_tis with mis\.weights"):
            run(trainer, args)
        assert run(trainer, args, client=FakeClient(rule=replace(RULE, enabled=False))).client.calls

    def test_token_bounds_on_a_sequence_ratio_are_refused_both_ways(self, trainer):
        with pytest.raises(ConfigError, match="level"):
            run(trainer, arguments(advantage_estimator="gspo"))
        with pytest.raises(ConfigError, match="level"):
            run(trainer, client=FakeClient(rule=SEQUENCE_RULE))

    def test_other_radii_than_the_trainers_are_refused(self, trainer):
        with pytest.raises(ConfigError, match="eps_high"):
            run(trainer, arguments(eps_clip_high=0.3))

    def test_a_run_needs_a_name(self, trainer, monkeypatch):
        monkeypatch.delenv(RUN_VARIABLE, raising=False)
        use(None)
        hook = type(trainer.hook._loss)()
        with pytest.raises(ConfigError, match=RUN_VARIABLE):
            hook(arguments(), make_batch(trainer), tokens_and_logits()[1], lambda values: values.sum())

    @levels
    def test_without_a_score_of_the_trainers_own_the_forward_pass_is_sent(self, trainer, estimator, rule):
        args = arguments(advantage_estimator=estimator, use_rollout_logprobs=True)
        outcome = run(trainer, args, client=FakeClient(rule=rule), batch=make_batch(trainer, log_probs=None))
        now = self.forward()
        assert close(outcome.sent.log_ratio, torch.cat(now) - torch.cat(responses()[1]))
        loss, gradient = sat_by_hand(rule, [values.double() for values in now])
        assert close(outcome.loss, loss)
        assert close(outcome.gradient, gradient)

    def test_a_score_by_the_rollouts_weights_is_the_reference_and_the_forward_pass_is_sent(self, trainer):
        outcome = run(trainer, arguments(keep_old_actor=True))
        old, mu, _ = responses()
        assert torch.equal(outcome.sent.reference_logprob, torch.cat(old))
        assert close(outcome.sent.log_ratio, torch.cat(self.forward()) - torch.cat(mu))

    @pytest.mark.parametrize("use_reentrant", [False, True])
    @pytest.mark.parametrize("changes", [{}, {"keep_old_actor": True}], ids=str)
    def test_a_recomputed_loss_is_one_microbatch(self, trainer, use_reentrant, changes):
        args, plain = arguments(recompute_loss_function=True, **changes), run(trainer, arguments(**changes))

        def recomputed(*given):
            return checkpoint(trainer.hook.sat_loss, *given, use_reentrant=use_reentrant)

        outcome = run(trainer, args, loss=recomputed)
        assert trainer.events.count("scored") == 3  # one for the plain loss
        assert len(outcome.client.calls) == 1
        assert torch.equal(outcome.loss, plain.loss)
        assert torch.equal(outcome.gradient, plain.gradient)
        assert not trainer.hook._loss._awaited

    def test_what_was_never_recomputed_is_let_go_with_the_next_step(self, trainer):
        args = arguments(recompute_loss_function=True)
        use(FakeClient(rule=RULE))
        weight = torch.nn.Parameter(torch.zeros(1))
        weight.grad = torch.zeros(1)
        optimizer = torch.optim.SGD([weight])
        for _ in range(3):
            batch = make_batch(trainer)
            trainer.hook.sat_loss(args, batch, tokens_and_logits()[1], reducer(trainer, batch))
            assert len(trainer.hook._loss._awaited) == 1
            optimizer.step()

    def test_the_answer_has_the_scores_time_to_arrive(self, trainer):
        class Late(FakeClient):
            def submit(self, log_ratio, **batch):
                trainer.events.append("asked")
                answer = super().submit(log_ratio, **batch).result()

                class Answer(Future):
                    def result(self, timeout=None):
                        trainer.events.append("looked")
                        return answer

                return Answer()

        run(trainer, client=Late(rule=RULE))
        assert trainer.events == ["asked", "scored", "looked", "clipped"]

    def test_microbatches_belong_to_the_step_of_the_optimizer(self, trainer):
        client = FakeClient(rule=RULE)
        use(client)
        weight = torch.nn.Parameter(torch.zeros(1))
        weight.grad = torch.zeros(1)
        optimizer = torch.optim.SGD([weight])
        for _ in range(2):
            for _ in range(2):
                batch = make_batch(trainer)
                trainer.hook.sat_loss(arguments(), batch, tokens_and_logits()[1], reducer(trainer, batch))
            optimizer.step()
        assert [call.batch.step for call in client.calls] == [0, 0, 1, 1]

    def test_metrics_add_up_as_the_trainers_do(self, trainer):
        # The trainer adds values up over microbatches, by their place, and divides by its samples.
        batch = make_batch(trainer)
        halves = [{name: values[part] for name, values in batch.items()} for part in (slice(0, 1), slice(1, 4))]
        logits = tokens_and_logits()[1].split([TOTALS[0], sum(TOTALS[1:])], 1)
        use(FakeClient(rule=RULE))
        logs = [
            trainer.hook.sat_loss(arguments(), half, part, reducer(trainer, half))[1]
            for half, part in zip(halves, logits, strict=True)
        ]
        assert list(logs[0]) == list(logs[1])
        assert torch.tensor(list(logs[0].values())).dtype == torch.float32
        d = [
            (torch.cat(half["log_probs"]) - torch.cat(half["rollout_log_probs"]))[torch.cat(half["loss_masks"]) != 0]
            for half in halves
        ]
        reported = sum(log["satwatch/log_ratio_abs_mean"].item() for log in logs) / 4
        assert reported == pytest.approx((d[0].abs().mean() + 3 * d[1].abs().mean()).item() / 4, abs=1e-6)

    def test_a_microbatch_without_active_tokens_adds_nothing(self, trainer):
        masks = [torch.zeros(response, dtype=torch.int) for response in RESPONSES]
        batch = make_batch(trainer, loss_masks=masks)
        use(FakeClient(rule=RULE))
        metrics = trainer.hook.sat_loss(arguments(), batch, tokens_and_logits()[1], lambda values: (values * 0).sum())[
            1
        ]
        ours = {name: value.item() for name, value in metrics.items() if name.startswith("satwatch/")}
        assert set(ours.values()) == {0.0}

    @pytest.mark.parametrize("rank", [0, 1])
    def test_a_context_parallel_rank_sends_its_own_tokens(self, trainer, rank):
        trainer.ranks.context = (rank, 2)
        outcome = run(trainer)
        _, mu, masks = responses()
        assert torch.equal(outcome.sent.behavior_logprob, torch.cat([values[rank::2] for values in mu]))
        assert torch.equal(outcome.sent.mask, torch.cat([mask[rank::2] for mask in masks]).bool())
        assert outcome.sent.sequence_lengths is None

    @pytest.mark.parametrize("rank", [0, 1])
    def test_context_parallel_ranks_gather_a_sequence_and_the_first_speaks(self, trainer, rank):
        trainer.ranks.context = (rank, 2)
        outcome = run(trainer, arguments(advantage_estimator="gspo"), client=FakeClient(rule=SEQUENCE_RULE))
        old, mu, masks = responses()
        bounds = clip_bounds(
            torch.cat(old) - torch.cat(mu),
            mask=torch.cat(masks),
            quantile=0.5,
            eps_high=0.28,
            level="sequence",
            sequence_lengths=RESPONSES,
        )
        low, high = (
            torch.cat([edge[rank::2] for edge in edges.split(RESPONSES)]) for edges in (bounds.low, bounds.high)
        )
        assert torch.equal(1 - trainer.clipped_at[0], low)
        assert torch.equal(1 + trainer.clipped_at[1], high)
        assert [call.batch.log_ratio.numel() for call in outcome.client.calls] == (
            [sum(RESPONSES)] if rank == 0 else []
        )

    @pytest.mark.parametrize(
        ("estimator", "ranks", "expected"),
        [
            ("grpo", Ranks(data=(1, 3)), (1, 3, True)),
            ("grpo", Ranks(data=(1, 3), context=(1, 2)), (3, 6, True)),
            ("grpo", Ranks(data=(1, 3), tensor=(1, 2)), (1, 3, False)),
            ("gspo", Ranks(data=(2, 3), context=(0, 2)), (2, 3, True)),
            ("gspo", Ranks(data=(2, 3), context=(1, 2)), (2, 3, False)),
        ],
        ids=str,
    )
    def test_which_ranks_speak_and_as_whom(self, trainer, estimator, ranks, expected, monkeypatch):
        vars(trainer.ranks).update(vars(ranks))
        opened = {}
        client = FakeClient(rule=SEQUENCE_RULE if estimator == "gspo" else RULE)

        def connect(**settings):
            opened.update(settings)
            return client

        monkeypatch.setattr("satwatch.hooks.core.settings.connect", connect)
        monkeypatch.setenv(RUN_VARIABLE, "a-run")
        use(None)
        batch, args = make_batch(trainer), arguments(advantage_estimator=estimator)
        trainer.hook.sat_loss(args, batch, tokens_and_logits()[1], reducer(trainer, batch))
        assert (opened["rank"], opened["world_size"], bool(client.calls)) == expected
        assert (opened["eps_low"], opened["eps_high"], opened["level"]) == (0.2, 0.28, client.rule.level)

    @staticmethod
    def forward():
        """Return the log-probs of the forward pass."""
        tokens, logits = tokens_and_logits()
        return [
            row[-response - 1 : -1].gather(1, own[-response:, None])[:, 0]
            for row, own, response in zip(
                logits.detach()[0].log_softmax(-1).split(TOTALS), tokens, RESPONSES, strict=True
            )
        ]
