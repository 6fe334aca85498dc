"""A block of steps: its sums, what is shown of them, and the sum of several blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from satwatch.sat import StepTotals
from satwatch.types import StepPoint


@dataclass(frozen=True, slots=True)
class Block:
    """One step, or several merged, with its sums.

    Attributes:
        first_step: the first step merged.
        last_step: the last one.
        steps: steps merged.
        at: the last message, Unix time in seconds.
        is_closed: all of them are closed.
        ranks: the fewest ranks heard of.
        policy_version: the newest version that consumed tokens, or None.
        totals: the sums.
    """

    first_step: int
    last_step: int
    steps: int
    at: float
    is_closed: bool
    ranks: int
    policy_version: int | None
    totals: StepTotals

    @property
    def tokens(self) -> int:
        """Active tokens."""
        return self.totals.summary.sketch.moments.tokens

    def point(self, life: int) -> StepPoint:
        """Return what is shown of it."""
        totals = self.totals
        return StepPoint(
            life=life,
            first_step=self.first_step,
            last_step=self.last_step,
            steps=self.steps,
            at=self.at,
            is_closed=self.is_closed,
            ranks=self.ranks,
            batches=totals.batches,
            policy_version=self.policy_version,
            values=totals.values(),
            heat=totals.heat(),
            lags=dict(totals.lag.lags),
            generation_lags=dict(totals.lag.generation_lags),
            queue_lags=dict(totals.lag.queue_lags),
            versions=dict(totals.lag.versions),
            length_lags=tuple(bucket for _, bucket in sorted(totals.lengths.items())),
            layer_flip_rates=totals.layer_flip_rates(),
        )


def merge_blocks(blocks: Sequence[Block]) -> Block:
    """Return several blocks, in the order of their steps, as one."""
    versions = [block.policy_version for block in blocks if block.policy_version is not None]
    return Block(
        first_step=min(block.first_step for block in blocks),
        last_step=max(block.last_step for block in blocks),
        steps=sum(block.steps for block in blocks),
        at=max(block.at for block in blocks),
        is_closed=all(block.is_closed for block in blocks),
        ranks=min(block.ranks for block in blocks),
        policy_version=max(versions, default=None),
        totals=reduce(StepTotals.merge, (block.totals for block in blocks)),
    )


def step_point(
    step: int,
    totals: StepTotals,
    *,
    at: float,
    policy_version: int | None = None,
    ranks: int = 1,
    is_closed: bool = True,
    life: int = 0,
) -> StepPoint:
    """Return what is shown of one step.

    Args:
        step: the optimizer step.
        totals: what its batches add up to.
        at: its last message, Unix time in seconds.
        policy_version: the newest version that consumed its tokens, or None.
        ranks: ranks heard of.
        is_closed: all ranks have ended it, or their time is up.
        life: the run's life.
    """
    return Block(step, step, 1, at, is_closed, ranks, policy_version, totals).point(life)
