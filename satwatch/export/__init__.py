"""The history as files that other programs read: JSONL and Parquet."""

from satwatch.export.columns import KINDS, Kind
from satwatch.export.rows import Table, table
from satwatch.export.writers import FORMATS, write

__all__ = ["FORMATS", "KINDS", "Kind", "Table", "table", "write"]
