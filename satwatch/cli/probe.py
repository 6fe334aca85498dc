"""``satwatch probe``: are the engines serving what they say, and how far behind are they?"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, get_args

import typer

from satwatch.cli.edge import need_probe_extra
from satwatch.cli.numbers import number
from satwatch.errors import ConfigError, required
from satwatch.types import EngineState, EngineStatus, FindingKind

if TYPE_CHECKING:
    from satwatch.cli.engines_view import View
    from satwatch.probe.settings import ProbeSettings
    from satwatch.probe.watch import Exchange, Watcher

CONFIG_VARIABLE: Final = "SATWATCH_CONFIG"
FOUND: Final = 1
ANY: Final = "any"
FAULTS: Final = (
    *(state for state in get_args(EngineState) if state != "serving"),
    *get_args(FindingKind),
    ANY,
)
_SOURCES: Final = "--engine URL, --router URL, --engines-file FILE, or a [probe] table in --config FILE"


def _faults() -> list[str]:
    return [*FAULTS]


def _fault(text: str) -> str:
    if text in FAULTS:
        return text
    refusal = f"got {text!r}, required one of {', '.join(FAULTS)}"
    raise typer.BadParameter(refusal)


def probe(
    engine: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="An engine, as http://HOST:PORT or HOST:PORT; may be repeated."),
    ] = None,
    router: Annotated[
        str | None, typer.Option(metavar="URL", help="An sglang-router, whose workers are looked at.")
    ] = None,
    engines_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Engine URLs, one a line; read again when it changes.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", envvar=CONFIG_VARIABLE, metavar="FILE", help="A TOML file with a table named probe."
        ),
    ] = None,
    sidecar: Annotated[
        str | None,
        typer.Option(
            envvar="SATWATCH_ADDRESS",
            metavar="ADDRESS",
            help="Report to this sidecar, HOST:PORT or unix:PATH, and learn the trainer's versions from it.",
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(envvar="SATWATCH_RUN", metavar="NAME", help="The run that the engines generate for."),
    ] = None,
    period: Annotated[
        float | None, typer.Option(metavar="SECONDS", parser=number, help="How often each engine is looked at.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", parser=number, help="How long a look may take.")
    ] = None,
    no_canary: Annotated[bool, typer.Option("--no-canary", help="Score no canaries.")] = False,
    no_checksum: Annotated[bool, typer.Option("--no-checksum", help="Ask for no checksums.")] = False,
    api_key_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Holds the engines' api key.")] = None,
    admin_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Holds the engines' admin key, for checksums only.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="One round, about a second, and no more.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object an engine and round, one a line.")
    ] = False,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT",
            parser=_fault,
            autocompletion=_faults,
            help="Exit with 1 if an engine ends in this state or with this finding; may be repeated; any is all.",
        ),
    ] = None,
) -> None:
    """Watch rollout engines: what each serves, how far behind it is, and whether its weights are what it says.

    Looks at SGLang and vLLM servers and changes nothing in them. On a terminal it shows a live table until Ctrl-C.
    With [bold]--sidecar[/bold] it knows what the trainer published, and so the lag.

    [bold]Example:[/bold] satwatch probe --engine 127.0.0.1:30000 --sidecar 127.0.0.1:4820

    [bold]Example:[/bold] satwatch probe --router http://127.0.0.1:30000 --once --json --fail-on wrong_weights

    [bold]Exit codes:[/bold] 0 looked, or ended by Ctrl-C or SIGTERM, 1 what --fail-on names was found, 2 wrong use.
    """
    need_probe_extra("probe")
    from satwatch.probe.loading import load_probe_settings
    from satwatch.probe.watch import Watcher

    if not (engine or router or engines_file or config):
        raise ConfigError(required("engines", "none", _SOURCES))
    arguments = {
        "engines": tuple(engine) if engine else None,
        "router": router,
        "engines_file": engines_file,
        "run": run,
        "period_seconds": period,
        "timeout_seconds": timeout,
        "canary": False if no_canary else None,
        "checksum": False if no_checksum else None,
        "api_key_file": api_key_file,
        "admin_key_file": admin_key_file,
    }
    settings = load_probe_settings(config, arguments, _named(config))
    view = _view(as_json=as_json, once=once, has_sidecar=sidecar is not None)
    with ExitStack() as stack:
        statuses = _watch(Watcher(settings, _exchange(sidecar, settings, stack)), view, once=once)
    if fails(statuses, fail_on or ()):
        raise typer.Exit(FOUND)


def fails(statuses: Iterable[EngineStatus], wanted: Sequence[str]) -> bool:
    """Tell whether the statuses have a state or a finding that is wanted; no engine at all counts as unknown.

    >>> fails([EngineStatus("a:1", "lagging", version_lag=2)], ["lagging"]), fails([], ["any"]), fails([], ["paused"])
    (True, True, False)
    """
    statuses = [*statuses]
    states = {status.state for status in statuses} or {"unknown"}
    kinds = {finding.kind for status in statuses for finding in status.findings}
    return not (states - {"serving"} | kinds).isdisjoint(FAULTS if ANY in wanted else wanted)


def hint(statuses: Sequence[EngineStatus], *, has_sidecar: bool) -> str:
    """Say why there is nothing to see, or why the lag is unknown; empty: nothing to say."""
    if not statuses:
        return "no engines: none is named where they are looked for"
    if any(status.version_published is not None for status in statuses):
        return ""
    if has_sidecar:
        return "lag and sync are unknown: the sidecar knows no published version (client.publish_version)"
    return "lag and sync are unknown without --sidecar ADDRESS, which knows what the trainer published"


def _exchange(address: str | None, settings: ProbeSettings, stack: ExitStack) -> Exchange:
    """Return who is told: the sidecar, or nobody."""
    from satwatch.probe.watch import nothing_known

    if address is None:
        return nothing_known
    from satwatch.client import EngineReporter  # and with it torch, which takes seconds to load

    # Told from another probe's reports by where it runs.
    name = f"{socket.gethostname()}:{os.getpid()}"
    reporter = EngineReporter(address, run=settings.run, probe=name, period_seconds=settings.longest_round_seconds)
    return stack.enter_context(reporter)


def _view(*, as_json: bool, once: bool, has_sidecar: bool) -> View:
    """Return what suits the output."""
    from rich.console import Console

    from satwatch.cli.engines_view import JsonView, LiveView, PlainView

    console = Console(highlight=False)
    said = partial(hint, has_sidecar=has_sidecar)
    if as_json:
        return JsonView(said)
    if console.is_terminal and not console.is_dumb_terminal:
        return PlainView(said, console.width) if once else LiveView(console, said)
    return PlainView(said)


def _watch(watcher: Watcher, view: View, *, once: bool) -> tuple[EngineStatus, ...]:
    """Show one round, or rounds until a signal, and return the last statuses."""
    from satwatch.cli.engines_view import Notes

    with view, Notes(view):
        asyncio.run(_round(watcher, view) if once else _rounds(watcher, view))
    return watcher.statuses


async def _round(watcher: Watcher, view: View) -> None:
    async with watcher:
        view.show(await watcher.once())


async def _rounds(watcher: Watcher, view: View) -> None:
    """Show rounds until Ctrl-C or SIGTERM, the ways in which it is meant to end."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for ending in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(ending, task.cancel)
    with suppress(asyncio.CancelledError):
        await watcher.run(view.show)


def _named(file: Path | None) -> str:
    """Name the settings file, and the environment variable if that names this file, as serve does."""
    from_environment = file is not None and os.environ.get(CONFIG_VARIABLE) == str(file)
    return f"{file}{f', from {CONFIG_VARIABLE}' if from_environment else ''}"
