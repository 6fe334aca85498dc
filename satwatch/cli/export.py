"""``satwatch export``: the history as files that other programs read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from satwatch.addresses import DEFAULT_ADDRESS
from satwatch.cli.edge import need_server_extra, sigterm_unwinds
from satwatch.cli.numbers import whole_number
from satwatch.cli.written import Force, refuse_lost


def export(
    output: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="FILE.parquet or FILE.jsonl; - writes JSONL to standard output."),
    ],
    store: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="The history: a file, or postgresql://...; auto is the file of a sidecar on 127.0.0.1:4820.",
        ),
    ] = "auto",
    run: Annotated[str, typer.Option(metavar="NAME", help="The run; without it, the one heard of last.")] = "",
    life: Annotated[
        int, typer.Option(metavar="N", parser=whole_number, help="Which life of the run; 0 is the newest.")
    ] = 0,
    what: Annotated[
        Literal["steps", "batches", "versions", "events", "engines"],
        typer.Option(metavar="KIND", help="A row each: steps, batches, versions, events or engines."),
    ] = "steps",
    first_step: Annotated[
        int | None, typer.Option(metavar="N", parser=whole_number, help="The first step wanted.")
    ] = None,
    last_step: Annotated[
        int | None, typer.Option(metavar="N", parser=whole_number, help="The last step wanted.")
    ] = None,
    force: Force = False,
) -> None:
    """Write the history of a run to a Parquet or JSONL file.

    Steps have every diagnostic as a column, and the sums behind them, which [bold]satwatch analyze[/bold] merges. A
    sidecar may go on writing the history meanwhile.

    [bold]Example:[/bold] satwatch export run.parquet --run my-run

    [bold]Example:[/bold] satwatch export - --store demo.sqlite --what events

    [bold]Exit codes:[/bold] 0 written, 2 wrong use, an unknown run, or a file that can't be read or written or is there
    already.
    """
    need_server_extra("export")
    from satwatch.export import table, write
    from satwatch.export.writers import STDOUT, check_output
    from satwatch.history import open_store

    if output != STDOUT:
        refuse_lost("FILE", output, force=force)
    check_output(output)
    history = open_store(_own_file() if store == "auto" else store, read_only=True)
    try:
        rows = table(history, what, run, life=life, first_step=first_step, last_step=last_step)
        with sigterm_unwinds(), _progress(rows.count, show=output != STDOUT) as advance:
            count = write(rows, output, advance)
    finally:
        history.close()
    target = "standard output" if output == STDOUT else output
    of = f"{rows.of.run} (life {rows.of.life})"
    one = what.removesuffix("es" if what == "batches" else "s")
    typer.echo(f"{target}: {count:,} {one if count == 1 else what} of {of}, from {history.url}", err=True)


def _own_file() -> str:
    from satwatch.server.storing import auto_path

    return str(auto_path(DEFAULT_ADDRESS))


@contextmanager
def _progress(count: int | None, *, show: bool) -> Iterator[Callable[[], object]]:
    if not show or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("rows"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=count)
        yield lambda: progress.advance(task)
