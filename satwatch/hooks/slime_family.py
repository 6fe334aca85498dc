"""What the hooks of slime and of its fork miles share: their policy loss, over lists with one tensor a sample.

What is sent is log pi - log mu: above 0 where the trainer likes the token better than the engine did. mu is
``rollout_log_probs``. pi is ``log_probs``, the trainer's own score of the rollouts before its first update with them:
the policy in the forward pass until the second minibatch of a rollout. From then on the two differ, and with them, for
some tokens, which side is outward. Where the trainer has no such score, or makes it with the weights of the rollout, pi
is the policy in the forward pass.

A guarded loss has mu as its denominator, as with ``--use-rollout-logprobs``, and no truncated importance sampling:
that would count pi_old / mu a second time.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, TypeAlias

import torch

from satwatch.errors import ConfigError, required
from satwatch.hooks.core.attachment import Attachment
from satwatch.hooks.core.denominator import denominator
from satwatch.hooks.core.metrics import ALWAYS_RETURNED, PREFIX
from satwatch.hooks.core.notices import Notices
from satwatch.hooks.core.radii import ClipRadii
from satwatch.hooks.core.slots import lent
from satwatch.types import Level

Batch: TypeAlias = Mapping[str, Any]
Reducer: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
Loss: TypeAlias = tuple[torch.Tensor, dict[str, torch.Tensor]]

# The trainer adds up values of all microbatches and ranks by their place: each has to return the same names.
METRICS: Final = ALWAYS_RETURNED

_NO_BEHAVIOR: Final = (
    "no rollout_log_probs in the batch: there is nothing to compare, so nothing is sent and the loss is the stock "
    "one. The rollout function has to fill Sample.rollout_log_probs, as the trainer's own does."
)
_NO_TIS: Final = (
    "use_tis is left out of the guarded loss: the engine's own log-probs are its denominator, and the weight would "
    "correct a second time"
)


@dataclass(frozen=True)
class Place:
    """Where a rank stands among the others.

    Attributes:
        data: its number among those with other samples, and how many there are.
        tokens: its number among those with other tokens, context parallelism counted, and how many there are.
        context: its number in its context-parallel group, and how many there are.
        leads: whether it is the first of its tensor-parallel group, which all hold the same tokens.
    """

    data: tuple[int, int]
    tokens: tuple[int, int]
    context: tuple[int, int]
    leads: bool


class SlimeFamilyLoss(ABC):
    """The trainer's policy loss, with satwatch beside it; it attaches at its first call, in the worker."""

    trainer: str

    def __init__(self) -> None:
        self._attachment: Attachment | None = None
        # Whether responses are cut over a context-parallel group, and whether it has to gather them: a sequence's score
        # needs all of it. The group then speaks with one voice.
        self._is_cut = self._gathers = False
        self._notices = Notices(self.trainer)
        self._awaited: list[tuple[Batch, ClipRadii]] = []
        self._step = 0

    @abstractmethod
    def losses(self) -> ModuleType:
        """Return the module of ``policy_loss_function``, where it looks up ``get_log_probs_and_entropy``."""

    @abstractmethod
    def slices(self) -> ModuleType:
        """Return the module of ``slice_log_prob_with_cp`` and ``all_gather_with_cp``."""

    @abstractmethod
    def place(self) -> Place:
        """Return where this rank stands."""

    @abstractmethod
    def spans(self, args: Namespace, batch: Batch) -> list[tuple[Any, ...]]:
        """Return, a sample, what the module of :meth:`slices` needs to find this rank's part of a response."""

    @abstractmethod
    def log_probs(self, scores: Any) -> list[torch.Tensor]:  # noqa: ANN401 - each trainer's own form
        """Return the log-probs in what ``get_log_probs_and_entropy`` returned."""

    def __call__(self, args: Namespace, batch: Batch, logits: torch.Tensor, sum_of_sample_mean: Reducer) -> Loss:
        """Compute the loss as ``policy_loss_function`` does."""
        stock = self.losses()
        if not batch.get("rollout_log_probs"):
            self._notices.give(_NO_BEHAVIOR)
            loss: Loss = stock.policy_loss_function(args, batch, logits, sum_of_sample_mean)
            return loss
        attachment = self._attached(args)
        radii = self._again(batch)
        if radii is None and batch.get("log_probs") and not args.keep_old_actor:
            radii = self._ask(args, batch, batch["log_probs"])
        loss_args, loss_batch = self._guarded(args, batch) if attachment.guards else (args, batch)
        own_scores = stock.get_log_probs_and_entropy

        def get_log_probs_and_entropy(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - the trainer's
            scores = own_scores(*given, **named)
            bounds = self._ask(args, batch, self.log_probs(scores)) if radii is None else radii
            if attachment.guards:
                self._set_denominators(args, batch, self.log_probs(scores), loss_batch["rollout_log_probs"])
                # The loss looks at its epsilons after this: the answer had as long to arrive as the scores took.
                loss_args.eps_clip, loss_args.eps_clip_high = self._local(args, batch, bounds)
            return scores

        with lent(stock, get_log_probs_and_entropy=get_log_probs_and_entropy):
            value, metrics = stock.policy_loss_function(loss_args, loss_batch, logits, sum_of_sample_mean)
        return value, {**metrics, **self._metrics(attachment, batch, sum_of_sample_mean)}

    def _attached(self, args: Namespace) -> Attachment:
        if self._attachment is None:
            place = self.place()
            level: Level = "sequence" if args.advantage_estimator == "gspo" else "token"
            self._is_cut = place.context[1] > 1
            self._gathers = self._is_cut and level == "sequence"
            rank, world_size = place.data if self._gathers else place.tokens
            # CISPO clips a weight, often outside what an interval of PPO's may be; it can be watched.
            clips = args.advantage_estimator != "cispo"
            attachment = Attachment(
                self.trainer,
                eps_low=args.eps_clip if clips else None,
                eps_high=args.eps_clip_high if clips else None,
                level=level,
                rank=rank,
                world_size=world_size,
                sends=place.leads and not (self._gathers and place.context[0]),
            )
            if attachment.guards:
                self._check(args)
            self._attachment = attachment
        return self._attachment

    def _check(self, args: Namespace) -> None:
        """Refuse what radii can't guard.

        Raises:
            ConfigError: at start-up.
        """
        if args.advantage_estimator == "cispo":
            came = "cispo, whose clip is no trust region"
            raise ConfigError(required("advantage_estimator", came, "another one, or a rule with enabled = false"))
        if args.use_tis and args.custom_tis_function_path is not None:
            came = f"use_tis with {args.custom_tis_function_path}, which may weight by pi_old / mu"
            requirement = "no use_tis: a guarded loss has mu as its denominator; or a rule with enabled = false"
            raise ConfigError(required("custom_tis_function_path", came, requirement))
        if args.use_tis:
            self._notices.give(_NO_TIS)

    def _again(self, batch: Batch) -> ClipRadii | None:
        """Return the radii of a forward pass that is recomputed: it is the same microbatch, and is counted once."""
        for number, (awaited, radii) in enumerate(self._awaited):
            if awaited is batch:
                del self._awaited[number]
                return radii
        return None

    def _ask(self, args: Namespace, batch: Batch, log_probs: Sequence[torch.Tensor]) -> ClipRadii:
        attachment = self._attached(args)
        spans = self.spans(args, batch)

        def flat(values: Sequence[torch.Tensor]) -> torch.Tensor:
            if self._gathers:
                gather = self.slices().all_gather_with_cp
                values = [gather(value.detach(), *span) for value, span in zip(values, spans, strict=True)]
            return torch.cat([value.detach() for value in values])

        masks = list(batch["loss_masks"]) if self._gathers else self._masks(args, batch)
        is_reference = args.keep_old_actor and batch.get("log_probs")
        # A part of a sequence is not a sequence.
        lengths = [len(mask) for mask in masks] if self._gathers or not self._is_cut else None
        with torch.no_grad():
            radii: ClipRadii = attachment.ask(
                flat(log_probs),
                flat(batch["rollout_log_probs"]),
                decoupled=not (attachment.guards or args.use_rollout_logprobs),
                mask=torch.cat(masks),
                advantage=flat(batch["advantages"]),
                reference_logprob=flat(batch["log_probs"]) if is_reference else None,
                sequence_lengths=lengths,
            )
        if args.recompute_loss_function:
            step = attachment.heartbeat.step
            # What an earlier step left behind will not be recomputed any more.
            self._awaited, self._step = (self._awaited if step == self._step else []), step
            self._awaited.append((batch, radii))
        return radii

    def _guarded(self, args: Namespace, batch: Batch) -> tuple[Namespace, Batch]:
        """Return copies for a loss of ratio pi / mu that corrects for nothing else; neither mu nor radii are final."""
        own = copy.copy(args)
        own.use_rollout_logprobs, own.use_tis = True, False
        return own, {**batch, "rollout_log_probs": [value.clone() for value in batch["rollout_log_probs"]]}

    def _set_denominators(
        self, args: Namespace, batch: Batch, scores: Sequence[torch.Tensor], taken: Sequence[torch.Tensor]
    ) -> None:
        """Give a guarded loss its old log-probs: mu, as far as that can be.

        Args:
            args: the trainer's own.
            batch: the trainer's own.
            scores: log pi of this forward pass.
            taken: the tensors that the loss has taken already, and looks at after this.
        """
        masks, behavior = self._masks(args, batch), batch["rollout_log_probs"]
        own = batch.get("log_probs") or ()
        stands_in = own if [len(value) for value in own] == [len(value) for value in behavior] else [None] * len(taken)
        for place, now, mu, old, mask in zip(taken, scores, behavior, stands_in, masks, strict=True):
            # 0 is what the trainer has where no engine sampled.
            place.copy_(torch.where(mask != 0, denominator(now.detach(), mu, old, mask), 0.0))

    def _masks(self, args: Namespace, batch: Batch) -> list[torch.Tensor]:
        """Return this rank's part of the masks, which the batch has whole."""
        cut, spans = self.slices().slice_log_prob_with_cp, self.spans(args, batch)
        return [cut(mask, *span) for mask, span in zip(batch["loss_masks"], spans, strict=True)]

    def _local(self, args: Namespace, batch: Batch, radii: ClipRadii) -> tuple[torch.Tensor, torch.Tensor]:
        """Return this rank's radii, in the order of its tokens."""
        if not self._gathers:
            return radii.low, radii.high
        cut, spans = self.slices().slice_log_prob_with_cp, self.spans(args, batch)
        lengths = [len(mask) for mask in batch["loss_masks"]]

        def part(values: torch.Tensor) -> torch.Tensor:
            return torch.cat([cut(value, *span) for value, span in zip(values.split(lengths), spans, strict=True)])

        return part(radii.low), part(radii.high)

    def _metrics(self, attachment: Attachment, batch: Batch, sum_of_sample_mean: Reducer) -> dict[str, torch.Tensor]:
        """Return what the trainer adds up and divides; each value weighs what the microbatch's tokens weigh there."""
        values = attachment.drain()
        tokens = torch.cat([value.detach() for value in batch["rollout_log_probs"]])
        share = float(sum_of_sample_mean(torch.ones_like(tokens, dtype=torch.float32)))
        names = [PREFIX + name for name in METRICS]
        return {name: torch.tensor(share * values.get(name, torch.nan) if share else 0.0) for name in names}
