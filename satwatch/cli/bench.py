"""``satwatch bench``: what satwatch costs here."""

from __future__ import annotations

import json
import logging
from typing import Annotated

import typer

from satwatch.cli.edge import need_server_extra, sigterm_unwinds


def bench(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object; times are seconds.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few repeats: shows that it runs, no numbers to quote.")
    ] = False,
    large: Annotated[bool, typer.Option("--large", help="The 16M-token quantile too; takes another minute.")] = False,
) -> None:
    """Measure what satwatch costs on this machine, beside what it's compared with.

    Times the exact quantile against numpy and torch, bounds and diagnostics in process, a 32k microbatch's round trip
    through a sidecar against a bare gRPC server, a call and a hook while no sidecar is there, a sidecar that watches
    stand-in engines against one that doesn't, the probe's judge and its looks, the dashboard's page [bold]Now[/bold] of
    500 and of 10,000 stored steps, in Chromium too where Playwright is, and, in a checkout with TRL installed
    ([bold]make trainers[/bold]), a step of TRL with its hook and without. The candidates take turns.

    [bold]Example:[/bold] satwatch bench --json > bench.json

    [bold]Exit codes:[/bold] 0 measured, 2 the sidecar or the dashboard did not start.
    """
    need_server_extra("bench")
    from dataclasses import asdict

    from rich.console import Console

    from satwatch.bench.run import run_bench
    from satwatch.bench.tables import show

    # That no sidecar is there is what the last part measures, and no news.
    logging.getLogger("satwatch").addHandler(logging.NullHandler())
    progress = Console(stderr=True, highlight=False)
    with sigterm_unwinds():
        results = run_bench(quick=quick, large=large, on_part=lambda part: progress.print(f"measuring: {part}"))
    if as_json:
        typer.echo(json.dumps(asdict(results), allow_nan=False))
    else:
        show(Console(highlight=False), results)
