"""Processes of the benchmark's own: started when needed, ended with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from satwatch.errors import UnavailableError, required
from satwatch.processes import CLOSE_SECONDS, RUN_MODULE, end


@contextmanager
def child(*arguments: str) -> Iterator[dict[str, list[str]]]:
    """Run ``python -m`` with these arguments until the block ends.

    Yields:
        The words ``name=value`` of its first line of output, by name; a name may come more than once.

    Raises:
        UnavailableError: it ended before its first line.
    """
    # A group of its own: Ctrl-C reaches the benchmark alone, which then ends its children in order.
    process = subprocess.Popen(
        [sys.executable, *RUN_MODULE, *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        words = _first_words(process)
        if not words:
            command = " ".join(arguments)
            raise UnavailableError(
                required("child", f"exit code {process.wait(CLOSE_SECONDS)} of {command}", "its addresses")
            )
        yield words
    finally:
        _end(process)


def _first_words(process: subprocess.Popen[str]) -> dict[str, list[str]]:
    words: dict[str, list[str]] = {}
    line = process.stdout.readline() if process.stdout is not None else ""
    for word in line.split():
        name, equals, value = word.partition("=")
        if equals:
            words.setdefault(name, []).append(value)
    return words


def _end(process: subprocess.Popen[str]) -> None:
    end(process)
    if process.stdout is not None:
        process.stdout.close()
