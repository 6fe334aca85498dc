"""The command line's edge: what a command raises becomes one line on standard error and an exit code."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import typer

from satwatch.cli.extras import advice, brings, lacks_any
from satwatch.errors import SatwatchError

FAILED: Final = 2
INTERRUPTED: Final = 130


def complain(text: object) -> None:
    """Write one line to standard error."""
    typer.echo(f"satwatch: {text}", err=True)


@contextmanager
def exit_codes(ctx: Any) -> Iterator[None]:  # noqa: ANN401 - typer's context class moved between releases
    """Turn the errors that a user can act on into a line each and an exit code; others pass."""
    try:
        yield
    except SatwatchError as error:
        for line in str(error).splitlines():
            complain(line)
        raise typer.Exit(FAILED) from error
    except ModuleNotFoundError as error:
        if not brings((error.name or "").partition(".")[0]):
            raise  # a defect
        complain(advice(ctx.invoked_subcommand))
        raise typer.Exit(FAILED) from error
    except typer.BadParameter as error:
        # What pydantic puts before a ValueError's own words, in the releases of typer that use it.
        error.message = error.message.removeprefix("Value error, ")
        raise
    except KeyboardInterrupt as interrupt:
        raise typer.Exit(INTERRUPTED) from interrupt


def need_server_extra(command: str) -> None:
    """Leave, saying what to install, unless this installation has what a sidecar is made of."""
    _need("server", command)


def need_probe_extra(command: str) -> None:
    """Leave, saying what to install, unless this installation has what looks at engines."""
    _need("probe", command)


def need_dashboard_extra(command: str) -> None:
    """Leave, saying what to install, unless this installation has what draws the dashboard."""
    _need("dashboard", command)


def _need(extra: str, command: str) -> None:
    if lacks_any(extra):
        complain(advice(command))
        raise typer.Exit(FAILED)


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
