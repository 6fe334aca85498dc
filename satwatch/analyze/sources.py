"""Where recorded batches come from: one reader a file format, all giving the same thing.

A reader yields entries, a place and a way to load the fields there, so that one bad line spoils neither the lines nor
the files after it. JSONL and Parquet are read entry by entry; a JSON, NPZ or safetensors file is read whole.
"""

from __future__ import annotations

import json
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np

from satwatch.analyze.values import described
from satwatch.errors import InvalidBatchError, required

if TYPE_CHECKING:
    import pyarrow as pa

Fields: TypeAlias = Mapping[str, object]

STDIN: Final = Path("-")
# What a Parquet file holds at once: its rows are whole batches, so few of them.
PARQUET_ROWS: Final = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """One recorded batch before it's read.

    Attributes:
        where: its place in the file, such as ``line 3``; empty when the file is one batch.
        load: reads the fields; raises InvalidBatchError when they can't be read.
    """

    where: str
    load: Callable[[], Fields]


def entries(path: Path) -> Iterator[Entry]:
    """Yield the recorded batches of a file, or of standard input (``-``, JSONL), in order.

    Raises:
        InvalidBatchError: no such file, an unknown format, no batch in it, or damage that hides where the next one is.
    """
    reader = READERS.get(".jsonl" if path == STDIN else path.suffix.lower())
    if reader is None:
        what = f"unknown extension {path.suffix}" if path.suffix else "no extension"
        raise InvalidBatchError(_fault(f"{what}; known are {', '.join(READERS)}"))
    if path != STDIN and not path.is_file():
        raise InvalidBatchError(_fault("a folder, no file" if path.is_dir() else "no such file"))
    found = False
    try:
        for entry in reader(path):
            found = True
            yield entry
    except OSError as error:
        raise InvalidBatchError(_fault("can't be read", error.strerror or error)) from error
    if not found:
        raise InvalidBatchError(_fault("holds no batch"))


def _fault(what: str, detail: object = "") -> str:
    """Say what is wrong with a file, in plain words; the file's name comes before it, from whoever shows it."""
    return f"{what}: {detail}" if detail else what


def _json(path: Path) -> Iterator[Entry]:
    if not path.stat().st_size:
        return
    document = _parse(path.read_bytes())
    if isinstance(document, list):
        for index, item in enumerate(document):
            yield Entry(f"batch {index}", partial(_object, item))
    else:
        yield Entry("", partial(_object, document))


def _jsonl(path: Path) -> Iterator[Entry]:
    if path == STDIN:
        yield from _json_lines(sys.stdin.buffer)
    else:
        with path.open("rb") as lines:
            yield from _json_lines(lines)


def _json_lines(lines: Iterable[bytes]) -> Iterator[Entry]:
    for number, line in enumerate(lines, start=1):
        if not line.isspace():
            yield Entry(f"line {number}", lambda line=line: _object(_parse(line.rstrip())))  # type: ignore[misc]


def _parse(text: bytes) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        raise InvalidBatchError(_fault("no JSON", f"{error.msg[0].lower()}{error.msg[1:]} at {at}")) from error
    except UnicodeDecodeError as error:
        raise InvalidBatchError(_fault("no JSON", f"byte {error.object[error.start]:#04x} is not UTF-8")) from error
    except RecursionError as error:
        raise InvalidBatchError(_fault("JSON nested too deep")) from error


def _object(value: object) -> Fields:
    if not isinstance(value, dict):
        raise InvalidBatchError(required("batch", described(value), "an object with a field log_ratio"))
    recorded = value.get("input")
    # A case with its expected answer, as in tests/golden: the batch is its input.
    return {"name": value.get("name"), **recorded} if isinstance(recorded, dict) else value


def _npz(path: Path) -> Iterator[Entry]:
    yield Entry("", partial(_npz_fields, path))


def _npz_fields(path: Path) -> Fields:
    if not zipfile.is_zipfile(path):
        raise InvalidBatchError(_fault("no NPZ archive, or one cut short"))
    try:
        # Pickles run code when they're read; a recorded batch needs none.
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError) as error:
        raise InvalidBatchError(_fault("damaged, or more than plain arrays", error)) from error


def _parquet(path: Path) -> Iterator[Entry]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            row = 0
            for block in file.iter_batches(batch_size=PARQUET_ROWS):
                for index in range(block.num_rows):
                    yield Entry(f"row {row}", partial(_row_fields, block, index))
                    row += 1
    except (pa.ArrowException, OSError) as error:
        raise InvalidBatchError(_fault("damaged, or no Parquet file", error)) from error


def _row_fields(block: pa.RecordBatch, row: int) -> Fields:
    return {name: _cell(column[row]) for name, column in zip(block.schema.names, block.columns, strict=True)}


def _cell(cell: pa.Scalar[Any]) -> object:
    """Return a list of numbers as an array in its stored dtype; a nested list, or one with nulls, as a list."""
    values = getattr(cell, "values", None)
    if values is None or callable(values) or values.null_count or not _is_number(values.type):  # callable: a struct's
        return cell.as_py()
    return values.to_numpy(zero_copy_only=False)


def _is_number(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind))


def _safetensors(path: Path) -> Iterator[Entry]:
    yield Entry("", partial(_safetensors_fields, path))


def _safetensors_fields(path: Path) -> Fields:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return {**_metadata(file.metadata() or {}), **tensors}
    except SafetensorError as error:
        raise InvalidBatchError(_fault("damaged, or no safetensors file", error)) from error


def _metadata(metadata: Mapping[str, str]) -> dict[str, object]:
    """Read metadata's strings as JSON where they are JSON: ``0.8``, ``true``, ``[3, 17]``, and text otherwise."""
    fields: dict[str, object] = {}
    for name, text in metadata.items():
        if name == "format":  # what a tensor library notes about itself
            continue
        try:
            fields[name] = json.loads(text)
        except json.JSONDecodeError:
            fields[name] = text
    return fields


READERS: Final = cast(
    Mapping[str, Callable[[Path], Iterator[Entry]]],
    {
        ".json": _json,
        ".jsonl": _jsonl,
        ".ndjson": _jsonl,
        ".npz": _npz,
        ".parquet": _parquet,
        ".safetensors": _safetensors,
    },
)
