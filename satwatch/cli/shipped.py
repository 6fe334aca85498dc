"""``satwatch grafana`` and ``satwatch prometheus``: files that come with satwatch, for others to load."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import typer

from satwatch.errors import ConfigError, required

PROMETHEUS_FILES: Final = ("prometheus.yml", "satwatch.rules.yml", "alertmanager.yml")
DASHBOARD: Final = "satwatch.json"


def grafana(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there instead of printing it.")
    ] = None,
) -> None:
    """Print the Grafana dashboard, as JSON for Dashboards > New > Import or for provisioning.

    It asks for a Prometheus data source, and has variables for the run and the engine.

    [bold]Example:[/bold] satwatch grafana > satwatch.json

    [bold]Exit codes:[/bold] 0 printed, 2 a file that can't be written.
    """
    text = _shipped("grafana", DASHBOARD)
    if output is None:
        typer.echo(text, nl=False)
    else:
        _write(output, text)


def prometheus(
    folder: Annotated[
        Path | None,
        typer.Option("--write", metavar="FOLDER", help="Write all of the files there instead of printing the rules."),
    ] = None,
) -> None:
    """Print the recording and alert rules for Prometheus, or write them with a configuration to start from.

    The folder gets prometheus.yml, satwatch.rules.yml and alertmanager.yml; a file that is there already is not
    overwritten.

    [bold]Example:[/bold] satwatch prometheus --write /etc/prometheus

    [bold]Exit codes:[/bold] 0 done, 2 a file that can't be written or is there already.
    """
    if folder is None:
        typer.echo(_shipped("prometheus", "satwatch.rules.yml"), nl=False)
        return
    there = [name for name in PROMETHEUS_FILES if (folder / name).exists()]
    if there:
        raise ConfigError(required("write", f"{folder / there[0]}, which is there already", "a folder without it"))
    for name in PROMETHEUS_FILES:
        _write(folder / name, _shipped("prometheus", name))


def _shipped(folder: str, name: str) -> str:
    return files("satwatch._dashboard").joinpath(folder, name).read_text(encoding="utf-8")


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(required("output", f"{file} ({error.strerror})", "a file that can be written")) from error
    typer.echo(file)
