"""The mathematics: staleness-adaptive trust regions (SAT, arXiv 2607.18722) on tensors.

Pure: values in, values out, no sockets, threads or files.
"""

from satwatch.sat.alignment import align_routes, predicting_positions
from satwatch.sat.bounds import clip_bounds, surrogate
from satwatch.sat.deltas import Deltas, Gap, lag_0_tokens, split_deltas
from satwatch.sat.interval import ClipBounds
from satwatch.sat.lag import VersionLag, version_lag
from satwatch.sat.lengths import lag_by_length
from satwatch.sat.packed import pack, unpack
from satwatch.sat.quantile import quantile_reference
from satwatch.sat.routes import compare_routes
from satwatch.sat.routing import layer_flip_rates, merge_routing, routing_diagnostics
from satwatch.sat.scores import Scores, score_batch
from satwatch.sat.sketch import Bracket, Sketch, refine
from satwatch.sat.summary import BatchSummary, diagnostics, summarize
from satwatch.sat.tail import TAIL_EDGES, tail_counts
from satwatch.sat.totals import StepTotals
from satwatch.sat.worst import worst_tokens

__all__ = [
    "TAIL_EDGES",
    "BatchSummary",
    "Bracket",
    "ClipBounds",
    "Deltas",
    "Gap",
    "Scores",
    "Sketch",
    "StepTotals",
    "VersionLag",
    "align_routes",
    "clip_bounds",
    "compare_routes",
    "diagnostics",
    "lag_0_tokens",
    "lag_by_length",
    "layer_flip_rates",
    "merge_routing",
    "pack",
    "predicting_positions",
    "quantile_reference",
    "refine",
    "routing_diagnostics",
    "score_batch",
    "split_deltas",
    "summarize",
    "surrogate",
    "tail_counts",
    "unpack",
    "version_lag",
    "worst_tokens",
]
