"""Standard output and standard error whose reader may leave, as ``head`` does, or whose disk may be full.

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
NOT_WRITTEN: Final = 2


class _Pipe(io.FileIO):
    """A file descriptor that calls back when it can't be written any more, and takes what comes after that."""

    def __init__(self, descriptor: int, on_error: Callable[[OSError], object]) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._on_error = on_error

    def write(self, data: ReadableBuffer, /) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            # A reader that leaves in the middle cuts a write short, and under python -u nobody asks for the rest.
            while left:
                written = super().write(left)
                if not written:  # it would block, and must not
                    return size - len(left) or written
                left = left[written:]
        except OSError as error:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            self._on_error(error)
        return size


def guard_output() -> None:
    """End the program with exit code 141 once nobody reads its output, and with 2 where it can't be written.

    A message that nobody reads ends nothing: a sidecar outlives the reader of its log.
    """
    sys.stdout = _guarded(sys.stdout, _leave)
    sys.stderr = _guarded(sys.stderr, lambda error: None)


def _leave(error: OSError) -> NoReturn:
    # Not an OSError, which the libraries would handle in their own way.
    if isinstance(error, BrokenPipeError):
        sys.exit(PIPE_CLOSED)
    sys.stderr.write(f"satwatch: standard output: {error.strerror}\n")
    sys.exit(NOT_WRITTEN)


def _guarded(stream: TextIO, on_error: Callable[[OSError], object]) -> TextIO:
    """Return a stream that writes to the same place in the same way; one that isn't a file's comes back as it is."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    pipe = _Pipe(stream.fileno(), on_error)
    buffered = isinstance(stream.buffer, io.BufferedWriter)  # not under python -u
    return io.TextIOWrapper(
        io.BufferedWriter(pipe) if buffered else cast(io.BufferedWriter, pipe),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
