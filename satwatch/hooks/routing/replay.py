"""Does routing replay (R3) work? With it on, engine and trainer choose the same experts: any flip is a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from satwatch.types import Routing

_LAYERS_NAMED: Final = 8


@dataclass(frozen=True, slots=True)
class ReplayFinding:
    """Whether routing replay (R3) works: with it, engine and trainer choose the same experts, always.

    Attributes:
        pairs: (token, layer) pairs compared.
        flips_by_layer: pairs that differ, of the layers that have any.
    """

    pairs: int = 0
    flips_by_layer: Mapping[int, int] = field(default_factory=dict)

    @property
    def flips(self) -> int | None:
        """Pairs that differ; None: none was compared, and nothing is known."""
        return sum(self.flips_by_layer.values()) if self.pairs else None

    def merge(self, other: ReplayFinding) -> ReplayFinding:
        """Return what both say together."""
        flips = Counter(self.flips_by_layer) + Counter(other.flips_by_layer)
        return ReplayFinding(self.pairs + other.pairs, flips)

    def __str__(self) -> str:
        if not self.pairs:
            return "routing replay: unknown, no token was compared"
        if not self.flips_by_layer:
            return f"routing replay works: none of {self.pairs} (token, layer) pairs differs"
        worst = sorted(self.flips_by_layer.items(), key=lambda item: -item[1])
        named = ", ".join(f"layer {layer}: {flips}" for layer, flips in worst[:_LAYERS_NAMED])
        more = f", and {len(worst) - _LAYERS_NAMED} layers more" if len(worst) > _LAYERS_NAMED else ""
        return f"routing replay does not work: {self.flips} of {self.pairs} (token, layer) pairs differ ({named}{more})"


def verify_replay(routing: Routing) -> ReplayFinding:
    """Say whether routing replay works, from the counts of a batch.

    >>> from satwatch.types import LayerRouting
    >>> print(verify_replay(Routing((LayerRouting(3, 100, 7, 9, 2),), tokens=100, flipped_tokens=7)))
    routing replay does not work: 7 of 100 (token, layer) pairs differ (layer 3: 7)
    """
    flips = {layer.layer: layer.flipped_tokens for layer in routing.layers if layer.flipped_tokens}
    return ReplayFinding(sum(layer.tokens for layer in routing.layers), flips)
