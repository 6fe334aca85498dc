"""Recorded batches, offline: the bounds and diagnostics that the sidecar would have given."""

from satwatch.analyze.analysis import Analysis, analyze_batch
from satwatch.analyze.batch import RecordedBatch, recorded_batch
from satwatch.analyze.files import Outcome, analyze_files

__all__ = ["Analysis", "Outcome", "RecordedBatch", "analyze_batch", "analyze_files", "recorded_batch"]
