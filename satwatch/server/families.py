"""What a metric is: its name, its type, its labels and what it means."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = tuple[str, ...]
Samples: TypeAlias = defaultdict[str, list[tuple[Labels, float]]]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its name, its type, its labels and what it means."""

    name: str
    kind: Kind
    labels: Labels
    help: str


def gauge(name: str, help_text: str, *labels: str) -> Family:
    """Return a gauge of satwatch's."""
    return Family(f"satwatch_{name}", "gauge", labels, help_text)


def counter(name: str, help_text: str, *labels: str) -> Family:
    """Return a counter of satwatch's; its name ends as Prometheus wants it."""
    return Family(f"satwatch_{name}_total", "counter", labels, help_text)
