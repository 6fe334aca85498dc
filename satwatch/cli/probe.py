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
from satwatch.cli.settings_file import CONFIG_VARIABLE, named
from satwatch.errors import ConfigError, required
from satwatch.types import EngineState, EngineStatus, FindingKind

if TYPE_CHECKING:
    from satwatch.cli.engines_view import View
    from satwatch.probe.settings import ProbeSettings
    from satwatch.probe.watch import Exchange, Watcher

FOUND: Final = 1
ANY: Final = "any"
FAULTS: Final = (
    *(state for state in get_args(EngineState) if state != "serving"),
    *get_args(FindingKind),
    ANY,
)
_NO_SIDECAR: Final = " without --sidecar ADDRESS, which knows what the trainer published"
# Of a fleet that names its weights in words, a few are enough to see it.
_MOST_LABELS: Final = 3
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
        typer.Option(
            envvar="SATWATCH_RUN",
            metavar="NAME",
            help="The run that the engines generate for; the only one unless given.",
        ),
    ] = None,
    period: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            parser=number,
            help="How often each engine is looked at; 5 unless given, and less often where looks are slow.",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", parser=number, help="How long a look may take; 2 unless given."),
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
    settings = load_probe_settings(config, arguments, named(config))
    view = _view(as_json=as_json, once=once, has_sidecar=sidecar is not None, run=settings.run)
    with ExitStack() as stack:
        exchange = _exchange(sidecar, settings, stack)
        if once:
            # Whoever looks once watches no longer: else the sidecar would call these engines unknown for an hour.
            stack.callback(exchange, ())
        statuses = _watch(Watcher(settings, exchange), view, once=once)
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


def hint(statuses: Sequence[EngineStatus], *, has_sidecar: bool, run: str = "") -> str:
    """Say why there is nothing to see, or why lag or version is unknown; empty: nothing to say.

    Args:
        statuses: of the engines.
        has_sidecar: whether one was named; it may be away.
        run: that was named; empty: the only one.
    """
    if not statuses:
        return "no engines: neither a router nor an engines file names one"
    hints = []
    if all(status.version_published is None for status in statuses):
        hints.append(f"lag and sync are unknown{_why_nothing_published(run) if has_sidecar else _NO_SIDECAR}")
    labels = {repr(s.version_label) for s in statuses if s.version_served is None and s.version_label is not None}
    if labels:
        named = ", ".join(sorted(labels)[:_MOST_LABELS])
        hints.append(
            f"served is unknown: a label such as {named} is no version; name one in each update (weight_version)"
        )
    return "\n".join(hints)


def _why_nothing_published(run: str) -> str:
    """Say what is missing where a sidecar was named, whether it is away or the trainer is silent."""
    if run:
        return f": the sidecar told of no version published by run {run!r} (client.publish_version)"
    return ": the sidecar told of no published version (client.publish_version; of several runs, name one with --run)"


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


def _view(*, as_json: bool, once: bool, has_sidecar: bool, run: str) -> View:
    """Return what suits the output."""
    from rich.console import Console

    from satwatch.cli.engines_view import JsonView, LiveView, PlainView

    console = Console(highlight=False)
    said = partial(hint, has_sidecar=has_sidecar, run=run)
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
