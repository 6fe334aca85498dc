"""``satwatch version``: what is installed."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Annotated, Final

import typer

import satwatch

PACKAGES: Final = ("torch", "numpy", "grpcio", "protobuf")


def version(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the versions that a bug report needs.

    [bold]Example:[/bold] satwatch version --json

    [bold]Exit codes:[/bold] 0.
    """
    versions = {"satwatch": satwatch.__version__, "python": platform.python_version()}
    versions |= {package: _installed(package) for package in PACKAGES}
    if as_json:
        typer.echo(json.dumps(versions))
        return
    for package, number in versions.items():
        typer.echo(f"{package:<9} {number}")


def _installed(package: str) -> str:
    # From the metadata: importing torch for its number takes seconds.
    try:
        return installed(package)
    except PackageNotFoundError:
        return "not installed"
