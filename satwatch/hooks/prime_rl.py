"""prime-rl: a custom loss that runs the default loss with SAT's intervals in ``dppo_mask_low`` and ``dppo_mask_high``.

Sends log pi_now - log mu, ``trainer_logprobs`` minus ``inference_logprobs``: the log of the ratio in that loss.

The default loss drops a token whose probability moved outward by more than a threshold: pi - mu above
``dppo_mask_high`` where A > 0, below ``-dppo_mask_low`` where A < 0. Thresholds may be tensors. A token whose ratio is
outside SAT's interval gets one that every difference exceeds, the others keep prime-rl's own; a dropped token has no
gradient from its advantage, as a clipped one has none. Reduction, weights, KL term and metrics stay prime-rl's.

The loss sees one sequence at a time, and a request for each would be too many: a step's tokens are sent together when
the optimizer steps, and q of that batch bounds the sequences of the next step. In the first step, each has its own q.
"""

from __future__ import annotations

import copy
import importlib
import math
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from satwatch.addresses import ADDRESS_VARIABLE
from satwatch.client import BoundsClient, connect
from satwatch.client.settings import RUN_VARIABLE
from satwatch.errors import ConfigError, required
from satwatch.hooks.core.attachment import Attachment, subtract
from satwatch.hooks.core.eager import not_compiled
from satwatch.hooks.core.radii import ClipRadii
from satwatch.hooks.core.settings import CONFIG_VARIABLE, FILE_KEYS, MIN_REFERENCE, distributed_rank, process_client
from satwatch.sat import quantile_reference
from satwatch.sat.interval import contract
from satwatch.types import RULE_FIELDS

if TYPE_CHECKING:
    from prime_rl.trainer.rl.loss import LossInputs, LossOutputs

STOCK_KEYS: Final = ("adv_tau", "dppo_mask_high", "dppo_mask_low", "kl_tau")
# What the environment has no file for.
TABLE_KEYS: Final = ("context_parallel", "eps_high", "eps_low")
# Positions, padding included, that wait to be sent: 13 bytes each, and far below what a sidecar takes at once.
MOST_TOKENS: Final = 1 << 20


class StepwiseLoss:
    """The default loss of one rank, and the tokens that it has seen since the last optimizer step."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """Attach.

        Args:
            settings: ``[trainer.loss.kwargs]``.

        Raises:
            ConfigError: a setting that is not known, or one that can't be meant; no run.
        """
        _check_keys(settings)
        configs = importlib.import_module("prime_rl.configs.trainer")
        self._config = configs.DefaultLossConfig(**{key: settings[key] for key in STOCK_KEYS if key in settings})
        self._default_loss = importlib.import_module("prime_rl.trainer.rl.loss").default_loss_fn
        self._waiting: list[tuple[torch.Tensor, ...]] = []
        self._tokens = 0
        self._step = 0
        self._has_begun = False
        self._answer: ClipRadii | None = None
        self._is_reported = True
        # Before the attachment's own, which then counts a step's batches in their own step.
        _listen(weakref.WeakMethod(self._stepped))
        rank, ranks = distributed_rank()
        size = int(settings.get("context_parallel", 1))
        self.attachment = Attachment(
            "prime-rl",
            _client(settings, rank // size, ranks // size),
            eps_low=settings.get("eps_low"),
            eps_high=settings.get("eps_high"),
            level="token",
            rank=rank // size,
            world_size=ranks // size,
            run=settings.get("run"),
            sends=rank % size == 0,
        )
        for name in set(RULE_FIELDS) & set(settings):
            if settings[name] != (ours := getattr(self.attachment.rule, name)):
                raise ConfigError(required(name, f"{ours}, the client's", f"{settings[name]}, [trainer.loss.kwargs]'s"))

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        """Compute the default loss of a sequence."""
        config = self._bounded(inputs) if self.attachment.guards else self._config
        outputs: LossOutputs = self._default_loss(inputs, config)
        if not self._is_reported:
            self._is_reported = True
            device = inputs.trainer_logprobs.device
            metrics = self.attachment.drain()
            outputs.metrics.update({name: torch.tensor(value, device=device) for name, value in metrics.items()})
        self._waiting.append(
            (inputs.trainer_logprobs.detach(), inputs.inference_logprobs, inputs.loss_mask, inputs.advantages)
        )
        self._tokens += inputs.loss_mask.numel()
        self._has_begun = True
        if self._tokens >= MOST_TOKENS:
            self._send()
        return outputs

    def _bounded(self, inputs: LossInputs) -> Any:  # noqa: ANN401 - prime-rl's
        """Return a copy of the default loss's settings, with thresholds that drop what SAT clips."""
        rule, mask = self.attachment.rule, inputs.loss_mask
        d = subtract(inputs.trainer_logprobs, inputs.inference_logprobs)
        if self._answer is None:
            q = quantile_reference(d, rule.quantile, mask=mask).clamp(min=rule.min_reference)
        else:
            q = self._answer.bounds.quantile_reference
        bounds = contract(d, mask, q.to(d.device, torch.float64), rule)
        ratio = d.exp()
        config = copy.copy(self._config)
        # Not by assignment, which pydantic may check: a tensor is no float.
        vars(config).update(
            dppo_mask_low=_threshold(d, self._config.dppo_mask_low, ratio < bounds.low),
            dppo_mask_high=_threshold(d, self._config.dppo_mask_high, ratio > bounds.high),
        )
        return config

    @not_compiled
    def _stepped(self, *_: object) -> None:
        """Send the rest of a step; an optimizer that steps part after part ends it with the first."""
        if self._has_begun:
            self._has_begun = False
            if self._waiting:
                self._send()
            self._step += 1

    def _send(self) -> None:
        logprobs, behavior, masks, advantages = (list(parts) for parts in zip(*self._waiting, strict=True))
        self._waiting, self._tokens = [], 0
        self._answer = self.attachment.ask(logprobs, behavior, mask=masks, advantage=advantages, step=self._step)
        self._is_reported = False


def _listen(stepped: weakref.WeakMethod[Callable[..., None]]) -> None:
    """Call a loss when an optimizer has stepped, for as long as there is the loss."""

    def tell(*arguments: object) -> None:
        listener = stepped()
        if listener is not None:
            listener(*arguments)

    register_optimizer_step_post_hook(tell)


def _threshold(like: torch.Tensor, own: float, is_outside: torch.Tensor) -> torch.Tensor:
    """Return prime-rl's own threshold, or one that every difference of probabilities exceeds."""
    return torch.full_like(like, own).masked_fill(is_outside, -math.inf)


def _check_keys(settings: dict[str, Any]) -> None:
    known = sorted({*STOCK_KEYS, *TABLE_KEYS, *FILE_KEYS})
    for key in settings:
        if key not in known:
            raise ConfigError(required(key, "a setting that is not known", f"one of {', '.join(known)}"))
    size = settings.get("context_parallel", 1)
    if not isinstance(size, int) or size < 1 or distributed_rank()[1] % size:
        raise ConfigError(required("context_parallel", size, f"a divisor of {distributed_rank()[1]}, the ranks"))


def _client(settings: dict[str, Any], rank: int, world_size: int) -> BoundsClient | None:
    """Return a client that the table describes; None: the process has one, or the environment describes it."""
    described = sorted(set(FILE_KEYS) & set(settings) - {"run"})
    if not described or process_client() is not None:
        return None
    if os.environ.get(CONFIG_VARIABLE):
        came = f"a file, and {', '.join(described)} in [trainer.loss.kwargs]"
        raise ConfigError(required(CONFIG_VARIABLE, came, "one of the two"))
    own = {name: value for name, value in settings.items() if name in FILE_KEYS or name in RULE_FIELDS}
    own.setdefault("min_reference", MIN_REFERENCE)
    own["run"] = os.environ.get(RUN_VARIABLE) or own.get("run")
    if os.environ.get(ADDRESS_VARIABLE):
        own.pop("address", None)
    return connect(**own, rank=rank, world_size=world_size)


# Made at the first loss, in the process that computes it.
_loss: list[StepwiseLoss] = []


def sat_loss(inputs: LossInputs, **settings: Any) -> LossOutputs:  # noqa: ANN401 - what a TOML table holds
    """Compute prime-rl's default loss with SAT's intervals: ``import_path = "satwatch.hooks.prime_rl.sat_loss"``.

    Args:
        inputs: one sequence, prime-rl's own.
        settings: ``[trainer.loss.kwargs]``: the default loss's settings, the rule's, and the client's.

    Returns:
        What the default loss returns; once a step with ``satwatch/...`` of the step before beside its metrics.

    Raises:
        ConfigError: at the first call: a setting that is not known or can't be meant, or no run.
        SatwatchError: only with ``on_failure = "raise"``.
    """
    if not _loss:
        _loss.append(StepwiseLoss(settings))
    return _loss[0](inputs)
