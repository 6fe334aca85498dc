"""``satwatch serve`` and ``satwatch check-config``: the sidecar and its settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar="SATWATCH_CONFIG", metavar="FILE", help="A TOML file of settings."),
]


def _devices() -> list[str]:
    return ["auto", "cpu", "cuda", "cuda:0"]


def serve(
    config: ConfigFile = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="HOST:PORT or unix:PATH; may be repeated. Port 0 picks a free one."),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(metavar="N", help="Port of /metrics; 0 picks a free one, -1 turns it off.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="auto|cpu|cuda[:N]", autocompletion=_devices, help="Where bounds are computed."),
    ] = None,
    threads: Annotated[int | None, typer.Option(metavar="N", help="CPU threads of one computation.")] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None, typer.Option(help="The least level that is logged.")
    ] = None,
) -> None:
    """Run the sidecar until SIGTERM or Ctrl-C.

    Its first line of output names every address. Arguments beat the file, the file beats the defaults
    (gRPC 127.0.0.1:4820, metrics 127.0.0.1:9820).

    [bold]Example:[/bold] satwatch serve --listen 127.0.0.1:4820 --listen unix:/run/satwatch.sock

    [bold]Exit codes:[/bold] 0 drained and stopped, 2 a wrong setting or an address that can't be bound.
    """
    from satwatch.server import serve as run
    from satwatch.server.settings import load_settings

    arguments = {
        "listen": tuple(listen) if listen else None,
        "metrics_port": metrics_port,
        "device": device,
        "threads": threads,
        "log_level": log_level,
    }
    raise typer.Exit(run(load_settings(config, arguments)))


def check_config(file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file of settings.")]) -> None:
    """Check a settings file and print the settings that [bold]serve[/bold] would run with, as TOML.

    [bold]Example:[/bold] satwatch check-config satwatch.toml

    [bold]Exit codes:[/bold] 0 valid, 2 not: the message names the setting, what came and what is required.
    """
    from satwatch.server.settings import load_settings

    settings = load_settings(file)
    for name, value in settings.model_dump(mode="json").items():
        # For strings, numbers and lists of them JSON is TOML.
        origin = file.name if name in settings.model_fields_set else "default"
        typer.echo(f"{f'{name} = {json.dumps(value)}':<40}  # {origin}")
