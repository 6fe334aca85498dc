"""The command line. ``main`` is the entry point; everything heavy is imported by the command that needs it."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line, or say what to install when the ``cli`` extra is missing."""
    try:
        from satwatch.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        sys.stderr.write(f"satwatch: the command line needs {error.name}; pip install 'satwatch[cli]' brings it\n")
        sys.exit(2)
    app(prog_name="satwatch")
