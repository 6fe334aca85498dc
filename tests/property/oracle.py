"""The rule once more, in plain Python doubles and by sorting: slow, obvious, and shared with nothing it judges."""

from __future__ import annotations

import math

import torch

from satwatch.types import Rule


def least_rank(n: int, alpha: float) -> int:
    return next(k for k in range(1, n + 1) if k / n >= alpha)


def token_scores(values: list[float], sequences: list[list[int]], rule: Rule) -> dict[int, float]:
    """Return the score of each active token by its position."""
    if rule.level == "token":
        return {i: values[i] for members in sequences for i in members}
    scores: dict[int, float] = {}
    for members in sequences:
        numbers = [values[i] for i in members]
        both = math.inf in numbers and -math.inf in numbers
        mean = math.nan if both or any(map(math.isnan, numbers)) else _sum(numbers) / max(len(numbers), 1)
        scores |= dict.fromkeys(members, mean)
    return scores


def _sum(numbers: list[float]) -> float:
    infinite = [x for x in numbers if math.isinf(x)]
    return infinite[0] if infinite else math.fsum(numbers)


def reference(scores: list[float], rule: Rule) -> float:
    magnitudes = sorted(abs(s) for s in scores if not math.isnan(s))
    if not magnitudes:
        return math.nan
    return max(magnitudes[least_rank(len(magnitudes), rule.quantile) - 1], rule.min_reference)


def factor(score: float, q: float, rule: Rule) -> float:
    if not rule.enabled or not (q > 0 and abs(score) > q):
        return 1.0
    try:
        return 1 / (1 + (abs(score) / q) ** rule.exponent)
    except OverflowError:
        return 0.0


def members(shape: torch.Size, mask: torch.Tensor | None, lengths: list[int] | None) -> list[list[int]]:
    """Return the active positions of each sequence."""
    n = math.prod(shape)
    active = [True] * n if mask is None else mask.reshape(-1).tolist()
    if len(shape) == 2:
        lengths = [shape[1]] * shape[0]
    ends = [sum((lengths or [n])[: i + 1]) for i in range(len(lengths or [n]))]
    starts = [0, *ends[:-1]]
    return [[i for i in range(start, end) if active[i]] for start, end in zip(starts, ends, strict=True)]
