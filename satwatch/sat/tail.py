"""The tail of a batch in fixed buckets: exact counts that add up over batches, steps and runs."""

from __future__ import annotations

from typing import Final

import numpy as np

from satwatch.sat.quantile import CHUNK, Floats
from satwatch.sat.scores import floor_to

# Nats: from well below a healthy mean to what no policy does by learning.
TAIL_EDGES: Final = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 20.0)


def tail_counts(tokens: Floats) -> tuple[int, ...]:
    """Count the tokens by abs(d), bucket by bucket: up to each of ``TAIL_EDGES``, that edge included, then above all.

    Args:
        tokens: d, nats, (n,), float32 or float64. NaN is in no bucket, infinity in the last.

    >>> tail_counts(np.array([0.0, 1e-4, -0.02, np.inf, np.nan]))
    (2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1)
    """
    # In the tokens' own dtype, since numpy rounds an edge to float32 beside float32 tokens.
    edges = [floor_to(edge, tokens.dtype) for edge in TAIL_EDGES]
    up_to = np.zeros(len(edges) + 1, dtype=np.int64)
    for start in range(0, len(tokens), CHUNK):
        magnitudes = np.abs(tokens[start : start + CHUNK])
        up_to[:-1] += [np.count_nonzero(magnitudes <= edge) for edge in edges]
        up_to[-1] += len(magnitudes) - np.count_nonzero(np.isnan(magnitudes))
    return tuple(np.diff(up_to, prepend=0).tolist())
