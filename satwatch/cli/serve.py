"""``satwatch serve`` and ``satwatch check-config``: the sidecar and its settings."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from satwatch.cli.edge import need_server_extra
from satwatch.cli.numbers import whole_number
from satwatch.cli.settings_file import CONFIG_VARIABLE, named

if TYPE_CHECKING:
    from pydantic import BaseModel


def _devices() -> list[str]:
    return ["auto", "cpu", "cuda", "cuda:0"]


def serve(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", envvar=CONFIG_VARIABLE, metavar="FILE", help="A TOML file of settings."),
    ] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="HOST:PORT or unix:PATH; may be repeated. Port 0 picks a free one."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole_number, help="Port of /metrics; 0 picks a free one, -1 turns it off."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="auto|cpu|cuda[:N]", autocompletion=_devices, help="Where bounds are computed."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Where the history is kept: a file, postgresql://..., auto, or none to keep none."
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(metavar="N", parser=whole_number, help="CPU threads of one computation.")
    ] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        typer.Option(metavar="LEVEL", help="The least level that is logged: debug, info, warning or error."),
    ] = None,
) -> None:
    """Run the sidecar until SIGTERM or Ctrl-C.

    Its first line of output names every address. Arguments beat the file, the file beats the defaults
    (gRPC 127.0.0.1:4820, metrics 127.0.0.1:9820).

    [bold]Example:[/bold] satwatch serve --listen 127.0.0.1:4820 --listen unix:/run/satwatch.sock

    [bold]Exit codes:[/bold] 0 drained and stopped, 2 a wrong setting or an address that can't be bound.
    """
    need_server_extra("serve")
    from satwatch.server import serve as run
    from satwatch.server.settings import load_settings

    # At debug level these two tell of themselves at length, and nothing of the sidecar.
    for library in ("asyncio", "grpc"):
        logging.getLogger(library).setLevel(logging.INFO)
    arguments = {
        "listen": tuple(listen) if listen else None,
        "metrics_port": metrics_port,
        "device": device,
        "store": store,
        "threads": threads,
        "log_level": log_level,
    }
    raise typer.Exit(run(load_settings(config, arguments, named(config))))


def check_config(
    file: Annotated[Path, typer.Argument(envvar=CONFIG_VARIABLE, metavar="FILE", help="A TOML file of settings.")],
) -> None:
    """Check a settings file and print the settings that [bold]serve[/bold] would run with, as TOML.

    Every fault of the file is reported at once, a line each.

    [bold]Example:[/bold] satwatch check-config satwatch.toml

    [bold]Exit codes:[/bold] 0 valid, 2 not: the message names the setting, what came and what is required.
    """
    need_server_extra("check-config")
    from satwatch.server.settings import load_settings

    settings = load_settings(file, name=named(file))
    _print_settings(settings, named(file, file.name))


def _print_settings(settings: BaseModel, file: str) -> None:
    """Print settings as TOML, each with its origin; what is not set has no value in TOML, and is left out."""
    tables = {}
    for name, value in settings.model_dump(mode="json", exclude_none=True).items():
        if isinstance(value, dict):
            tables[name] = getattr(settings, name)
        else:
            typer.echo(
                f"{f'{name} = {_toml(value)}':<40}  # {file if name in settings.model_fields_set else 'default'}"
            )
    for name, table in tables.items():
        typer.echo(f"\n[{name}]")
        _print_settings(table, file)


def _toml(value: object) -> str:
    """Write a string, a number, a boolean or a list of them.

    >>> _toml(["a", 1]), _toml(True)
    ('["a", 1]', 'true')
    """
    # JSON is TOML for these, but for the escapes of characters beyond 16 bits and the lack of one for delete.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
