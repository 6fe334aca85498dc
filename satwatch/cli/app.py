"""The commands, put together."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import satwatch
from satwatch.cli.analyze import analyze
from satwatch.cli.bench import bench
from satwatch.cli.check import check
from satwatch.cli.demo import demo
from satwatch.cli.edge import exit_codes
from satwatch.cli.serve import check_config, serve
from satwatch.cli.version import version


class Commands(TyperGroup):
    """The group of all commands, with satwatch's exit codes around each of them."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's own signature; its context class moved between releases
        """Run a command."""
        with exit_codes():
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 2 wrong use or a failed start, 130 interrupted.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"satwatch {satwatch.__version__}")
        raise typer.Exit


def _paragraphs(command: Callable[..., None]) -> str:
    """Return a docstring whose paragraphs the terminal's width breaks, not the source's."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _satwatch(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Watch and guard asynchronous LLM reinforcement learning.

    A trainer asks the sidecar how far each token may move and gets SAT clip bounds back. Start one with
    [bold]satwatch serve[/bold], see it all work with [bold]satwatch demo[/bold], and look at recorded batches with
    [bold]satwatch analyze[/bold].
    """


app.callback(help=_paragraphs(_satwatch))(_satwatch)
for command, name in (
    (serve, "serve"),
    (analyze, "analyze"),
    (demo, "demo"),
    (check, "check"),
    (check_config, "check-config"),
    (bench, "bench"),
    (version, "version"),
):
    app.command(name, help=_paragraphs(command))(command)
