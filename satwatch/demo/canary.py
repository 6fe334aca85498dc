"""The demo's canary: a few solved prompts that learner and engine both score."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from satwatch.demo.policy import Policy
from satwatch.demo.task import Task
from satwatch.types import Canary

SEQUENCES: Final = 16


def task_canary(task: Task) -> Canary:
    """Return the canary of a task; the same in every process."""
    prompts = task.draw_prompts(SEQUENCES, torch.Generator().manual_seed(0))
    solved = torch.cat([prompts, task.solve(prompts[:, : task.digits])], dim=1)
    return Canary.of(solved.tolist())


@torch.no_grad()
def canary_logprobs(policy: Policy, canary: Canary, temperature: float = 1.0) -> Tensor:
    """Score a canary.

    Args:
        policy: the weights that score.
        canary: sequences of one length.
        temperature: that the logits are divided by.

    Returns:
        The log-prob of every token but each sequence's first, nats, float32, shape (sequences, length - 1).
    """
    tokens = torch.tensor(canary.sequences)
    distribution: Tensor = (policy(tokens[:, :-1]) / temperature).log_softmax(dim=-1)
    return distribution.gather(2, tokens[:, 1:, None]).squeeze(2)
