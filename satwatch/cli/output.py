"""Standard output and standard error whose reader may leave, as ``head`` does.

The libraries that print each have an answer of their own to a closed pipe. Below all of them is the write itself.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn, TextIO, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PIPE_CLOSED: Final = 141  # what a shell reports of a program that SIGPIPE ended


class _Pipe(io.FileIO):
    """A file descriptor that calls back when nobody reads it any more, and takes what comes after that."""

    def __init__(self, descriptor: int, on_closed: Callable[[], object]) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._on_closed = on_closed

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            self._on_closed()
            return memoryview(data).nbytes


def guard_output() -> None:
    """End the program with exit code 141 once nobody reads its output; do without a reader of its messages.

    A message that nobody reads ends nothing: a sidecar outlives the reader of its log.
    """
    sys.stdout = _guarded(sys.stdout, _leave)
    sys.stderr = _guarded(sys.stderr, lambda: None)


def _leave() -> NoReturn:
    # Not an OSError, which the libraries would handle in their own way.
    sys.exit(PIPE_CLOSED)


def _guarded(stream: TextIO, on_closed: Callable[[], object]) -> TextIO:
    """Return a stream that writes to the same place in the same way; one that isn't a file's comes back as it is."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    pipe = _Pipe(stream.fileno(), on_closed)
    buffered = isinstance(stream.buffer, io.BufferedWriter)  # not under python -u
    return io.TextIOWrapper(
        io.BufferedWriter(pipe) if buffered else cast(io.BufferedWriter, pipe),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
