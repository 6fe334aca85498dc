"""AReaL's own FSDP actor on a CPU: a tiny random Qwen3, and trajectories that an older version of it sampled."""

from __future__ import annotations

import os

# Compiling the log-probs' kernel takes a minute here and changes nothing that is tested.
os.environ["TORCHDYNAMO_DISABLE"] = "1"
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")

import socket

import torch
from areal.api import FinetuneSpec
from areal.api.cli_args import MicroBatchSpec, OptimizerConfig, PPOActorConfig
from areal.engine.fsdp_engine import FSDPPPOActor
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 64
PROMPT = 3
VERSION = 7


def save_model(folder):
    """Write a model and its tokenizer, as AReaL wants them."""
    specials = {"pad_token": "<0>", "bos_token": "<1>", "eos_token": "<2>"}
    words = Tokenizer(models.WordLevel({f"<{i}>": i for i in range(VOCABULARY)}, unk_token="<0>"))
    PreTrainedTokenizerFast(tokenizer_object=words, **specials).save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return str(folder)


def config_of(path, **settings):
    """Return a configuration; two minibatches of two microbatches, unless told otherwise."""
    return PPOActorConfig(
        experiment_name="satwatch",
        trial_name="test",
        path=path,
        **{
            "backend": "fsdp:d1",
            "dtype": "float32",
            "attn_impl": "sdpa",
            "gradient_checkpointing": False,
            "optimizer": OptimizerConfig(lr=1e-2, warmup_steps_proportion=0.0),
            "mb_spec": MicroBatchSpec(n_mbs=2),
            "ppo_n_minibatches": 2,
            "kl_ctl": 0.0,
            "reward_scaling": 1.0,
            "reward_bias": 0.0,
        }
        | settings,
    )


def make_actor(path, kind=FSDPPPOActor, **settings):
    """Make an actor, ready to train."""
    if "MASTER_PORT" not in os.environ:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ["MASTER_PORT"] = str(free.getsockname()[1])
    actor = kind(config_of(path, **settings))
    actor.create_process_group()
    actor.initialize(None, FinetuneSpec(total_train_epochs=1, dataset_size=64, train_batch_size=8))
    actor.set_version(VERSION)
    return actor


def trajectories(actor, drift=0.1, seed=0, rows=8):
    """Return rollouts, as AReaL's workflows do: the engine's log-probs are the actor's and noise."""
    draw = torch.Generator().manual_seed(seed)
    out = []
    for row in range(rows):
        tokens = PROMPT + 5 + row % 4
        ids = torch.randint(3, VOCABULARY, (1, tokens), generator=draw)
        ones = torch.ones(1, tokens, dtype=torch.bool)
        is_response = torch.arange(tokens)[None] >= PROMPT
        out.append(
            {
                "input_ids": ids,
                "attention_mask": ones,
                "loss_mask": is_response.int(),
                "versions": torch.where(is_response, VERSION - 1 - torch.arange(tokens)[None] // 6, -1).int(),
                "rewards": torch.randn(1, generator=draw),
            }
        )
    scores = actor.compute_logp(out)
    for row, score in zip(out, scores, strict=True):
        moved = drift * torch.randn(score.shape, generator=draw)
        own = torch.roll(score, 1, -1)  # at the token itself, where an engine says it
        row["logprobs"] = torch.where(row["loss_mask"] != 0, own + moved, 0.0)
    return out


def update(actor, rollouts):
    """Train one step, as AReaL's trainer does; return the logged numbers."""
    rollouts = [dict(row) for row in rollouts]
    if actor.config.should_compute_prox_logp():
        for row, score in zip(rollouts, actor.compute_logp(rollouts), strict=True):
            row["prox_logp"] = score
    actor.ppo_update(actor.compute_advantages(rollouts))
    return actor.export_stats()


def weights(actor):
    """Return a copy of the actor's weights."""
    return {name: value.full_tensor().clone() for name, value in actor.model.state_dict().items()}
