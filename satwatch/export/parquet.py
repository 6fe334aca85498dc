"""Writes rows to Parquet, all in the columns that any of them has.

Which diagnostics a run has shows only at its last step: rows wait in a temporary file until then, and not in memory.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, BinaryIO, Final, Literal, Union, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from satwatch.export.columns import COLUMNS, Kind
from satwatch.export.rows import Row

# Rows that are in memory at once, and a row group of the file.
CHUNK: Final = 500

_SIMPLE: Final[Mapping[Any, pa.DataType]] = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


def write_parquet(kind: Kind, rows: Iterable[Row], file: BinaryIO, folder: Path) -> int:
    """Write rows of a kind, compressed with zstd.

    Args:
        kind: what a row is.
        rows: the rows; what has no value is absent or None.
        file: where to.
        folder: where the temporary file is.

    Returns:
        The number of rows.
    """
    count, schema = 0, schema_of(kind)
    with tempfile.TemporaryFile(dir=folder) as waiting:
        for chunk in _chunks(rows):
            table = pa.Table.from_pylist(chunk, schema=_with_diagnostics(schema_of(kind), chunk))
            schema = pa.unify_schemas([schema, table.schema], promote_options="permissive")
            with pa.ipc.new_stream(waiting, table.schema) as stream:
                stream.write_table(table)
            count += len(chunk)
        waiting.seek(0)
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for _ in range(0, count, CHUNK):
                writer.write_table(_widened(pa.ipc.open_stream(waiting).read_all(), schema), row_group_size=CHUNK)
    return count


def schema_of(kind: Kind) -> pa.Schema:
    """Return the columns that every file of a kind has."""
    return pa.schema([(name, _arrow_type(hint)) for name, hint in COLUMNS[kind].items()])


def _arrow_type(hint: Any) -> pa.DataType:  # noqa: ANN401 - any type's hint
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):  # with None: every column may lack a value
        (hint,) = (argument for argument in arguments if argument is not NoneType)
        return _arrow_type(hint)
    if origin is tuple:
        return pa.list_(_arrow_type(arguments[0]))
    if origin is Literal:
        return pa.string()
    if is_dataclass(hint):
        return pa.struct([(name, _arrow_type(of)) for name, of in get_type_hints(hint).items()])
    return _SIMPLE[hint]


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    left = iter(rows)
    while chunk := list(itertools.islice(left, CHUNK)):
        yield chunk


def _with_diagnostics(schema: pa.Schema, chunk: list[Row]) -> pa.Schema:
    """Return the schema with what else some of the rows have: counts, and numbers of any other kind."""
    more: dict[str, pa.DataType] = {}
    for row in chunk:
        for name in row.keys() - set(schema.names):
            is_count = isinstance(row[name], int) and more.get(name, pa.int64()) == pa.int64()
            more[name] = pa.int64() if is_count else pa.float64()
    order = dict.fromkeys(name for row in chunk for name in row if name in more)
    return pa.schema([*schema, *((name, more[name]) for name in order)])


def _widened(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), table], promote_options="permissive").select(schema.names)
