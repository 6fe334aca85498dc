"""What stands in for OpenRLHF where it is not installed, and a microbatch for it; the real one is tested on both.

The losses have the arguments, the shapes and the behaviour of ``openrlhf.models.PolicyLoss``, in words of their own: of
0.11.2, and of 0.11.0, whose correction had other names.
"""

import torch
from torch import nn

from satwatch.sat import clip_bounds

EPS_LOW, EPS_HIGH = 0.2, 0.28


class PolicyLoss(nn.Module):
    """OpenRLHF 0.11.2's."""

    def __init__(
        self,
        clip_eps_low=EPS_LOW,
        clip_eps_high=EPS_HIGH,
        dual_clip=None,
        token_level_loss=True,
        policy_loss_type="ppo",
        is_correction_level="off",
        is_correction_mode="mask",
        is_correction_gating="ratio",
        is_correction_threshold=(0.5, 5.0),
    ):
        super().__init__()
        self.clip_eps_low, self.clip_eps_high, self.dual_clip = clip_eps_low, clip_eps_high, dual_clip
        self.token_level_loss = token_level_loss and policy_loss_type != "gspo"
        self.policy_loss_type = policy_loss_type
        self.is_correction_level, self.is_correction_mode = is_correction_level, is_correction_mode
        self.is_correction_gating, self.is_correction_threshold = is_correction_gating, is_correction_threshold

    def forward(
        self,
        log_probs,
        old_log_probs,
        advantages,
        action_mask=None,
        rollout_log_probs=None,
        dp_size=1,
        batch_num_tokens=None,
        global_batch_size=None,
    ):
        is_gspo, corrects = self.policy_loss_type == "gspo", self.corrects()
        if is_gspo:
            other = rollout_log_probs if corrects else old_log_probs
            ratio = row_means(log_probs - other, action_mask).exp()[:, None] * action_mask
        else:
            ratio = (log_probs - old_log_probs).clamp(-20, 20).exp()
        gain = ratio * advantages
        clipped = ratio.clamp(1 - self.clip_eps_low, 1 + self.clip_eps_high) * advantages
        worst = torch.minimum(gain, clipped)
        if self.dual_clip is not None:
            worst = torch.where(advantages < 0, torch.maximum(worst, self.dual_clip * advantages), worst)
        loss, kl, filtered = -worst, None, None
        if corrects and not is_gspo:
            weight, filtered = self.weight(old_log_probs - rollout_log_probs, action_mask)
            loss, kl = weight * loss, mean(rollout_log_probs - old_log_probs, action_mask)
        if self.token_level_loss:
            loss = (loss * action_mask).sum() / (batch_num_tokens or action_mask.sum()) * dp_size
        else:
            loss = row_means(loss, action_mask).sum() / (global_batch_size or len(action_mask)) * dp_size
        clip_ratio = mean((clipped < gain).float(), action_mask)
        return self.report(loss, clip_ratio, mean((old_log_probs - log_probs).detach(), action_mask), kl, filtered)

    def corrects(self):
        return self.is_correction_level != "off"

    def weight(self, d, mask):
        low, high = self.is_correction_threshold
        by_row = self.is_correction_level == "seq"
        measured = (row_means(d, mask)[:, None] if by_row else d).exp()
        outside = (measured < low) | (measured > high)
        weight = measured.clamp(low, high) if self.is_correction_mode == "clip" else d.exp() * ~outside
        return weight, outside.float().mean() if by_row else mean(outside.float(), mask)

    def report(self, *numbers):
        return numbers


class OlderPolicyLoss(PolicyLoss):
    """OpenRLHF 0.11.0's."""

    def __init__(
        self,
        clip_eps_low=EPS_LOW,
        clip_eps_high=EPS_HIGH,
        dual_clip=None,
        token_level_loss=True,
        policy_loss_type="ppo",
        enable_vllm_is_correction=False,
        vllm_is_truncated_threshold=None,
        vllm_is_correction_type="tis",
    ):
        super().__init__(clip_eps_low, clip_eps_high, dual_clip, token_level_loss, policy_loss_type)
        for name in ("is_correction_level", "is_correction_mode", "is_correction_gating", "is_correction_threshold"):
            delattr(self, name)
        self.enable_vllm_is_correction = enable_vllm_is_correction
        self.vllm_is_truncated_threshold = vllm_is_truncated_threshold
        self.vllm_is_correction_type = vllm_is_correction_type

    def corrects(self):
        return self.enable_vllm_is_correction

    def weight(self, d, mask):
        low, high = self.vllm_is_truncated_threshold
        if self.vllm_is_correction_type == "tis":
            return d.exp().clamp(low, high), None
        measured = d.exp() if self.vllm_is_correction_type == "icepop" else row_means(d, mask)[:, None].exp()
        return d.exp() * ((measured >= low) & (measured <= high)), None

    def report(self, *numbers):
        return numbers[:4]


def mean(values, mask):
    return (values * mask).sum() / mask.sum()


def row_means(values, mask):
    return (values * mask).sum(1) / mask.sum(1).clamp(min=1)


def batch(seed=0, garbage=0.0, dtype=torch.float64):
    """Return the arguments of the loss: four padded rows, with a tail, and an old policy between engine and now."""
    draw = torch.Generator().manual_seed(seed)

    def normal(scale):
        return torch.randn(4, 10, generator=draw, dtype=torch.float64).to(dtype) * scale

    mask = torch.arange(10) < torch.tensor([10, 7, 9, 4])[:, None]
    behavior = normal(0.3) - 2
    old = behavior + normal(0.05) + (normal(1) > 1.2) * normal(0.4)
    now = old + normal(0.05)
    advantage = normal(1).abs() * torch.sign(now - behavior)
    return {
        "log_probs": torch.where(mask, now, 3 * garbage).clone().requires_grad_(),
        "old_log_probs": torch.where(mask, old, -garbage),
        "advantages": torch.where(mask, advantage, garbage),
        "action_mask": mask.to(dtype),
        "rollout_log_probs": torch.where(mask, behavior, garbage),
    }


def run(loss_fn, arguments):
    given = dict(arguments)
    # As OpenRLHF calls it: three by place, the others by name.
    out = loss_fn(given.pop("log_probs"), given.pop("old_log_probs"), given.pop("advantages"), **given)
    return out, torch.autograd.grad(out[0], arguments["log_probs"], retain_graph=True)[0]


def expected(arguments, level="token", quantile=0.9, reduction="token"):
    """Return loss and gradient by SAT.md, of the clipped ratio of pi_now to mu, and the bounds."""
    now, behavior, mask = (arguments[name] for name in ("log_probs", "rollout_log_probs", "action_mask"))
    d = now - behavior
    bounds = clip_bounds(d.detach(), mask=mask, eps_low=EPS_LOW, eps_high=EPS_HIGH, level=level, quantile=quantile)
    active = mask != 0
    if level == "sequence":
        means = torch.stack([row[where].mean() for row, where in zip(d, active, strict=True)])
        d = means[:, None].expand(d.shape)
    ratio, advantage = d.exp(), arguments["advantages"]
    gain = torch.minimum(ratio * advantage, ratio.clamp(bounds.low, bounds.high) * advantage)
    if reduction == "token":
        loss = -gain[active].mean()
    else:
        loss = -torch.stack([row[where].mean() for row, where in zip(gain, active, strict=True)]).mean()
    return loss, torch.autograd.grad(loss, now, retain_graph=True)[0], bounds


def close(one, other, rtol=1e-9):
    return torch.allclose(one.double(), other.double(), rtol=rtol, atol=rtol / 1000)
