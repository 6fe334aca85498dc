"""The command line's edge: what a command raises becomes one line on standard error and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Final

import typer

from satwatch.errors import SatwatchError

FAILED: Final = 2
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

# The extra that brings a module. A missing module that isn't here is a defect and keeps its traceback.
EXTRAS: Final[Mapping[str, str]] = {
    "rich": "cli",
    "pyarrow": "cli",
    "safetensors": "cli",
    "pydantic": "server",
    "prometheus_client": "server",
    "grpc_health": "server",
    "grpc_reflection": "server",
}


def complain(text: object) -> None:
    """Write one line to standard error."""
    typer.echo(f"satwatch: {text}", err=True)


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn the errors that a user can act on into a line and an exit code; others pass."""
    try:
        yield
    except SatwatchError as error:
        complain(error)
        raise typer.Exit(FAILED) from error
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        complain(f"this command needs {module}; pip install 'satwatch[{EXTRAS[module]}]' brings it")
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt as interrupt:
        raise typer.Exit(INTERRUPTED) from interrupt
    except BrokenPipeError as error:
        _drop_output()
        raise typer.Exit(PIPE_CLOSED) from error


@contextmanager
def sigterm_unwinds() -> Iterator[None]:
    """Let SIGTERM end the program as Ctrl-C does, so that the processes it started end too."""

    def leave(signum: int, frame: FrameType | None) -> None:
        raise typer.Exit(128 + signum)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _drop_output() -> None:
    # The reader has left, as `head` does: what Python flushes at exit must go somewhere.
    if sys.__stdout__ is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
