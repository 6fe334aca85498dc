"""An engine's /metrics page: the few families that are needed, summed over what runs in parallel.

The page is filtered before it is parsed, so that a page of megabytes costs little, and what is parsed of it is bounded:
parsing is in the way of the looks at all other engines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from satwatch.probe.http.reading import number, whole
from satwatch.probe.snapshot import Total

# Ranks that share one batch each report all of it; data-parallel ranks (dp_rank; vLLM: engine) have a batch each.
_SHARING: Final = ("pp_rank", "tp_rank", "moe_ep_rank")
_MAX_LINES: Final = 4096
_MAX_LINE_BYTES: Final = 4096
_MAX_PARSED_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the page."""

    labels: Mapping[str, str]
    value: float


class Exposition:
    """The samples of the names asked for; a name that isn't there is unknown."""

    def __init__(self, page: bytes, names: Collection[str]) -> None:
        """Read a page.

        Args:
            page: text of Prometheus' exposition format; lines that can't be read are left out.
            names: of the samples to keep, with their suffixes.
        """
        self._samples: dict[str, list[Sample]] = {}
        for name, sample in _read(page, frozenset(names)):
            self._samples.setdefault(name, []).append(sample)

    def sum(self, *names: str, where: Mapping[str, Collection[str]] | None = None) -> float | None:
        """Return the first of the names that is there, summed over all but the ranks that share a batch.

        Args:
            names: the name, and others that it has had.
            where: the values that labels must have.
        """
        if not any(name in self._samples for name in names):
            return None
        # Where the name is there, and no sample has these labels: a label's sample begins with the first event.
        values = [number(value) for value in self._batches(names, where or {})]
        known = [value for value in values if value is not None]
        return math.fsum(known) if len(known) == len(values) else None

    def count(self, *names: str, where: Mapping[str, Collection[str]] | None = None) -> int | None:
        """Return :meth:`sum` as a whole number."""
        return whole(self.sum(*names, where=where))

    def highest(self, *names: str) -> float | None:
        """Return the highest of the first of the names that is there."""
        return max((known for value in self._batches(names, {}) if (known := number(value)) is not None), default=None)

    def total(self, *names: str, where: Mapping[str, Collection[str]] | None = None) -> Total | None:
        """Return the first histogram of the names that is there."""
        for name in names:
            seconds, count = self.sum(f"{name}_sum", where=where), self.sum(f"{name}_count", where=where)
            if seconds is not None and count is not None:
                return Total(seconds, count)
        return None

    def _batches(self, names: Iterable[str], where: Mapping[str, Collection[str]]) -> Iterator[float]:
        """Give one value a batch: that of the lowest rank of those that share it."""
        samples = next((self._samples[name] for name in names if name in self._samples), [])
        lowest: dict[frozenset[tuple[str, str]], Sample] = {}
        for sample in samples:
            if all(sample.labels.get(label) in wanted for label, wanted in where.items()):
                batch = frozenset(pair for pair in sample.labels.items() if pair[0] not in _SHARING)
                if batch not in lowest or _rank(sample) < _rank(lowest[batch]):
                    lowest[batch] = sample
        return (sample.value for sample in lowest.values())


def histogram(*names: str) -> tuple[str, ...]:
    """Return the names of histograms' samples that :meth:`Exposition.total` needs."""
    return tuple(f"{name}_{part}" for name in names for part in ("sum", "count"))


def _rank(sample: Sample) -> tuple[int, ...]:
    ranks = (sample.labels.get(label, "0") for label in _SHARING)
    return tuple(int(rank) if rank.isascii() and rank.isdigit() and len(rank) < 10 else 0 for rank in ranks)


def _read(page: bytes, names: frozenset[str]) -> Iterator[tuple[str, Sample]]:
    for line in _wanted(page, names):
        try:
            # Alone, so that a line that can't be read costs no other.
            families = list(text_string_to_metric_families(f"{line}\n"))
        except (ValueError, LookupError, TypeError):
            continue
        for family in families:
            yield from ((sample.name, Sample(sample.labels, sample.value)) for sample in family.samples)


def _wanted(page: bytes, names: frozenset[str]) -> list[str]:
    """Return the lines of these names; none where they are more than can be meant: sums of a part would be wrong."""
    name = b"|".join(re.escape(name.encode()) for name in sorted(names))
    # Found where it stands: a page of nothing but line ends would make millions of lines.
    found = re.finditer(rb"^(?:%b)(?=[{ ])[^\n]{0,%d}$" % (name, _MAX_LINE_BYTES), page, re.MULTILINE)
    lines, size = [], 0
    for match in found:
        lines.append(match[0])
        size += len(match[0])
        if len(lines) > _MAX_LINES or size > _MAX_PARSED_BYTES:
            return []
    return [line.decode(errors="replace") for line in lines]
