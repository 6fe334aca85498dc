"""MoE routing agreement: the experts that engine and trainer chose, as sets, token by token and layer by layer.

Published levels without routing replay: about a tenth of the (token, layer) pairs differ, and nearly every token has
at least one that does. With replay on (R3), the flip rate must be 0: anything else means that replay does not work.
"""

from __future__ import annotations

from satwatch.errors import InvalidBatchError, required
from satwatch.types import LayerRouting, Routing


def merge_routing(a: Routing, b: Routing) -> Routing:
    """Return the counts of both batches together.

    Raises:
        InvalidBatchError: one layer has two numbers of experts a token.
    """
    layers = {layer.layer: layer for layer in a.layers}
    for layer in b.layers:
        known = layers.get(layer.layer)
        layers[layer.layer] = layer if known is None else _merge_layer(known, layer)
    return Routing(
        tuple(layers[index] for index in sorted(layers)),
        a.tokens + b.tokens,
        a.flipped_tokens + b.flipped_tokens,
        a.missing_tokens + b.missing_tokens,
    )


def merge_known(kept: Routing | None, newer: Routing | None) -> Routing | None:
    """Return the counts of both, where there are any; two numbers of experts have no sum: the newer stands alone."""
    if kept is None or newer is None:
        return newer or kept
    try:
        return merge_routing(kept, newer)
    except InvalidBatchError:
        return newer


def _merge_layer(a: LayerRouting, b: LayerRouting) -> LayerRouting:
    if a.top_k != b.top_k:
        raise InvalidBatchError(
            required(f"routing.layers[{b.layer}].top_k", b.top_k, f"{a.top_k}, as in earlier batches")
        )
    return LayerRouting(
        a.layer,
        a.tokens + b.tokens,
        a.flipped_tokens + b.flipped_tokens,
        a.disagreeing_experts + b.disagreeing_experts,
        a.top_k,
    )


def routing_diagnostics(routing: Routing) -> dict[str, float]:
    """Return ``router_flip_rate``, ``router_expert_disagreement``, ``router_token_flip_rate`` and ``router_coverage``.

    What has no token compared is absent.

    >>> counts = Routing((LayerRouting(0, 10, 1, 1, 2), LayerRouting(1, 10, 3, 4, 2)), tokens=10, flipped_tokens=3)
    >>> routing_diagnostics(counts)["router_flip_rate"]
    0.2
    """
    out: dict[str, float] = {}
    pairs = sum(layer.tokens for layer in routing.layers)
    if pairs:
        out["router_flip_rate"] = sum(layer.flipped_tokens for layer in routing.layers) / pairs
        disagreement = sum(layer.disagreeing_experts / layer.top_k for layer in routing.layers)
        out["router_expert_disagreement"] = disagreement / pairs
    if routing.tokens:
        out["router_token_flip_rate"] = routing.flipped_tokens / routing.tokens
    if routing.tokens + routing.missing_tokens:
        out["router_coverage"] = routing.tokens / (routing.tokens + routing.missing_tokens)
    return out


def layer_flip_rates(routing: Routing) -> dict[int, float]:
    """Return the flip rate of each layer that compared a token."""
    return {layer.layer: layer.flipped_tokens / layer.tokens for layer in routing.layers if layer.tokens}
