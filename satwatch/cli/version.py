"""``satwatch version``: what is installed."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Annotated, Final

import typer

import satwatch

NOT_INSTALLED: Final = "not installed"
PACKAGES: Final = (
    "torch",
    "numpy",
    "grpcio",
    "protobuf",
    "typer",
    "rich",
    "pyarrow",
    "safetensors",
    "prometheus-client",
    "pydantic",
    "sqlalchemy",
    "psycopg",
    "httpx",
    "streamlit",
    "plotly",
)


def version(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the versions that a bug report needs.

    [bold]Example:[/bold] satwatch version --json

    [bold]Exit codes:[/bold] 0.
    """
    versions = {"satwatch": satwatch.__version__, "python": platform.python_version(), "os": platform.platform()}
    versions |= {package: _installed(package) for package in PACKAGES} | {"cuda": _cuda()}
    if as_json:
        typer.echo(json.dumps(versions))
        return
    for package, number in versions.items():
        typer.echo(f"{package:<17} {number}")


def _installed(package: str) -> str:
    # From the metadata, which a package that can't be imported has too.
    try:
        return installed(package)
    except PackageNotFoundError:
        return NOT_INSTALLED


def _cuda() -> str:
    """Tell the CUDA release that torch was built for, and how many devices it sees."""
    try:
        import torch
    except ImportError:
        return NOT_INSTALLED
    release = torch.version.cuda
    if release is None:
        return "not in this build of torch"
    if not torch.cuda.is_available():
        return f"{release}, no device"
    count = torch.cuda.device_count()
    return f"{release}, {count} device{'s' if count > 1 else ''}"
