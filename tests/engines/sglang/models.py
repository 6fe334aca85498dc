"""Tiny models with a byte-level tokenizer, made here: nothing is downloaded.

``qwen3-v0`` to ``qwen3-v6`` are one random model and what a trainer could have made of it: each version is the one
before it and a small step. ``moe-v0`` and ``moe-v1`` are the same of a mixture of experts.

    python tests/engines/sglang/models.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<pad>"]
TEXTS = ["the quick brown fox jumps over the lazy dog " * 5, "hello world, two and two is four. " * 5]
SHAPE: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
EXPERTS: dict[str, Any] = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
}
KINDS: dict[str, tuple[type[PreTrainedModel], type[PretrainedConfig], dict[str, Any]]] = {
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {}),
    "moe": (Qwen3MoeForCausalLM, Qwen3MoeConfig, EXPERTS),
}
VERSIONS = {"qwen3": 7, "moe": 2}
# Of the weights: a scale at which a random model has opinions, and a step after which they differ visibly.
SCALE = 0.2
STEP = 0.008


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer: every text has tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=512, special_tokens=SPECIALS, initial_alphabet=alphabet)
    )
    names = {"bos_token": SPECIALS[0], "eos_token": SPECIALS[2], "pad_token": SPECIALS[3]}
    return PreTrainedTokenizerFast(tokenizer_object=bpe, **names)


def step(model: PreTrainedModel, seed: int, size: float) -> None:
    """Add noise to every matrix."""
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.add_(torch.empty_like(parameter).normal_(0, size, generator=chance))


def make(kind: str, root: Path) -> None:
    """Write every version of one kind."""
    words = tokenizer()
    model_class, config_class, extra = KINDS[kind]
    ids = {name: getattr(words, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model = model_class(config_class(**SHAPE, **extra, **ids))
    model.generation_config.eos_token_id = words.eos_token_id
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.zero_()
    for version in range(VERSIONS[kind]):
        step(model, version, STEP if version else SCALE)
        folder = root / f"{kind}-v{version}"
        # Rounded as they are written; the steps go on from what was not.
        weights = {name: value.to(torch.bfloat16) for name, value in model.state_dict().items()}
        model.config.dtype = torch.bfloat16
        model.save_pretrained(folder, state_dict=weights)
        words.save_pretrained(folder)


if __name__ == "__main__":
    for kind in KINDS:
        make(kind, Path(sys.argv[1]))
