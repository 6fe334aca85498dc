"""``satwatch analyze``: recorded batches and exported steps, offline."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from satwatch.cli.edge import FAILED, complain
from satwatch.cli.numbers import number
from satwatch.errors import SatwatchError

if TYPE_CHECKING:
    from satwatch.analyze import Outcome

SHOWN_FAULTS: Final = 10


def analyze(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="JSON, JSONL, NPZ, Parquet or safetensors; - reads JSONL from standard input."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a batch, one batch a line.")] = False,
    quantile: Annotated[
        float | None, typer.Option(metavar="X", parser=number, help="Alpha, where the tail begins, inside (0, 1).")
    ] = None,
    eps_low: Annotated[
        float | None, typer.Option(metavar="X", parser=number, help="PPO's lower radius, inside (0, 1).")
    ] = None,
    eps_high: Annotated[
        float | None, typer.Option(metavar="X", parser=number, help="PPO's upper radius, inside (0, 1).")
    ] = None,
    exponent: Annotated[
        float | None, typer.Option(metavar="X", parser=number, help="The Hill kernel's exponent, above 0.")
    ] = None,
    level: Annotated[
        Literal["token", "sequence"] | None,
        typer.Option(metavar="LEVEL", help="What a score is taken over: token or sequence."),
    ] = None,
    min_reference: Annotated[
        float | None, typer.Option(metavar="X", parser=number, help="q is at least this; 1e-3 ignores float noise.")
    ] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="SAT's interval, or PPO's everywhere.")
    ] = None,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Leave out fields that satwatch does not know.")
    ] = False,
) -> None:
    """Compute SAT's bounds and diagnostics of recorded batches, and the diagnostics of exported steps.

    A batch needs [bold]log_ratio[/bold], or [bold]policy_logprob[/bold] and [bold]behavior_logprob[/bold]. A rule
    given as an argument beats what the file says, which beats the defaults. A bad batch is reported with its file,
    place and field; the others are still analyzed. Of a step that [bold]satwatch export[/bold] has written the sums are
    left, and no token: it has diagnostics, and no bounds.

    [bold]Example:[/bold] satwatch analyze step_*.npz --quantile 0.95

    [bold]Example:[/bold] satwatch analyze run.jsonl --json > bounds.jsonl

    [bold]Exit codes:[/bold] 0 every batch was analyzed, 2 one or more couldn't be.
    """
    import torch

    from satwatch.analyze import analyze_files
    from satwatch.types import Rule

    given = {
        "quantile": quantile,
        "eps_low": eps_low,
        "eps_high": eps_high,
        "exponent": exponent,
        "level": level,
        "min_reference": min_reference,
        "enabled": enabled,
    }
    overrides = {name: value for name, value in given.items() if value is not None}
    Rule(**overrides)  # type: ignore[arg-type] # an argument that can't be meant is refused once, not once a batch
    torch.set_num_threads(1)  # for arrays of a microbatch's size, threads cost more than they bring
    outcomes = analyze_files(files, overrides, ignore_unknown=ignore_unknown)
    faults = _Faults()
    show = _print_json if as_json else _print_report
    show(files, outcomes, faults)
    if faults.close():
        raise typer.Exit(FAILED)


def _print_json(files: list[Path], outcomes: Iterable[Outcome], faults: _Faults) -> None:
    from satwatch.analyze.jsonline import json_line

    with _progress(files) as advance:
        for outcome in outcomes:
            advance(outcome)
            if isinstance(outcome.result, SatwatchError):
                faults.add(outcome, outcome.result)
            else:
                typer.echo(json_line(outcome.result, file=str(outcome.file), batch=outcome.batch))


def _print_report(files: list[Path], outcomes: Iterable[Outcome], faults: _Faults) -> None:
    from rich.console import Console

    from satwatch.analyze.report import Report

    report = Report(Console(highlight=False))
    with _progress(files) as advance:
        for outcome in outcomes:
            advance(outcome)
            if isinstance(outcome.result, SatwatchError):
                faults.add(outcome, outcome.result)
            else:
                report.add(outcome.short_name, outcome.result)
    report.finish()


class _Faults:
    """Says what went wrong, a bounded number of times a file, and remembers that something did."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, outcome: Outcome, error: SatwatchError) -> None:
        """Report one fault, or count it when its file has had enough."""
        file = str(outcome.file)
        self._counts[file] += 1
        if self._counts[file] <= SHOWN_FAULTS:
            complain(f"{outcome.name}: {error}")

    def close(self) -> bool:
        """Say how many went unsaid; tell whether there were any faults."""
        for file, count in self._counts.items():
            if count > SHOWN_FAULTS:
                complain(f"{file}: {count - SHOWN_FAULTS:,} more batches like these")
        return bool(self._counts)


@contextmanager
def _progress(files: list[Path]) -> Iterator[Callable[[Outcome], None]]:
    """Show on standard error how far it is, when nothing else does: a terminal there, and none for the output."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda outcome: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files, {task.fields[batches]:,} batches: {task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(files), batches=0)
        batches = itertools.count(1)
        started: list[Path] = []

        def advance(outcome: Outcome) -> None:
            if not started or started[-1] is not outcome.file:
                started.append(outcome.file)
            done = len(started) - 1
            progress.update(task, completed=done, batches=next(batches), description=outcome.file.name)

        yield advance
