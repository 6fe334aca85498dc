"""``satwatch grafana`` and ``satwatch prometheus``: files that come with satwatch, for others to load."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from satwatch.cli.written import Force, make_folder, refuse_lost, write_text
from satwatch.errors import ConfigError, required

RULES: Final = "satwatch.rules.yml"
PROMETHEUS_FILES: Final = ("prometheus.yml", RULES, "alertmanager.yml")
DASHBOARD: Final = "satwatch.json"

_ALERT: Final = "{alert}"
_ALERT_LINE: Final = re.compile(r"- alert: (\w+)")
_RUNBOOK_LINE: Final = re.compile(r"(\s+runbook_url: ).*")


def grafana(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there instead of printing it.")
    ] = None,
    force: Force = False,
) -> None:
    """Print the Grafana dashboard, as JSON for Dashboards > New > Import or for provisioning.

    It asks for a Prometheus data source, and has variables for the run and the engine.

    [bold]Example:[/bold] satwatch grafana > satwatch.json

    [bold]Exit codes:[/bold] 0 printed or written, 2 a file that can't be written, or is there already.
    """
    text = _shipped("grafana", DASHBOARD)
    if output is None:
        typer.echo(text, nl=False)
        return
    refuse_lost("--output", output, force=force)
    write_text("--output", output, text)


def prometheus(
    folder: Annotated[
        Path | None,
        typer.Option("--write", metavar="FOLDER", help="Write all of the files there instead of printing the rules."),
    ] = None,
    runbook_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where alerts link to: {alert} in it becomes the alert's name, else #name is put at its end. "
            "Unless given, the page Alerts of a dashboard at 127.0.0.1:8501.",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Print the recording and alert rules for Prometheus, or write them with a configuration to start from.

    The folder, which is made if need be, gets prometheus.yml, satwatch.rules.yml and alertmanager.yml. Either all of
    them are written or, if one is there already, none.

    [bold]Example:[/bold] satwatch prometheus --write /etc/prometheus

    [bold]Example:[/bold] satwatch prometheus --runbook-url https://wiki.example.org/satwatch > satwatch.rules.yml

    [bold]Exit codes:[/bold] 0 printed or written, 2 a file that can't be written, or is there already.
    """
    rules = _shipped("prometheus", RULES)
    if runbook_url is not None:
        rules = linked_to(rules, runbook_url)
    if folder is None:
        typer.echo(rules, nl=False)
        return
    made = {folder / name: rules if name == RULES else _shipped("prometheus", name) for name in PROMETHEUS_FILES}
    if folder.is_dir():
        refuse_lost("--write", *made, force=force)
    else:
        make_folder("--write", folder)
    for file, text in made.items():
        write_text("--write", file, text)


def linked_to(rules: str, runbook_url: str) -> str:
    """Return rules whose alerts link to another runbook.

    Args:
        rules: a rules file as satwatch writes it.
        runbook_url: http or https; ``{alert}`` becomes an alert's name, without it ``#name`` is put at the end.

    Raises:
        ConfigError: no URL that a browser opens.
    """
    parts = urlsplit(runbook_url)
    if parts.scheme not in ("http", "https") or not parts.netloc or not runbook_url.isprintable():
        raise ConfigError(required("--runbook-url", repr(runbook_url), "http://... or https://..."))
    lines, link = [], ""
    for line in rules.splitlines():
        if alert := _ALERT_LINE.search(line):
            # A string of JSON is one of YAML.
            link = json.dumps(_link(runbook_url, alert[1]))
        place = _RUNBOOK_LINE.fullmatch(line)
        lines.append(f"{place[1]}{link}" if place else line)
    return "\n".join(lines) + "\n"


def _link(runbook_url: str, alert: str) -> str:
    """Return where an alert's section is.

    >>> _link("https://wiki.example.org/satwatch", "EssLow"), _link("http://10.0.0.7/alerts?alert={alert}", "EssLow")
    ('https://wiki.example.org/satwatch#esslow', 'http://10.0.0.7/alerts?alert=EssLow')
    """
    return runbook_url.replace(_ALERT, alert) if _ALERT in runbook_url else f"{runbook_url}#{alert.lower()}"


def _shipped(folder: str, name: str) -> str:
    return files("satwatch._dashboard").joinpath(folder, name).read_text(encoding="utf-8")
