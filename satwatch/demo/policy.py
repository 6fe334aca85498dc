"""The policy: a decoder-only transformer of about 1e5 parameters, with sampling and log-probabilities.

Pre-LN blocks (x + attention(norm(x)), then x + mlp(norm(x))), learned positions, an untied output layer.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from satwatch.demo.task import Task

LAYERS = 3
WIDTH = 64
HEADS = 4
HEAD_WIDTH = WIDTH // HEADS


class KVCache:
    """Keys and values of the tokens seen so far, one contiguous block that is allocated once.

    Args:
        sequences: B, the sequences decoded together.
        length: the most tokens a sequence may have.
    """

    def __init__(self, sequences: int, length: int) -> None:
        self._blocks = torch.empty(LAYERS, 2, sequences, HEADS, length, HEAD_WIDTH)
        self.length = 0

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values, shape (B, heads, T, head width); return all it has."""
        end = self.length + keys.shape[2]
        block = self._blocks[layer]
        block[0, :, :, self.length : end] = keys
        block[1, :, :, self.length : end] = values
        return block[0, :, :, :end], block[1, :, :, :end]

    def repeat(self, samples: int) -> KVCache:
        """Return a cache with each sequence ``samples`` times: the samples of a prompt share its prefill."""
        wide = KVCache(0, 0)
        wide._blocks = self._blocks.repeat_interleave(samples, dim=2)
        wide.length = self.length
        return wide


class Block(nn.Module):
    """One pre-LN transformer block."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.attention_out = nn.Linear(WIDTH, WIDTH)
        self.mlp_norm = nn.LayerNorm(WIDTH)
        self.mlp_in = nn.Linear(WIDTH, 2 * WIDTH)
        self.mlp_out = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor, layer: int, cache: KVCache | None) -> Tensor:
        """Return x, shape (B, T, width), with what the block's two halves add to it."""
        batch, length, _ = x.shape
        heads = self.query_key_value(self.attention_norm(x)).view(batch, length, 3, HEADS, HEAD_WIDTH)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        if cache is not None:
            key, value = cache.extend(layer, key, value)
        seen = key.shape[2] - length
        # One new token attends to everything before it, several also to those of their own that precede them.
        mask = torch.ones(length, seen + length, dtype=torch.bool).tril(seen) if seen and length > 1 else None
        is_causal = length > 1 and not seen
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=is_causal)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        added: Tensor = self.mlp_out(functional.gelu(self.mlp_in(self.mlp_norm(x))))
        return x + added


class Policy(nn.Module):
    """The transformer.

    Args:
        task: gives the vocabulary and the longest sequence.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.context = task.prompt_length + task.response_length
        self.token = nn.Embedding(task.vocabulary, WIDTH)
        self.position = nn.Embedding(self.context, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, task.vocabulary)

    def forward(self, tokens: Tensor, *, cache: KVCache | None = None, first: int = 0) -> Tensor:
        """Return the logits of the next token.

        Args:
            tokens: ids, shape (B, T); with a cache, those after the ones that it holds.
            cache: extended in place by these tokens.
            first: logits are computed from this position of ``tokens`` on.

        Returns:
            Logits, float32, shape (B, T - first, vocabulary).
        """
        start = cache.length if cache is not None else 0
        x = self.token(tokens) + self.position.weight[start : start + tokens.shape[1]]
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, cache)
        if cache is not None:
            cache.length += tokens.shape[1]
        logits: Tensor = self.out(self.norm(x[:, first:]))
        return logits

    @property
    def parameter_count(self) -> int:
        """The number of parameters."""
        return sum(p.numel() for p in self.parameters())


def initial_policy(task: Task, seed: int) -> Policy:
    """Return the policy of version 0; the same seed gives the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Policy(task)


class Samples(NamedTuple):
    """Sampled responses.

    Attributes:
        tokens: prompts and responses, int64, shape (P * samples, prompt + response), a prompt's samples together.
        logprob: log mu of the response tokens, nats, float32, shape (P * samples, response).
    """

    tokens: Tensor
    logprob: Tensor


@torch.no_grad()
def sample(
    policy: Policy, prompts: Tensor, samples: int, length: int, generator: torch.Generator, temperature: float = 1.0
) -> Samples:
    """Sample responses, one token at a time.

    Args:
        policy: the weights that sample.
        prompts: token ids, shape (P, prompt).
        samples: responses a prompt.
        length: tokens a response.
        generator: the source of randomness.
        temperature: that the logits are divided by.

    Returns:
        The sequences and the log-probabilities that they were sampled with.
    """
    cache = KVCache(len(prompts), prompts.shape[1] + length)
    logits = policy(prompts, cache=cache, first=prompts.shape[1] - 1).repeat_interleave(samples, dim=0)
    cache = cache.repeat(samples)
    tokens: list[Tensor] = [prompts.repeat_interleave(samples, dim=0)]
    logprobs: list[Tensor] = []
    for position in range(length):
        if position:
            logits = policy(tokens[-1], cache=cache)
        logprob = (logits[:, -1] / temperature).log_softmax(dim=-1)
        tokens.append(torch.multinomial(logprob.exp(), 1, generator=generator))
        logprobs.append(logprob.gather(1, tokens[-1]))
    return Samples(torch.cat(tokens, dim=1), torch.cat(logprobs, dim=1))


def response_distribution(policy: Policy, tokens: Tensor, prompt_length: int) -> Tensor:
    """Return the log-probabilities of every token at the response positions (teacher forcing).

    Args:
        policy: the weights that score.
        tokens: prompts and responses, shape (B, prompt + response).
        prompt_length: tokens of the prompt.

    Returns:
        Log-probabilities, nats, shape (B, response, vocabulary), with gradient.
    """
    logits: Tensor = policy(tokens[:, :-1], first=prompt_length - 1)
    return logits.log_softmax(dim=-1)


@torch.no_grad()
def score(policy: Policy, tokens: Tensor, prompt_length: int, samples: int) -> Tensor:
    """Return the log-probabilities of responses, the prefill of a prompt shared by its samples.

    Args:
        policy: the weights that score.
        tokens: prompts and responses, shape (P * samples, prompt + response), a prompt's samples together.
        prompt_length: tokens of the prompt.
        samples: responses a prompt.

    Returns:
        Log pi of the response tokens, nats, float32, shape (P * samples, response).
    """
    prompts, responses = tokens[::samples, :prompt_length], tokens[:, prompt_length:]
    cache = KVCache(len(prompts), tokens.shape[1])
    first = policy(prompts, cache=cache, first=prompt_length - 1).repeat_interleave(samples, dim=0)
    rest = policy(responses[:, :-1], cache=cache.repeat(samples))
    distribution = torch.cat([first, rest], dim=1).log_softmax(dim=-1)
    return distribution.gather(2, responses[:, :, None]).squeeze(2)
