"""The modules of a PyTorch model that choose experts, found by how they look.

It knows routers that return expert ids (transformers 5, and the models of transformers 4 that have a router class), and
those blocks of transformers 4 with a linear gate whose ids are the top-k of its softmax. Other blocks choose by other
rules, with a bias or with noise, and are not guessed at. Shared experts are no choice, and dense layers have no router.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn

from satwatch.errors import ConfigError, required

_EXPERT_COUNTS: Final = ("num_experts", "n_routed_experts", "num_local_experts")
_GATES: Final = ("gate", "router")
_ROUTER_NAME: Final = re.compile(r"Router$|Gate$|Gating$")
_SOFTMAX_BLOCK: Final = re.compile(
    r"(?:FSDP)?(?:Mixtral|Qwen2Moe|Qwen3Moe|Qwen3Next|Qwen3OmniMoe\w+|Olmoe|FlexOlmo|MiniMax|Jamba)SparseMoeBlock"
)
_NUMBER: Final = re.compile(r"\.(\d+)(?=\.)")


@dataclass(frozen=True, slots=True)
class Router:
    """A module that chooses experts.

    Attributes:
        layer: the model layer's index.
        name: its name in the model.
        module: what is watched.
        top_k: experts a token.
        num_experts: routed experts of the layer.
        returns_logits: it returns logits alone, and the ids are the top-k of their softmax.
    """

    layer: int
    name: str
    module: nn.Module
    top_k: int
    num_experts: int
    returns_logits: bool = False

    def experts(self, output: object) -> torch.Tensor | None:
        """Return the ids in what the module returned, (n, top_k), detached; None if there are none to be seen."""
        parts = [part for part in (output if isinstance(output, tuple | list) else [output]) if torch.is_tensor(part)]
        for part in parts:
            whole = not part.is_floating_point() and part.dtype != torch.bool
            if whole and part.shape[-1:] == (self.top_k,):
                return self._kept(part)
        if self.returns_logits and parts and parts[0].shape[-1:] == (self.num_experts,):
            return self._kept(parts[0].detach().softmax(-1, dtype=torch.float32).topk(self.top_k, -1).indices)
        return None

    def _kept(self, ids: torch.Tensor) -> torch.Tensor:
        # A quarter of int64: a microbatch of 32k tokens, 48 layers and 8 experts is 25 MB instead of 100.
        narrow = torch.int16 if self.num_experts <= torch.iinfo(torch.int16).max else torch.int32
        return ids.detach().reshape(-1, self.top_k).to(narrow)


def find_routers(model: nn.Module) -> list[Router]:
    """Return a model's routers, by layer.

    Raises:
        ConfigError: none, or two in one layer.
    """
    found: dict[int, Router] = {}
    for name, module in model.named_modules():
        top_k, experts = _size(module)
        if top_k is None or experts is None:
            continue
        gate = _linear_gate(module, experts)
        if gate is not None:
            name, module = f"{name}.{gate}", getattr(module, gate)
        elif not _chooses(module, experts):
            continue
        numbers = _NUMBER.findall(f".{name}.")
        layer = int(numbers[-1]) if numbers else len(found)
        router = Router(layer, name, module, top_k, experts, returns_logits=gate is not None)
        known = found.setdefault(router.layer, router)
        if known is not router:
            came = f"{known.name} and {router.name}, both of layer {router.layer}"
            raise ConfigError(required("model", came, "one router a layer; or name them with routers="))
    if not found:
        raise ConfigError(required("model", f"a {type(model).__name__} without MoE routers", "one with; or routers="))
    return [found[layer] for layer in sorted(found)]


def _size(module: nn.Module) -> tuple[int | None, int | None]:
    """Return the experts a token and the experts of a module, as far as it says."""
    return _whole(module, "top_k"), _whole(module, *_EXPERT_COUNTS)


def _whole(module: nn.Module, *names: str) -> int | None:
    values = [getattr(module, name, None) for name in names]
    return next((value for value in values if isinstance(value, int) and not isinstance(value, bool)), None)


def _linear_gate(block: nn.Module, experts: int) -> str | None:
    """Return the name of a block's gate, if it is a linear one that chooses by its softmax alone."""
    if not _SOFTMAX_BLOCK.fullmatch(type(block).__name__):
        return None
    parts = ((name, getattr(block, name, None)) for name in _GATES)
    return next((name for name, part in parts if isinstance(part, nn.Linear) and part.out_features == experts), None)


def _chooses(module: nn.Module, experts: int) -> bool:
    """Tell whether a module with sizes is the router itself, and not the block around it or a layer's experts."""
    if any(None not in _size(child) for child in module.children()):
        return False
    if _ROUTER_NAME.search(type(module).__name__):
        return True
    return any(part.dim() == 2 and part.shape[0] == experts for part in module.parameters(recurse=False))
