"""The learner: GRPO steps whose clip bounds come from the sidecar.

A step's loss is the mean over its response tokens of -min(r A, clip(r, interval) A), with r = pi / mu the ratio of the
policy before the update to the engine's own sampling probabilities, and A the advantage relative to the group. A token
(at sequence level, a response) whose ratio is NaN adds nothing to the gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from satwatch.client import BoundsClient, ClientStats
from satwatch.demo.config import DemoConfig
from satwatch.demo.engine import RolloutBatch
from satwatch.demo.policy import Policy, initial_policy, response_distribution, score
from satwatch.demo.probe import ENGINE
from satwatch.demo.summary import StepRecord
from satwatch.demo.task import TASKS
from satwatch.demo.weights import PastWeights
from satwatch.hooks import ClipRadii
from satwatch.hooks.torch import clip_radii
from satwatch.sat import ClipBounds

ADAM_BETAS = (0.9, 0.95)
MAX_GRADIENT_NORM = 1.0


def group_advantages(reward: Tensor, samples: int) -> Tensor:
    """Return each response's reward relative to its group: (R - mean) / standard deviation.

    Args:
        reward: shape (B,), a prompt's samples together.
        samples: responses a prompt; divides B.

    Returns:
        float32, shape (B,); 0 throughout a group whose rewards are all equal.
    """
    groups = reward.double().view(-1, samples)
    centered = groups - groups.mean(dim=1, keepdim=True)
    deviation = groups.std(dim=1, correction=0, keepdim=True)
    # Told apart by the rewards themselves: the mean of equal numbers can differ from them in the last bit.
    flat = groups.amax(dim=1, keepdim=True) == groups.amin(dim=1, keepdim=True)
    return (centered / deviation).masked_fill(flat, 0.0).float().flatten()


@dataclass(frozen=True, slots=True)
class _Pending:
    """A microbatch whose bounds are on the way."""

    log_ratio: Tensor  # (B, response), with gradient
    advantage: Tensor  # (B, 1)
    entropy: Tensor
    radii: ClipRadii


def clipped_objective(log_ratio: Tensor, advantage: Tensor, eps_low: Tensor, eps_high: Tensor) -> Tensor:
    """Return PPO's objective of every ratio: min(r A, clip(r, 1 - eps_low, 1 + eps_high) A).

    Args:
        log_ratio: log r, (B, T), or (B, 1) for one ratio a response.
        advantage: A, (B, 1).
        eps_low: the lower clip radius of every ratio.
        eps_high: the upper clip radius of every ratio.
    """
    ratio = log_ratio.exp()
    return torch.min(ratio * advantage, ratio.clamp(1 - eps_low, 1 + eps_high) * advantage)


class Learner:
    """The policy and its optimizer.

    Args:
        config: the run.
        policy: version 0; trained in place.
        client: where clip bounds come from.
    """

    def __init__(self, config: DemoConfig, policy: Policy, client: BoundsClient) -> None:
        self.policy = policy
        self._config = config
        self._client = client
        self._optimizer = torch.optim.Adam(policy.parameters(), lr=config.learning_rate, betas=ADAM_BETAS)
        self._past = PastWeights(initial_policy(TASKS[config.task], config.seed))
        self._past.keep(0, policy)

    def step(self, batch: RolloutBatch) -> StepRecord:
        """Train on one batch: policy version ``batch.number`` becomes the next one.

        The answer to a microbatch travels while the next one's forward pass runs, or the one before's backward pass.

        Args:
            batch: the verified responses of step ``batch.number``.

        Returns:
            The step's record.
        """
        before = self._client.stats
        reference = self._reference_logprob(batch)
        pending = [self._send(batch, part, reference) for part in range(self._config.microbatches)]
        losses = [self._backward(p) for p in pending]
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), MAX_GRADIENT_NORM)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._past.keep(batch.number + 1, self.policy)
        self._report(batch, math.fsum(losses))
        return self._record(batch, pending, before)

    def _report(self, batch: RolloutBatch, loss: float) -> None:
        """Tell the sidecar what the step came to, and that no more batches of it follow."""
        lengths = [batch.behavior_logprob.shape[1]] * len(batch.tokens)
        self._client.report(batch.number, reward=batch.reward, loss=loss, response_lengths=lengths)
        self._client.end_step(batch.number)

    def _reference_logprob(self, batch: RolloutBatch) -> Tensor | None:
        """Return log pi(l) of the response tokens, l the version that the batch names; None: not kept, or the present.

        The present one's comes with the forward pass.
        """
        version = int(batch.behavior_version[0])
        policy = None if version == batch.number else self._past.policy_of(version)
        if policy is None:
            return None
        tokens = torch.from_numpy(batch.tokens).long()
        return score(policy, tokens, TASKS[self._config.task].prompt_length, self._config.samples)

    def _send(self, batch: RolloutBatch, part: int, reference: Tensor | None) -> _Pending:
        config, prompt_length = self._config, TASKS[self._config.task].prompt_length
        size = len(batch.tokens) // config.microbatches
        rows = slice(part * size, (part + 1) * size)
        tokens = torch.from_numpy(batch.tokens[rows]).long()
        behavior_logprob = torch.from_numpy(batch.behavior_logprob[rows])
        advantage = group_advantages(torch.from_numpy(batch.reward[rows]), config.samples)[:, None]
        distribution = response_distribution(self.policy, tokens, prompt_length)
        logprob = distribution.gather(2, tokens[:, prompt_length:, None]).squeeze(2)
        is_present = bool((batch.behavior_version == batch.number).all())
        radii = clip_radii(
            logprob,
            behavior_logprob,
            client=self._client,
            advantage=advantage,
            reference_logprob=logprob.detach() if is_present else None if reference is None else reference[rows],
            policy_version=batch.number,
            # One a token: the engine takes no weights while it generates, so the response's is each token's.
            behavior_version=torch.from_numpy(batch.behavior_version[rows])[:, None].expand(logprob.shape),
            behavior_engine=ENGINE,
            step=batch.number,
            microbatch=part,
        )
        log_probs = distribution.detach()
        entropy = -(log_probs.exp() * log_probs).sum(dim=2).mean()
        return _Pending(logprob - behavior_logprob, advantage, entropy, radii)

    def _backward(self, pending: _Pending) -> float:
        """Add a microbatch's part to the gradient; return its part of the loss."""
        log_ratio, (eps_low, eps_high) = pending.log_ratio, pending.radii
        if self._config.level == "sequence":
            log_ratio = log_ratio.mean(dim=1, keepdim=True)
            eps_low, eps_high = pending.radii.per_sequence(torch.ones_like(pending.log_ratio))
        # Where d is NaN a constant stands, which has no gradient.
        log_ratio = log_ratio.masked_fill(log_ratio.isnan(), 0.0)
        objective = clipped_objective(log_ratio, pending.advantage, eps_low, eps_high)
        loss = -objective.mean() / self._config.microbatches
        loss.backward()
        return float(loss.detach())

    def _record(self, batch: RolloutBatch, pending: list[_Pending], before: ClientStats) -> StepRecord:
        stats, bounds = self._client.stats, [p.radii.bounds for p in pending]
        deviation = torch.cat([p.log_ratio.detach() for p in pending]).double().abs()
        answered = stats.bounds_from_sidecar > before.bounds_from_sidecar
        references = [float(b.quantile_reference) for b in bounds]
        return StepRecord(
            step=batch.number,
            reward=float(batch.reward.mean(dtype=np.float64)),
            entropy=float(torch.stack([p.entropy for p in pending]).mean()),
            quantile_reference=_mean([q for q in references if not math.isnan(q)]),
            log_ratio_abs_mean=float(deviation.nanmean()),
            tokens=deviation.numel(),
            gated_tokens=sum(int(b.gate.sum()) for b in bounds),
            gated_within_ppo=sum(map(self._count_within_ppo, pending, bounds)),
            version_lag=float((batch.number - batch.behavior_version).mean()),
            round_trip_seconds=stats.round_trip_seconds if answered else None,
            bounds_from_sidecar=stats.bounds_from_sidecar,
            bounds_from_fallback=stats.bounds_from_fallback,
            sidecar_up=stats.bounds_from_fallback == before.bounds_from_fallback,
        )

    def _count_within_ppo(self, pending: _Pending, bounds: ClipBounds) -> int:
        """Count the gated tokens whose ratio is not beyond PPO's own bound."""
        rule = self._config.rule
        score = pending.log_ratio.detach().double()
        if rule.level == "sequence":
            score = score.mean(dim=1, keepdim=True)
        ratio = score.exp()
        within = (1 - rule.eps_low <= ratio) & (ratio <= 1 + rule.eps_high)
        return int((bounds.gate & within).sum())


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
