"""``satwatch dashboard``: the run in a browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer

from satwatch.addresses import ADDRESS_VARIABLE, DEFAULT_ADDRESS, check_address
from satwatch.cli.edge import need_dashboard_extra, need_server_extra, sigterm_unwinds
from satwatch.cli.numbers import whole_number
from satwatch.errors import ConfigError, UnavailableError, required


def dashboard(
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The sidecar to look at, HOST:PORT or unix:PATH; else SATWATCH_ADDRESS, else 127.0.0.1:4820.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Look at a stored history, a file or a database, instead of a sidecar."),
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="N", parser=whole_number, help="Loopback port of the pages; 0 picks a free one.")
    ] = 8501,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser there.")] = False,
) -> None:
    """Show runs in a browser: verdict, tail, bounds, lag, engines, routing, worst tokens, alerts.

    Looks and changes nothing. It listens on 127.0.0.1 only, until Ctrl-C or SIGTERM; its first line of output names its
    address. What it shows comes from the history of a sidecar, or with [bold]--store[/bold] from a file or a database.

    [bold]Example:[/bold] satwatch dashboard --address 127.0.0.1:4820

    [bold]Example:[/bold] satwatch dashboard --store ~/.local/state/satwatch/4820.sqlite

    [bold]Exit codes:[/bold] 0 ended by Ctrl-C, 2 wrong use, a port that is taken or a store that can't be opened,
    143 ended by SIGTERM.
    """
    need_dashboard_extra("dashboard")
    if store is not None and address is not None:
        raise ConfigError(required("dashboard", "--address and --store", "one of the two"))
    from satwatch._dashboard.process import dashboard_process

    with (
        sigterm_unwinds(),
        _history(address, store) as (source, name),
        dashboard_process(source, port, store=name) as running,
    ):
        typer.echo(f"satwatch dashboard {running.url}")
        if open_browser:
            typer.launch(running.url)
        with suppress(KeyboardInterrupt):
            ended = running.wait()
            raise UnavailableError(required("dashboard", f"exit code {ended}", "pages until Ctrl-C"))


@contextmanager
def _history(address: str | None, store: str | None) -> Iterator[tuple[str, str]]:
    """Yield the address of the history, and a stored one's name; it is served on a free port meanwhile."""
    if store is None:
        yield _sidecar(address), ""
        return
    need_server_extra("dashboard")
    from satwatch.history import hide_password, open_store
    from satwatch.server.history_server import serving_history

    opened = open_store(store, read_only=True)
    try:
        with serving_history(opened) as served:
            yield served, hide_password(store)
    finally:
        opened.close()


def _sidecar(address: str | None) -> str:
    """Return the sidecar's address: the option's, else the environment's, else the usual one.

    Raises:
        ConfigError: no address.
    """
    name = "--address" if address is not None else ADDRESS_VARIABLE
    found = address if address is not None else os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
    check_address(found, name)
    return found
