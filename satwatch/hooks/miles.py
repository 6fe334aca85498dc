"""miles: a custom loss that runs the stock policy loss with SAT's radii in ``eps_clip`` and ``eps_clip_high``.

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


class MilesLoss(SlimeFamilyLoss):
    """miles' policy loss, on Megatron or FSDP."""

    trainer = "miles"

    def losses(self) -> ModuleType:
        """Return miles' losses."""
        return importlib.import_module("miles.backends.training_utils.loss_hub.losses")

    def slices(self) -> ModuleType:
        """Return miles' context-parallel slices."""
        return importlib.import_module("miles.backends.training_utils.cp_utils")

    def place(self) -> Place:
        """Ask miles; the loss runs on the last pipeline stage only."""
        state = importlib.import_module("miles.backends.training_utils.parallel").get_parallel_state()
        # Replicas that are trained apart, and only add up their gradients, are data-parallel ranks too.
        before, replicas = state.indep_dp.rank, state.indep_dp.size
        data, tokens = (
            (before * group.size + group.rank, replicas * group.size) for group in (state.intra_dp, state.intra_dp_cp)
        )
        return Place(data, tokens, (state.cp.rank, state.cp.size), leads=state.tp.rank == 0)

    def spans(self, args: Namespace, batch: Batch) -> list[tuple[Any, ...]]:
        """Return the total and the response length of each sample, and how its batch is laid out."""
        lengths = batch["total_lengths"], batch["response_lengths"]
        padded = batch.get("max_seq_lens") or [None] * len(lengths[0])
        return [(total, response, args.qkv_format, to) for total, response, to in zip(*lengths, padded, strict=True)]

    def log_probs(self, scores: Any) -> list[torch.Tensor]:  # noqa: ANN401 - miles'
        """Return the log-probs of miles' dict."""
        found: list[torch.Tensor] = scores["log_probs"]
        return found


_loss = MilesLoss()


def sat_loss(args: Namespace, batch: Batch, logits: torch.Tensor, sum_of_sample_mean: Reducer) -> Loss:
    """Compute miles' policy loss with SAT's clip radii: ``--custom-loss-function-path satwatch.hooks.miles.sat_loss``.

    Args:
        args: miles' own; a copy carries the radii.
        batch: per-sample lists of ``log_probs``, ``rollout_log_probs``, ``advantages``, ``loss_masks``, and lengths.
        logits: (1, T, V), or (B, T, V) with ``--qkv-format bshd``.
        sum_of_sample_mean: miles' own normaliser.

    Returns:
        What the stock loss returns, with ``satwatch/...`` beside its metrics.

    Raises:
        ConfigError: at the first call: no run, other radii or level than miles', or a loss that can't be guarded.
    """
    return _loss(args, batch, logits, sum_of_sample_mean)
