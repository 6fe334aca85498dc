"""The mathematics: staleness-adaptive trust regions (SAT, arXiv 2607.18722) on tensors.

Pure: values in, values out, no sockets, threads or files.
"""

from satwatch.sat.alignment import align_routes, predicting_positions
from satwatch.sat.bounds import clip_bounds, surrogate
from satwatch.sat.interval import ClipBounds
from satwatch.sat.lag import VersionLag, version_lag
from satwatch.sat.packed import pack, unpack
from satwatch.sat.quantile import quantile_reference
from satwatch.sat.routes import compare_routes
from satwatch.sat.routing import layer_flip_rates, merge_routing, routing_diagnostics
from satwatch.sat.scores import Scores, score_batch
from satwatch.sat.sketch import Bracket, Sketch, refine
from satwatch.sat.summary import BatchSummary, diagnostics, summarize

__all__ = [
    "BatchSummary",
    "Bracket",
    "ClipBounds",
    "Scores",
    "Sketch",
    "VersionLag",
    "align_routes",
    "clip_bounds",
    "compare_routes",
    "diagnostics",
    "layer_flip_rates",
    "merge_routing",
    "pack",
    "predicting_positions",
    "quantile_reference",
    "refine",
    "routing_diagnostics",
    "score_batch",
    "summarize",
    "surrogate",
    "unpack",
    "version_lag",
]
