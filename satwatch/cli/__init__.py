"""The command line. ``main`` is the entry point; everything heavy is imported by the command that needs it."""

from __future__ import annotations

import sys

from satwatch.cli.extras import advice, brings
from satwatch.cli.output import guard_output

__all__ = ["main"]


def main() -> None:
    """Run the command line, or say what to install when the ``cli`` extra is missing."""
    guard_output()
    try:
        from satwatch.cli.app import app
    except ModuleNotFoundError as error:
        if not brings((error.name or "").partition(".")[0]):
            raise
        command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        sys.stderr.write(f"satwatch: {advice(command)}\n")
        sys.exit(2)
    try:
        app(prog_name="satwatch")
    finally:
        if sys.stdout is not None:  # as it is under >&-
            sys.stdout.flush()  # here a closed pipe still becomes an exit code; at the interpreter's exit it can't
