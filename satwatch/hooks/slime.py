"""slime: a custom loss that runs the stock policy loss with SAT's radii in ``eps_clip`` and ``eps_clip_high``.

Sends log pi_old - log mu, ``log_probs`` minus ``rollout_log_probs``; :mod:`satwatch.hooks.slime_family` says when pi is
the policy in the forward pass instead. A guarded loss clips pi_now / mu; the stock loss, which watching leaves alone,
clips pi_now / pi_old unless ``--use-rollout-logprobs`` is given.
"""

from __future__ import annotations

import importlib
from argparse import Namespace
from types import ModuleType
from typing import Any

import torch

from satwatch.hooks.rollout_versions import log_rollout
from satwatch.hooks.slime_family import Batch, Loss, Place, Reducer, SlimeFamilyLoss

__all__ = ["log_rollout", "sat_loss"]


class SlimeLoss(SlimeFamilyLoss):
    """slime's policy loss on Megatron."""

    trainer = "slime"

    def losses(self) -> ModuleType:
        """Return slime's losses."""
        return importlib.import_module("slime.backends.megatron_utils.loss")

    def slices(self) -> ModuleType:
        """Return slime's context-parallel slices."""
        return importlib.import_module("slime.backends.megatron_utils.cp_utils")

    def place(self) -> Place:
        """Ask Megatron; the loss runs on the last pipeline stage only."""
        mpu = importlib.import_module("megatron.core.parallel_state")
        data, tokens = (
            (
                mpu.get_data_parallel_rank(with_context_parallel=context),
                mpu.get_data_parallel_world_size(with_context_parallel=context),
            )
            for context in (False, True)
        )
        context = mpu.get_context_parallel_rank(), mpu.get_context_parallel_world_size()
        return Place(data, tokens, context, leads=mpu.get_tensor_model_parallel_rank() == 0)

    def spans(self, args: Namespace, batch: Batch) -> list[tuple[Any, ...]]:
        """Return the total and the response length of each sample."""
        return list(zip(batch["total_lengths"], batch["response_lengths"], strict=True))

    def log_probs(self, scores: Any) -> list[torch.Tensor]:  # noqa: ANN401 - slime's
        """Return the log-probs of slime's pair of an empty tensor and a dict."""
        found: list[torch.Tensor] = scores[1]["log_probs"]
        return found


_loss = SlimeLoss()


def sat_loss(args: Namespace, batch: Batch, logits: torch.Tensor, sum_of_sample_mean: Reducer) -> Loss:
    """Compute slime's policy loss with SAT's clip radii: ``--custom-loss-function-path satwatch.hooks.slime.sat_loss``.

    Args:
        args: slime's own; a copy carries the radii.
        batch: per-sample lists of ``log_probs``, ``rollout_log_probs``, ``advantages``, ``loss_masks``, and lengths.
        logits: (1, T, V), float32.
        sum_of_sample_mean: slime's own normaliser.

    Returns:
        What the stock loss returns, with ``satwatch/...`` beside its metrics.

    Raises:
        ConfigError: at the first call: no run, other radii or level than slime's, or a loss that can't be guarded.
    """
    return _loss(args, batch, logits, sum_of_sample_mean)
