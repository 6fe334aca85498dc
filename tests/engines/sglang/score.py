"""The trainer's side: what transformers makes of token sequences, for a model's folder.

Run by the engines' interpreter. Reads ``{"model": folder, "dtype": name, "sequences": [[token, ...], ...]}`` a line
from standard input and answers a line of JSON for each: ``logprobs``, of every token but each sequence's first, in
nats, and for a mixture of experts ``routes``, (tokens, layers, experts a token) of each sequence, else null.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel


def logprobs(logits: torch.Tensor, tokens: torch.Tensor) -> list[float]:
    """Return log pi of each token but the first."""
    of_all = torch.log_softmax(logits[:-1].double(), -1)
    scored: list[float] = of_all.gather(-1, tokens[1:, None]).squeeze(-1).tolist()
    return scored


def routes(router_logits: tuple[torch.Tensor, ...], top_k: int) -> list[list[list[int]]]:
    """Return the experts chosen for each token in each layer."""
    chosen = torch.stack([layer.float().softmax(-1).topk(top_k, -1).indices for layer in router_logits], 1)
    listed: list[list[list[int]]] = chosen.tolist()
    return listed


def score(model: PreTrainedModel, sequences: list[list[int]]) -> dict[str, Any]:
    """Score each sequence alone, as no padding can then disturb it."""
    experts = getattr(model.config, "num_experts_per_tok", None)
    scored, routed = [], []
    for sequence in sequences:
        tokens = torch.tensor(sequence)
        asked = {"output_router_logits": True} if experts else {}
        with torch.no_grad():
            out = model(input_ids=tokens[None], **asked)
        scored.append(logprobs(out.logits[0], tokens))
        if experts:
            routed.append(routes(out.router_logits, experts))
    return {"logprobs": scored, "routes": routed if experts else None}


def main() -> None:
    """Answer until standard input ends."""
    models: dict[tuple[str, str], PreTrainedModel] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        folder, dtype = asked["model"], asked["dtype"]
        if (folder, dtype) not in models:
            loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
            models[folder, dtype] = loaded.eval()
        sys.stdout.write(json.dumps(score(models[folder, dtype], asked["sequences"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
