"""Writes rows to files; a file appears whole or not at all, and what stood there before stays until then."""

from __future__ import annotations

import json
import math
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from satwatch.errors import ConfigError, SatwatchError, required
from satwatch.export.rows import Row, Table

FORMATS: Final = (".jsonl", ".parquet")
STDOUT: Final = Path("-")

Advance: TypeAlias = Callable[[], object]


def check_output(output: Path) -> None:
    """Refuse a file that can't be written, before anything is read.

    Raises:
        ConfigError: an extension that names no format, a folder, or a folder that doesn't exist.
    """
    if output == STDOUT:
        return
    if output.suffix.lower() not in FORMATS:
        came = f"{output}, of which the extension names no format"
        raise ConfigError(required("output", came, f"{' or '.join(FORMATS)}, or - for JSONL on standard output"))
    if output.is_dir():
        raise ConfigError(required("output", f"{output}, a folder", "a file"))
    if not output.absolute().parent.is_dir():
        raise ConfigError(required("output", output, f"a folder that exists: {output.absolute().parent} does not"))


def write(table: Table, output: Path, advance: Advance = lambda: None) -> int:
    """Write a table to a file, in the format that its name says; ``-`` is JSONL on standard output.

    Args:
        table: the rows.
        output: the file; it is replaced when all rows are written.
        advance: called after each row.

    Returns:
        The number of rows.

    Raises:
        ConfigError: an unknown format, or a file that can't be written; and what reading the rows raises.
    """
    check_output(output)
    rows = _counted(table.rows(), advance)
    if output == STDOUT:
        return _write_lines(rows, lambda line: sys.stdout.write(line.decode("ascii")))
    with _replacing(output) as file:
        if output.suffix.lower() == ".jsonl":
            return _write_lines(rows, file.write)
        from satwatch.export.parquet import write_parquet

        return write_parquet(table.kind, rows, file, output.absolute().parent)


def _counted(rows: Iterable[Row], advance: Advance) -> Iterator[Row]:
    for row in rows:
        yield row
        advance()


@contextmanager
def _replacing(output: Path) -> Iterator[BinaryIO]:
    part = output.with_name(f".{output.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            yield file
        part.replace(output)
    except SatwatchError:  # some are OSErrors too
        raise
    except OSError as error:
        came = f"{output} ({error.strerror or error})"
        raise ConfigError(required("output", came, "a file that can be written")) from error
    finally:
        with suppress(OSError):
            part.unlink()


def _write_lines(rows: Iterable[Row], write_line: Callable[[bytes], object]) -> int:
    count = 0
    for row in rows:
        write_line(json.dumps(_plain(row), allow_nan=False).encode("ascii") + b"\n")
        count += 1
    return count


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Return a value as strict JSON has it: numbers that aren't finite become strings, as ``analyze`` reads them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
