"""Steps in blocks of blocks: which block a step is in, and which blocks can no longer grow by a new step.

A block of level 0 is a step, one of level k the four blocks ``4 * block`` to ``4 * block + 3`` of level k - 1, so that
its bounds are multiples of ``4**k``. Steps may be sparse and negative. A block is complete once a step beyond it has
come: that is when its sum is written, and the block that holds the newest step is summed from its parts by the reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

# Four blocks of this level hold all the steps of 64 bits.
MAX_LEVEL: Final = 31


def block_of(step: int, level: int) -> int:
    """Return the block that holds a step.

    >>> block_of(17, 1), block_of(-1, 5)
    (4, -1)
    """
    return step >> 2 * level


def complete_above(steps: Iterable[int], newest: int) -> list[list[int]]:
    """Return the complete blocks that hold some of the steps: for each level from 1 on, ascending.

    Args:
        steps: steps that were written.
        newest: the newest step of all.

    >>> complete_above([3, 6], newest=9)
    [[0, 1]]
    """
    levels: list[list[int]] = []
    held = set(steps)
    for level in range(1, MAX_LEVEL + 1):
        open_block = block_of(newest, level)
        held = {step for step in held if block_of(step, level) != open_block}
        if not held:
            break
        levels.append(sorted({block_of(step, level) for step in held}))
    return levels


@dataclass(frozen=True, slots=True)
class Blocks:
    """Neighbouring blocks of one level, both ends included."""

    level: int
    first: int
    last: int


def parts_of_open(newest: int, level: int) -> Iterator[Blocks]:
    """Return what makes up the block that holds the newest step, from complete blocks and the newest steps.

    Args:
        newest: the newest step of all.
        level: the block's level, 1 or more.

    >>> list(parts_of_open(27, 2))
    [Blocks(level=1, first=4, last=5), Blocks(level=0, first=24, last=27)]
    """
    for below in range(level - 1, -1, -1):
        first, last = 4 * block_of(newest, below + 1), block_of(newest, below) - (below > 0)
        if first <= last:
            yield Blocks(below, first, last)
