"""What stands in for AReaL 1.0.4 where it is not installed, and a microbatch for it; the real one is tested on both.

``stock_loss`` has the arguments, the shapes and the behaviour of ``areal.trainer.ppo.actor.grpo_loss_fn``, in words of
its own: packed sequences with ``cu_seqlens``; log-probs, mask and advantages one place before their token.
"""

import itertools

import torch

from satwatch.sat import clip_bounds

EPS_LOW, EPS_HIGH = 0.2, 0.28


def stock_loss(
    logprobs,
    entropy,
    input_data,
    eps_clip,
    eps_clip_higher,
    c_clip,
    rejection_sampling=None,
    m2_threshold=None,
    importance_sampling_level="token",
    current_version=None,
    prox_logp_method="recompute",
    use_sapo_loss=False,
    use_decoupled_loss=False,
    vocab_min_logits=None,
    vocab_max_logits=None,
):
    behavior, advantage, mask = input_data["logprobs"], input_data["advantages"], input_data["loss_mask"].bool()
    proximal = input_data.get("prox_logp")
    if proximal is None:
        assert prox_logp_method == "loglinear"
        proximal = (behavior + logprobs.detach()) / 2
    if not proximal.isfinite().all():
        raise FloatingPointError
    d, moved = logprobs - proximal, (proximal - behavior).exp()
    if m2_threshold is not None:
        mask = mask & of_second_moment(proximal - behavior, mask, m2_threshold)
    tokens = mask.sum()
    if rejection_sampling is not None and rejection_sampling.action == "mask":
        mask = mask & (moved <= rejection_sampling.upper)
    if importance_sampling_level == "sequence":
        rows = [row.expand(n) for row, n in means(d, mask, input_data["cu_seqlens"])]
        d, advantage = (
            torch.cat(rows),
            torch.cat([row.expand(n) for row, n in means(advantage, mask, input_data["cu_seqlens"])]),
        )
    ratio = torch.where(mask, d.exp(), 0)
    clipped = ratio.clamp(1 - eps_clip, 1 + (eps_clip if eps_clip_higher is None else eps_clip_higher))
    loss = torch.maximum(-advantage * ratio, -advantage * clipped)
    if c_clip is not None:
        loss = torch.minimum(loss, advantage.abs() * c_clip)
    if rejection_sampling is not None:
        loss = loss * (moved if rejection_sampling.action == "mask" else moved.clamp(max=rejection_sampling.upper))
    return torch.where(mask, loss, 0).sum() / tokens


def of_second_moment(d, mask, threshold):
    """Drop the tokens farthest out until the mean square of the others is below a threshold; keep one."""
    ascending = (d[mask] ** 2).sort().values
    means_of_smallest = ascending.cumsum(0) / torch.arange(1, len(ascending) + 1)
    kept = int((means_of_smallest < threshold).sum().clamp(min=1))
    return d**2 <= ascending[kept - 1]


def means(values, mask, cu_seqlens):
    for start, end in itertools.pairwise(cu_seqlens.tolist()):
        active = mask[start:end]
        yield torch.where(active, values[start:end], 0).sum() / active.sum().clamp(min=1), end - start


LENGTHS = (8, 6, 9)


def batch(seed=0, garbage=0.0, dtype=torch.float64, **extra):
    """Return inputs of the loss and the log-probs of now: packed, with a tail, and a proximal policy between."""
    draw = torch.Generator().manual_seed(seed)

    def normal(scale):
        return torch.randn(sum(LENGTHS), generator=draw, dtype=torch.float64).to(dtype) * scale

    # Two tokens of prompt a sequence; a token's place is the one before it, so the last place is of no token.
    mask = torch.cat([(torch.arange(n) > 0) & (torch.arange(n) < n - 1) for n in LENGTHS])
    behavior = normal(0.3) - 2
    proximal = behavior + normal(0.05) + (normal(1) > 1.2) * normal(0.4)
    now = proximal + normal(0.05)
    advantage = normal(1).abs() * torch.sign(now - behavior)
    inputs = {
        "logprobs": torch.where(mask, behavior, garbage),
        "advantages": torch.where(mask, advantage, -garbage),
        "loss_mask": mask.float(),
        "cu_seqlens": torch.tensor([0, *LENGTHS]).cumsum(0),
        "versions": torch.cat([torch.where(torch.arange(n) < 2, -1, 5 + torch.arange(n) // 4) for n in LENGTHS]).int(),
    }
    inputs["prox_logp"] = inputs["logprobs"]
    if extra.pop("decoupled", False):
        inputs["prox_logp"] = torch.where(mask, proximal, -garbage)
    return inputs | extra, torch.where(mask, now, 3 * garbage).clone().requires_grad_()


def run(loss, inputs, now, **settings):
    arguments = {"eps_clip": EPS_LOW, "eps_clip_higher": EPS_HIGH, "c_clip": None, "current_version": 9} | settings
    value = loss(now, torch.zeros_like(now).detach(), inputs, **arguments)
    return value, torch.autograd.grad(value, now, retain_graph=True)[0]


def expected(inputs, now, level="token", quantile=0.9):
    """Return loss and gradient by SAT.md, of the clipped ratio of pi_now to mu, and the bounds."""
    mask, lengths = inputs["loss_mask"] != 0, inputs["cu_seqlens"].diff()
    d = (now - inputs["logprobs"]).detach()
    bounds = clip_bounds(
        d, mask=mask, eps_low=EPS_LOW, eps_high=EPS_HIGH, level=level, sequence_lengths=lengths, quantile=quantile
    )
    low, high = bounds.low[mask], bounds.high[mask]
    log_ratio, advantage = (now - inputs["logprobs"])[mask], inputs["advantages"][mask]
    if level == "sequence":
        rows = torch.arange(len(lengths)).repeat_interleave(lengths)[mask]
        log_ratio, advantage = (
            torch.stack([values[rows == row].mean() for row in range(len(lengths))])[rows]
            for values in (log_ratio, advantage)
        )
    ratio = log_ratio.exp()
    loss = -torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage).mean()
    return loss, torch.autograd.grad(loss, now, retain_graph=True)[0], bounds


def close(one, other, rtol=1e-9):
    return torch.allclose(one.double(), other.double(), rtol=rtol, atol=rtol / 1000)
