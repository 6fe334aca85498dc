"""SkyRL: policy losses that run SkyRL's own with SAT's radii in ``eps_clip_low`` and ``eps_clip_high``.

Sends log pi_now - log mu, ``log_probs`` minus ``rollout_logprobs``. The ratio of SkyRL's losses is pi_now / pi_old.
Guarded, they are given mu as the old log-probs, so that what is clipped is what was sent, and truncated importance
sampling is left out: that ratio has its correction in it. Masks by pi_old / mu stay. Watched, nothing is changed.
"""

from __future__ import annotations

import copy
import importlib
import math
import sys
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from satwatch.hooks.core import ranks
from satwatch.hooks.core.attachment import Attachment
from satwatch.hooks.core.metrics import ALWAYS_RETURNED, PREFIX, TOKEN_COUNTS
from satwatch.hooks.core.notices import Notices
from satwatch.types import Level

if TYPE_CHECKING:
    from skyrl.train.config import AlgorithmConfig

Loss: TypeAlias = tuple[torch.Tensor, dict[str, float]]

# SkyRL reduces metrics over ranks name by name: a name that one rank has and another has not would leave both waiting.
METRICS: Final = (*TOKEN_COUNTS, "hook_calls_per_step", *ALWAYS_RETURNED)

_NO_BEHAVIOR: Final = (
    "no rollout_logprobs: there is nothing to compare, so nothing is sent and the loss is the stock one. "
    "generator.sampling_params.logprobs asks the engine for them."
)
_OTHER_RADII: Final = "other clip radii than at the first loss: nothing is sent, and the loss is the stock one."
_NO_TIS: Final = (
    "tis_ratio_type is left out of the guarded loss: the engine's own log-probs are its denominator, and the "
    "weight would correct a second time."
)


class RegisteredLoss:
    """One of SkyRL's losses, with satwatch beside it; it attaches at its first call, in the worker."""

    def __init__(self, name: str, level: Level) -> None:
        """Name it as SkyRL's registry does, and say what its ratio is taken over."""
        self._name = name
        self._level: Level = level
        self._stock: Any = None
        self._attachment: Attachment | None = None
        self._notices = Notices("SkyRL")
        self._metrics: dict[str, float] = {}

    def __call__(
        self,
        log_probs: torch.Tensor,
        old_log_probs: torch.Tensor | None,
        advantages: torch.Tensor,
        config: AlgorithmConfig,
        loss_mask: torch.Tensor | None,
        rollout_logprobs: torch.Tensor | None,
    ) -> Loss:
        """Compute the loss as SkyRL does."""
        own, stock = copy.copy(config), self._loss()
        own.policy_loss_type = self._name
        attachment = self._attached(config, rollout_logprobs)
        if attachment is None or rollout_logprobs is None:
            untouched: Loss = stock(
                log_probs, old_log_probs, advantages, config=own, loss_mask=loss_mask, rollout_logprobs=rollout_logprobs
            )
            return untouched
        guards, masked = attachment.guards, dict[str, float]()
        radii = attachment.ask(log_probs, rollout_logprobs, decoupled=not guards, mask=loss_mask, advantage=advantages)
        if guards:
            trainers = log_probs.detach() if old_log_probs is None else old_log_probs
            behavior = where_known(rollout_logprobs, trainers)
            loss_mask, masked = self._masked(config, trainers, rollout_logprobs, loss_mask)
            # Without rollout log-probs SkyRL corrects nothing.
            old_log_probs, rollout_logprobs = behavior, None
            own.eps_clip_low, own.eps_clip_high = radii
        loss, metrics = stock(
            log_probs, old_log_probs, advantages, config=own, loss_mask=loss_mask, rollout_logprobs=rollout_logprobs
        )
        return loss, {**metrics, **masked, **self._drained(attachment)}

    def _loss(self) -> Any:  # noqa: ANN401 - SkyRL's
        """Return the registered loss; looked up once, since with Ray that is a call to an actor."""
        if self._stock is None:
            losses = importlib.import_module("skyrl.backends.skyrl_train.utils.ppo_utils")
            self._stock = losses.PolicyLossRegistry.get(self._name)
        return self._stock

    def _attached(self, config: AlgorithmConfig, rollout_logprobs: torch.Tensor | None) -> Attachment | None:
        """Return the attachment; None where there is nothing to compare, or radii have come that are not its own."""
        if rollout_logprobs is None:
            self._notices.give(_NO_BEHAVIOR)
            return None
        if self._attachment is None:
            rank, world_size, sends = place()
            self._attachment = Attachment(
                "SkyRL",
                eps_low=config.eps_clip_low,
                eps_high=config.eps_clip_high,
                level=self._level,
                rank=rank,
                world_size=world_size,
                sends=sends,
            )
        rule = self._attachment.rule
        if (config.eps_clip_low, config.eps_clip_high) == (rule.eps_low, rule.eps_high):
            return self._attachment
        self._notices.give(_OTHER_RADII)
        return None

    def _masked(
        self,
        config: AlgorithmConfig,
        old_log_probs: torch.Tensor,
        rollout_logprobs: torch.Tensor,
        loss_mask: torch.Tensor | None,
    ) -> tuple[torch.Tensor | None, dict[str, float]]:
        """Return the mask that SkyRL's off-policy correction leaves of a mask, and its metrics; not its weights."""
        corrections = importlib.import_module("skyrl.backends.skyrl_train.utils.off_policy_correction_utils")
        weights, metrics, loss_mask = corrections.compute_off_policy_correction(
            old_log_probs, rollout_logprobs, loss_mask, config.off_policy_correction
        )
        if weights is not None:
            self._notices.give(_NO_TIS)
        return loss_mask, metrics

    def _drained(self, attachment: Attachment) -> dict[str, float]:
        """Return every metric's latest value, NaN before the first: a microbatch without tokens has none of its own."""
        self._metrics |= attachment.drain()
        return {PREFIX + name: self._metrics.get(PREFIX + name, math.nan) for name in METRICS}


def where_known(rollout_logprobs: torch.Tensor, old_log_probs: torch.Tensor) -> torch.Tensor:
    """Return log mu of the tokens that have one, and the trainer's own log-prob of the others, such as padding."""
    return torch.where(rollout_logprobs.isfinite(), rollout_logprobs, old_log_probs)


def place() -> tuple[int, int, bool]:
    """Return the data-parallel rank, how many there are, and whether this process speaks for those of its tokens."""
    ulysses = sys.modules.get("skyrl.backends.skyrl_train.distributed.ulysses.utils")
    # A sequence-parallel group is consecutive ranks, and each gathers whole sequences.
    return ranks.place(1 if ulysses is None else ulysses.get_ulysses_sequence_parallel_world_size())


_regular = RegisteredLoss("regular", "token")
_gspo = RegisteredLoss("gspo", "sequence")


def sat_loss(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor | None,
    advantages: torch.Tensor,
    config: AlgorithmConfig,
    loss_mask: torch.Tensor | None = None,
    rollout_logprobs: torch.Tensor | None = None,
) -> Loss:
    """Compute SkyRL's ``regular`` loss with SAT's radii: ``PolicyLossRegistry.register("sat", sat_loss)``.

    Args:
        log_probs: log pi of the policy in the forward pass, (B, T).
        old_log_probs: the trainer's own before the update, (B, T).
        advantages: (B, T), scaled by SkyRL for its sum.
        config: SkyRL's own; a copy carries the radii.
        loss_mask: the active tokens, (B, T).
        rollout_logprobs: log mu, what the engine gave them, (B, T); None: the stock loss, and nothing is sent.

    Returns:
        What the stock loss returns, with ``satwatch/...`` beside its metrics.

    Raises:
        ConfigError: at the first call: no run, or a client whose radii or level are not SkyRL's.
        SatwatchError: only with ``on_failure = "raise"``.
    """
    return _regular(log_probs, old_log_probs, advantages, config, loss_mask, rollout_logprobs)


def sat_gspo_loss(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor | None,
    advantages: torch.Tensor,
    config: AlgorithmConfig,
    loss_mask: torch.Tensor | None = None,
    rollout_logprobs: torch.Tensor | None = None,
) -> Loss:
    """Compute SkyRL's ``gspo`` loss with SAT's radii at sequence level; arguments and result as :func:`sat_loss`."""
    return _gspo(log_probs, old_log_probs, advantages, config, loss_mask, rollout_logprobs)
