"""Microbatches as verl's engines hand them to ``ppo_loss``: nested tensors of the responses, and what is no tensor."""

from __future__ import annotations

import math

import torch
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorData, NonTensorStack
from verl.trainer.config import RolloutCorrectionConfig
from verl.utils import tensordict_utils
from verl.workers.config import FSDPActorConfig
from verl.workers.config.actor import PolicyLossConfig

PROMPT_LENGTHS = (3, 4, 1, 2)
RESPONSE_LENGTHS = (7, 2, 5, 6)


def jagged(rows):
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)


def actor_config(loss_mode="sat", *, correction=None, **fields):
    fields = {"ppo_micro_batch_size_per_gpu": 1, "rollout_n": 1, "use_kl_loss": False} | fields
    policy_loss = PolicyLossConfig(
        loss_mode=loss_mode, rollout_correction=RolloutCorrectionConfig(**(correction or {"rollout_is": None}))
    )
    return FSDPActorConfig(strategy="fsdp", policy_loss=policy_loss, **fields)


def rows_like(lengths, scale=1.0, seed=0, dtype=torch.float64, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    return [mean + scale * torch.randn(n, generator=generator, dtype=dtype) for n in lengths]


class Batch:
    """One microbatch: rows of log pi_now, of log mu, of the trainer's old log-probs, of advantages and of the mask."""

    def __init__(self, lengths=RESPONSE_LENGTHS, seed=0, dtype=torch.float64, spread=0.4, recomputed=False):
        prompts = PROMPT_LENGTHS[: len(lengths)] if len(lengths) <= len(PROMPT_LENGTHS) else (2,) * len(lengths)
        self.prompts, self.lengths = prompts, lengths
        self.now = rows_like(lengths, 0.5, seed, dtype, mean=-2.0)
        noise = rows_like(lengths, spread, seed + 1, dtype)
        # Heavy in its tail, as mismatch is.
        self.mu = [now - torch.sign(n) * n**2 for now, n in zip(self.now, noise, strict=True)]
        drift = rows_like(lengths, 0.05, seed + 2, dtype)
        self.old = [now - d for now, d in zip(self.now, drift, strict=True)] if recomputed else self.mu
        # The far tokens are pushed further out, where an interval bites.
        self.advantages = [
            torch.where(n.abs() > 0.5, torch.sign(n) * a.abs(), a)
            for n, a in zip(noise, rows_like(lengths, 1.0, seed + 3, dtype), strict=True)
        ]
        self.mask = [torch.ones(n, dtype=dtype) for n in lengths]
        self.has_behavior = True
        self.weights = None
        self.others = {}

    def leaves(self):
        """Rows of the whole sequences, whose log-probs verl shifts by one to the left; gradients end here."""
        rows = []
        for prompt, now in zip(self.prompts, self.now, strict=True):
            row = torch.full((prompt + len(now),), -9.0, dtype=now.dtype)
            row[prompt - 1 : -1] = now
            rows.append(row.requires_grad_())
        return rows

    def data(self, dp_size=1, **meta):
        fields = {
            "prompts": jagged(torch.ones(n, dtype=torch.long) for n in self.prompts),
            "responses": jagged(torch.ones(n, dtype=torch.long) for n in self.lengths),
            "response_mask": jagged(self.mask),
            "old_log_probs": jagged(self.old),
            "advantages": jagged(self.advantages),
        }
        if self.has_behavior:
            fields["rollout_log_probs"] = jagged(self.mu)
        if self.weights is not None:
            fields["rollout_is_weights"] = jagged(self.weights)
        for name, values in self.others.items():
            fields[name] = NonTensorStack.from_list([NonTensorData(value) for value in values])
        data = TensorDict(fields, batch_size=[len(self.lengths)])
        tokens = int(sum(mask.sum() for mask in self.mask))
        meta = {"batch_num_tokens": tokens, "global_batch_size": len(self.lengths), "max_response_len": -1} | meta
        for key, value in ({"dp_size": dp_size} | meta).items():
            tensordict_utils.assign_non_tensor_data(data, key, value)
        return data

    def run(self, ppo_loss, config, **meta):
        """Run verl's loss, and return it with its metrics and the gradient in each response token."""
        leaves = self.leaves()
        loss, metrics = ppo_loss(config=config, model_output={"log_probs": jagged(leaves)}, data=self.data(**meta))
        loss.backward()
        gradient = [leaf.grad[p - 1 : -1] for p, leaf in zip(self.prompts, leaves, strict=True)]
        return loss.detach(), metrics, gradient


def sat_bounds(scores, *, alpha=0.9, eps_low=0.2, eps_high=0.2, floor=0.0):
    """Return the rule's intervals of a flat list of scores, by the letter of its definition."""
    finite_first = sorted(abs(s) for s in scores if not math.isnan(s))
    n = len(finite_first)
    k = next(k for k in range(1, n + 1) if k / n >= alpha)
    q = max(finite_first[k - 1], floor)
    out = []
    for s in scores:
        factor = 1 / (1 + (abs(s) / q) ** 2) if q > 0 and abs(s) > q else 1.0
        out.append((1 - eps_low * (factor if s < 0 else 1.0), 1 + eps_high * (factor if s > 0 else 1.0)))
    return out


def expected(batch, mode="token-mean", *, eps_low=0.2, eps_high=0.2, dual=3.0, scale=None, floor=0.0):
    """Return the loss and its gradient by token, in plain Python floats: PPO with dual clip, in SAT's interval."""
    active = [(i, t) for i, mask in enumerate(batch.mask) for t in range(len(mask)) if mask[t]]
    d = {(i, t): float(batch.now[i][t] - batch.mu[i][t]) for i, t in active}
    intervals = sat_bounds(list(d.values()), eps_low=eps_low, eps_high=eps_high, floor=floor)
    bounds = dict(zip(active, intervals, strict=True))
    value, slope = {}, {}
    for at in active:
        advantage = float(batch.advantages[at[0]][at[1]])
        ratio = math.exp(min(max(d[at], -20.0), 20.0))
        low, high = bounds[at]
        inside = low <= ratio <= high
        plain, clipped = -advantage * ratio, -advantage * min(max(ratio, low), high)
        value[at] = max(plain, clipped)
        passes = plain >= clipped and (plain > clipped or inside)
        if advantage < 0 and value[at] > -advantage * dual:
            value[at], passes = -advantage * dual, False
        slope[at] = -advantage * ratio if passes else 0.0
    rows = [[at for at in active if at[0] == i] for i in range(len(batch.lengths))]
    sequences, tokens = len(rows), len(active)
    share = {
        "token-mean": lambda row: 1 / tokens,
        "token-sum": lambda row: 1.0,
        "seq-mean-token-sum": lambda row: 1 / sequences,
        "seq-mean-token-mean": lambda row: 1 / (len(row) + 1e-8) / sequences,
        "seq-mean-token-sum-norm": lambda row: 1 / sequences / (scale or max(batch.lengths)),
    }[mode]
    loss = sum(share(row) * value[at] for row in rows for at in row)
    gradient = [torch.zeros(n, dtype=torch.float64) for n in batch.lengths]
    for row in rows:
        for i, t in row:
            gradient[i][t] = share(row) * slope[i, t]
    return loss, gradient
