"""OpenRLHF's own ``ActorPPOTrainer`` on a CPU: a tiny random Llama, and rollouts that vLLM could have sampled.

The trainer, its replay buffer, its model wrapper and its loss are OpenRLHF's. What stands for DeepSpeed does what its
engine does on one rank: backward, and a step.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

import torch
from openrlhf.models import Actor
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ray import ppo_actor
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 64
PROMPT = 3
LENGTHS = (12, 9, 11, 8, 10, 12, 9, 11)
MICROBATCH = 4
# What has vLLM return log-probs, and drops no tokens.
CLIPS = {"is_correction_level": "token", "is_correction_mode": "clip"}


class Strategy:
    """One rank."""

    ring_attn_group, accumulated_gradient = None, 1

    def __init__(self, args):
        self.args = args

    def is_rank_0(self):
        return False  # which spares the progress bar

    def all_reduce(self, data):
        return data

    def backward(self, loss, model, optimizer):
        loss.backward()

    def optimizer_step(self, optimizer, model, scheduler, name):
        optimizer.step()
        optimizer.zero_grad()

    def get_grad_norm(self, model):
        return 0.0


def arguments(correction, is_async=True, **actor):
    """Return what OpenRLHF's command line would give, as far as the trainer looks."""
    off = {"is_correction_level": "off", "is_correction_mode": "mask", "is_correction_gating": "ratio"}
    actor = {
        "eps_clip_low_high": [0.2, 0.28],
        "dual_clip": None,
        "loss_agg_mode": "token-mean",
        "policy_loss_type": "ppo",
        "aux_loss_coef": 0.0,
        "entropy_coef": None,
    } | actor
    return SimpleNamespace(
        actor=SimpleNamespace(**actor),
        algo=SimpleNamespace(
            advantage=SimpleNamespace(**(off | {"is_correction_threshold": [0.5, 5.0]} | correction)),
            kl=SimpleNamespace(use_loss=False, init_coef=0.0, estimator="k2", unbiased_gradient=False),
        ),
        ds=SimpleNamespace(packing_samples=False, tensor_parallel_size=1),
        train=SimpleNamespace(max_epochs=1, dynamic_batch_enable=False, colocate_all=False, async_enable=is_async),
        vllm=SimpleNamespace(sync_backend="nccl"),
    )


@contextmanager
def without_cuda(device=0):
    """Answer what OpenRLHF asks of CUDA, which is not here."""
    with (
        mock.patch.object(torch.cuda, "current_device", lambda: device),
        mock.patch.object(torch.cuda, "synchronize", lambda: None),
        mock.patch.object(ppo_actor, "torch_dist_barrier_and_cuda_sync", lambda: None),
    ):
        yield


def make_trainer(correction=CLIPS, **settings):
    """Make a trainer; the same weights each time."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    actor = Actor(LlamaForCausalLM(config))
    actor.is_vlm = actor.packing_samples = False  # which it would read off a path
    optimizer = torch.optim.AdamW(actor.parameters(), lr=1e-2)
    with without_cuda():
        return ppo_actor.ActorPPOTrainer(
            Strategy(arguments(correction, **settings)),
            actor,
            ema_model=None,
            actor_optim=optimizer,
            actor_scheduler=torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0),
            micro_train_batch_size=MICROBATCH,
            dataloader_pin_memory=False,
        )


def fill(trainer, drift=0.1, seed=0, has_rollout=True):
    """Put a batch of rollouts into the trainer's buffer, scored by the trainer; return it."""
    draw = torch.Generator().manual_seed(seed)
    width = max(LENGTHS)
    attention = (torch.arange(width) < torch.tensor(LENGTHS)[:, None]).long()
    mask = attention[:, 1:].bool() & (torch.arange(1, width) >= PROMPT)
    sequences = torch.randint(3, VOCABULARY, (len(LENGTHS), width), generator=draw) * attention
    with torch.no_grad():
        old = trainer.actor(sequences, mask, attention_mask=attention)
    noise = drift * torch.randn(old.shape, generator=draw)
    batch = Experience(
        sequences=sequences,
        attention_mask=attention,
        action_mask=mask,
        action_log_probs=old,
        rollout_log_probs=torch.where(mask, old + noise, 0.0) if has_rollout else None,
        advantages=torch.randn(len(LENGTHS), 1, generator=draw).expand(mask.shape) * mask,
        returns=torch.zeros(mask.shape),
        rewards=torch.zeros(len(LENGTHS)),
        total_length=torch.tensor(LENGTHS),
        response_length=mask.sum(1),
        info={},
    )
    trainer.replay_buffer.append(batch)
    return batch


def train(trainer, seed=0):
    """Train on what is in the buffer, as a ``PolicyModelActor`` does; return the status that it would report."""
    torch.manual_seed(seed)  # the order of the rollouts
    with without_cuda("cpu"):
        return trainer.ppo_train(kl_ctl=0.0)


def weights(trainer):
    """Return a copy of the actor's weights."""
    return {name: value.clone() for name, value in trainer.actor.state_dict().items()}
