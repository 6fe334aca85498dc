"""The commands, put together."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

import satwatch
from satwatch.cli.analyze import analyze
from satwatch.cli.bench import bench
from satwatch.cli.check import check
from satwatch.cli.dashboard import dashboard
from satwatch.cli.demo import demo
from satwatch.cli.edge import exit_codes
from satwatch.cli.export import export
from satwatch.cli.forecast import forecast
from satwatch.cli.probe import probe
from satwatch.cli.serve import check_config, serve
from satwatch.cli.shipped import grafana, prometheus
from satwatch.cli.version import version


class _PlainHelp:
    """Help without the names of Python's types, which typer's releases show in ways of their own."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 - typer's own signature; see Commands.invoke
        """Return the parameters: a flag takes no value, and what an argument is its help says."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc] # the command's, which this is mixed into
        for parameter in parameters:
            if isinstance(parameter, TyperArgument):
                vars(parameter)["display_type_rich"] = lambda ctx: None
            elif parameter.is_flag:
                parameter.metavar = ""
        return parameters


class Command(_PlainHelp, TyperCommand):
    """A command whose help names its arguments as the manual does."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401 - see Commands.invoke
        """Return the words of the usage line."""
        arguments = [parameter for parameter in self.params if isinstance(parameter, TyperArgument)]
        names = [f"{argument.metavar}" if argument.required else f"[{argument.metavar}]" for argument in arguments]
        return [self.options_metavar or "", *names]


class Commands(_PlainHelp, TyperGroup):
    """The group of all commands, with satwatch's exit codes around each of them."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's own signature; its context class moved between releases
        """Run a command."""
        with exit_codes(ctx):
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=(
        "Exit codes: 0 done, 1 what --fail-on names was found, 2 wrong use or a failed start, 130 interrupted, "
        "141 nobody reads the output any more, 143 ended by SIGTERM."
    ),
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
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Watch and guard asynchronous LLM reinforcement learning.

    A trainer asks the sidecar how far each token may move and gets SAT clip bounds back. Start one with
    [bold]satwatch serve[/bold], see it all work with [bold]satwatch demo[/bold], look at runs with
    [bold]satwatch dashboard[/bold], at rollout engines with [bold]satwatch probe[/bold], and at recorded batches with
    [bold]satwatch analyze[/bold].
    """


app.callback(help=_paragraphs(_satwatch))(_satwatch)
for command, name in (
    (serve, "serve"),
    (dashboard, "dashboard"),
    (probe, "probe"),
    (analyze, "analyze"),
    (export, "export"),
    (grafana, "grafana"),
    (prometheus, "prometheus"),
    (demo, "demo"),
    (check, "check"),
    (check_config, "check-config"),
    (bench, "bench"),
    (forecast, "forecast"),
    (version, "version"),
):
    app.command(name, cls=Command, help=_paragraphs(command))(command)
