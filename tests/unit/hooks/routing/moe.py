"""Tiny MoE models as transformers builds them: by signature, the real ones run in tests/trainers."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class TopKRouter(nn.Module):
    """As of transformers 5: returns logits, weights and expert ids of flattened tokens."""

    def __init__(self, width, experts, top_k):
        super().__init__()
        self.top_k, self.num_experts = top_k, experts
        self.weight = nn.Parameter(torch.randn(experts, width))

    def forward(self, hidden):
        logits = hidden.reshape(-1, hidden.shape[-1]) @ self.weight.T
        weights, ids = logits.softmax(-1, dtype=torch.float32).topk(self.top_k, -1)
        return logits, weights, ids


class Experts(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.num_experts = experts
        self.down = nn.Parameter(torch.randn(experts, width, width) / width)

    def forward(self, hidden, ids, weights):
        return torch.einsum("nd,nkde,nk->ne", hidden, self.down[ids], weights.to(hidden.dtype))


class Block5(nn.Module):
    """Router and experts, with the shared expert and its gate of Qwen2-MoE."""

    def __init__(self, width, experts, top_k):
        super().__init__()
        self.top_k = top_k
        self.gate = TopKRouter(width, experts, top_k)
        self.experts = Experts(width, experts)
        self.shared_expert = nn.Linear(width, width)
        self.shared_expert_gate = nn.Linear(width, 1)

    def forward(self, hidden):
        flat = hidden.reshape(-1, hidden.shape[-1])
        _, weights, ids = self.gate(flat)
        out = self.experts(flat, ids, weights) + self.shared_expert_gate(flat).sigmoid() * self.shared_expert(flat)
        return out.reshape(hidden.shape)


class Qwen3MoeSparseMoeBlock(nn.Module):
    """As of transformers 4, whose name it has: a linear gate, and the top-k taken in the block."""

    def __init__(self, width, experts, top_k):
        super().__init__()
        self.top_k, self.num_experts = top_k, experts
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))
        self.chosen = None

    def forward(self, hidden):
        flat = hidden.reshape(-1, hidden.shape[-1])
        weights, self.chosen = self.gate(flat).softmax(-1, dtype=torch.float32).topk(self.top_k, -1)
        every = torch.stack([expert(flat) for expert in self.experts], 1)
        picked = every.gather(1, self.chosen[..., None].expand(-1, -1, hidden.shape[-1]))
        return (picked * weights[..., None].to(hidden.dtype)).sum(1).reshape(hidden.shape)


class Layer(nn.Module):
    def __init__(self, mlp):
        super().__init__()
        self.mlp = mlp

    def forward(self, hidden):
        return hidden + self.mlp(hidden)


class Moe(nn.Module):
    """Layers 0 and 2 are dense.

    Attributes:
        checkpointing: None, or whether gradient checkpointing is reentrant.
    """

    def __init__(self, block=Block5, width=8, experts=6, top_k=2):
        super().__init__()
        self.embed = nn.Embedding(32, width)
        dense = (nn.Linear(width, width) for _ in range(2))
        moe = (block(width, experts, top_k) for _ in range(2))
        self.layers = nn.ModuleList(Layer(next(moe) if i % 2 else next(dense)) for i in range(4))
        self.checkpointing = None

    def forward(self, ids):
        hidden = self.embed(ids)
        for layer in self.layers:
            if self.checkpointing is None:
                hidden = layer(hidden)
            else:
                hidden = checkpoint(layer, hidden, use_reentrant=self.checkpointing)
        return hidden
