"""A histogram as bars on a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from satwatch.analyze.histogram import EDGES, Histogram

WIDTH: Final = 40
# The bins at the low end that together hold less than this share are drawn as one.
FOLDED_SHARE: Final = 0.01


def draw(histogram: Histogram, references: tuple[float, float], block: str = "█") -> RenderableType:
    """Draw a histogram of abs(d), one line a bin, with q marked.

    Args:
        histogram: the counts.
        references: the lowest and the highest q of the batches; the first above the second: there is none.
        block: what a bar is made of.
    """
    total = int(histogram.counts.sum())
    if not total:
        return Text("")
    low, high = references
    heading = "\n|d|, share of tokens" + (f"; q from {low:.4g} to {high:.4g}" if low < high else "")
    return Group(Text(heading, style="bold"), *_bars(histogram, block, _reference_bins(low, high)))


def _reference_bins(low: float, high: float) -> dict[int, str]:
    if low > high:
        return {}
    first, last = Histogram.bin_of(low), Histogram.bin_of(high)
    if first == last:
        return {first: "q"}
    return {first: "lowest q", last: "highest q"}


def _bars(histogram: Histogram, block: str, references: Mapping[int, str]) -> Iterator[Text]:
    """Draw one bar a bin, the small bins at the low end as one: it's the high end that matters."""
    total = int(histogram.counts.sum())
    filled = histogram.counts.nonzero()[0]
    first = max(int(filled[0]), int((histogram.counts.cumsum() >= FOLDED_SHARE * total).argmax()) - 1)
    counts = histogram.counts[first : int(filled[-1]) + 1].copy()
    counts[0] += histogram.counts[:first].sum()
    for index, count in enumerate(counts, start=first):
        edge = _edge(index) if index > first or first == filled[0] else f"< {EDGES[first]:.2g}"
        line = Text(f"{edge:>10} ", style="dim")
        line.append(block * math.ceil(WIDTH * int(count) / int(counts.max())), style="cyan")
        line.append(f" {_percent(int(count) / total)}" if count else "", style="dim")
        names = [text for position, text in references.items() if max(position, first) == index]
        line.append(f"  <- {', '.join(names)}" if names else "", style="bold")
        yield line


def _percent(share: float) -> str:
    """Write a share so that a small one keeps its digits.

    >>> _percent(0.9961), _percent(0.0031), _percent(0.00003051)
    ('99.6%', '0.31%', '0.0031%')
    """
    return f"{100 * share:.{1 if share >= 0.1 else max(2, 1 - math.floor(math.log10(100 * share)))}f}%"


def _edge(index: int) -> str:
    if index == 0:
        return f"< {EDGES[0]:.0e}"
    return f"{'>= ' if index == len(EDGES) else ''}{EDGES[index - 1]:.2g}"
