"""Agreement counts written out with Python's own sets, token by token."""

from __future__ import annotations

from satwatch.types import LayerRouting, Routing


def agreement(engine, trainer, active):
    """Count over nested lists (T, L, K) and one boolean a token; a row of -1 is missing."""
    top_k = len(engine[0][0])
    counts = [[0, 0, 0] for _ in engine[0]]
    tokens = flipped = missing = 0
    for ours, theirs, counts_here in zip(trainer, engine, active, strict=True):
        if not counts_here:
            continue
        there = differs = 0
        for layer, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if set(a) == {-1} or set(b) == {-1}:
                continue
            there += 1
            lost = top_k - len(set(a) & set(b))
            differs += lost > 0
            counts[layer] = [x + y for x, y in zip(counts[layer], (1, lost > 0, lost), strict=True)]
        if there < len(counts):
            missing += 1
            continue
        tokens += 1
        flipped += differs > 0
    layers = (LayerRouting(layer, *count, top_k) for layer, count in enumerate(counts))
    return Routing(tuple(layers), tokens, flipped, missing)
