"""A histogram of magnitudes in logarithmic bins, the same for every batch, so that histograms add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from satwatch.sat import Sketch
from satwatch.sat.sketch import magnitudes

BINS_PER_DECADE: Final = 4
LOWEST_DECADE: Final = -8
HIGHEST_DECADE: Final = 3
EDGES: Final = 10.0 ** (
    np.arange(LOWEST_DECADE * BINS_PER_DECADE, HIGHEST_DECADE * BINS_PER_DECADE + 1) / BINS_PER_DECADE
)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of magnitudes.

    Attributes:
        counts: of the bins (-inf, EDGES[0]), [EDGES[0], EDGES[1]), ..., [EDGES[-1], inf]; int64 (len(EDGES) + 1,).

    >>> histogram = Histogram.of(np.array([0.0, 0.5, -0.5, np.inf, np.nan]))
    >>> int(histogram.counts[0]), int(histogram.counts[-1]), int(histogram.counts.sum())
    (1, 1, 4)
    """

    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, values: npt.NDArray[np.floating]) -> Histogram:
        """Count the magnitudes of values; NaN has none."""
        magnitudes = np.abs(values[~np.isnan(values)])
        return cls(np.bincount(np.searchsorted(EDGES, magnitudes, side="right"), minlength=len(EDGES) + 1))

    @classmethod
    def of_sketch(cls, sketch: Sketch) -> Histogram:
        """Count the magnitudes of a sketch, each as the least one of its code: at most a relative 2**-7 too low."""
        bins = np.searchsorted(EDGES, magnitudes(sketch.codes), side="right")
        counts = np.zeros(len(EDGES) + 1, np.int64)
        np.add.at(counts, bins, sketch.counts)
        return cls(counts)

    def __add__(self, other: Histogram) -> Histogram:
        """Return the histogram of both."""
        return Histogram(self.counts + other.counts)

    @staticmethod
    def bin_of(magnitude: float) -> int:
        """Return the index of the bin that holds a magnitude."""
        return int(np.searchsorted(EDGES, magnitude, side="right"))
