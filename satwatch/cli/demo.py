"""``satwatch demo``: a real asynchronous run."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from satwatch.cli.edge import FAILED, complain, need_dashboard_extra, need_server_extra
from satwatch.cli.extras import advice, lacks_any
from satwatch.cli.numbers import whole_number
from satwatch.demo.config import OBJECTIVES, DemoConfig, FaultName, Objective, TaskName

DEFAULTS: Final = DemoConfig()


def _one_of(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def demo(
    objective: Annotated[
        Objective,
        typer.Option(
            metavar="NAME",
            help=f"What is optimized: {_one_of(OBJECTIVES)}. With ppo and gspo the sidecar watches and the interval is "
            "PPO's.",
        ),
    ] = DEFAULTS.objective,
    task: Annotated[
        TaskName,
        typer.Option(metavar="NAME", help="reverse six base-10 digits, or sort four base-8 digits."),
    ] = DEFAULTS.task,
    lag: Annotated[
        int,
        typer.Option(
            metavar="N", parser=whole_number, help="How many versions old the engine's weights are; 0 is synchronous."
        ),
    ] = DEFAULTS.lag,
    steps: Annotated[int, typer.Option(metavar="N", parser=whole_number, help="Optimizer steps.")] = DEFAULTS.steps,
    seed: Annotated[
        int, typer.Option(metavar="N", parser=whole_number, help="Of the weights, the prompts and the sampling.")
    ] = DEFAULTS.seed,
    fault: Annotated[
        FaultName,
        typer.Option(
            metavar="NAME",
            help="What the rollout engine does wrong: none is nothing, lag falls behind, nan has log-probs that are no "
            "numbers, stale-engine names new versions and serves old weights, temperature samples at another one.",
        ),
    ] = DEFAULTS.fault,
    fault_step: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number,
            help="With --fault: from which step on, from 0; a third of the steps if absent.",
        ),
    ] = DEFAULTS.fault_step,
    connect: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Use this sidecar instead of starting one.")
    ] = DEFAULTS.connect,
    store: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Where the history is kept: a file, postgresql://..., none, or auto, a file that demos add to.",
        ),
    ] = DEFAULTS.store,
    dashboard: Annotated[
        bool | None,
        typer.Option("--dashboard/--no-dashboard", help="Show the run in a browser; on a terminal it is the default."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Progress on standard error; the last line of output is one JSON object."),
    ] = False,
) -> None:
    """Train a small policy with asynchronous GRPO, bounds from a sidecar, about a minute on two cores.

    A rollout process serves weights [bold]--lag[/bold] versions old in bfloat16, a learner trains, and every
    microbatch's bounds come from a sidecar over gRPC. A dashboard shows the run while it trains and afterwards, until
    Ctrl-C; its history stays.

    [bold]Example:[/bold] satwatch demo --objective sat --lag 8

    [bold]Example:[/bold] satwatch demo --objective ppo --task sort --steps 100 --json

    [bold]Example:[/bold] satwatch demo --fault stale-engine --fault-step 100

    [bold]Exit codes:[/bold] 0 trained, 2 wrong use, a process that did not start or died, or no sidecar that answered
    at [bold]--connect[/bold], 130 interrupted, 143 ended by SIGTERM.
    """
    if connect is None:
        need_server_extra("demo")
    from satwatch.demo.run import run_demo

    config = DemoConfig(
        objective=objective,
        task=task,
        lag=lag,
        steps=steps,
        seed=seed,
        connect=connect,
        store=store,
        fault=fault,
        fault_step=fault_step,
    )
    summary = run_demo(config, json_output=as_json, dashboard=_is_shown(dashboard, by_default=not as_json))
    if connect is not None and not summary.bounds_from_sidecar:
        by_itself = f"the trainer bounded all {summary.batches_sent:,} by itself"
        complain(f"{connect}: no sidecar there bounded a batch, {by_itself}; to see why: satwatch check {connect}")
        raise typer.Exit(FAILED)


def _is_shown(wanted: bool | None, *, by_default: bool) -> bool:
    """Tell whether there is to be a dashboard: where a person looks on, unless they say; they hear what it lacks."""
    if wanted:
        need_dashboard_extra("dashboard")
        return True
    if wanted is False or not by_default or not _is_on_terminal():
        return False
    if lacks_any("dashboard"):
        typer.echo(advice("dashboard"))
        return False
    return True


def _is_on_terminal() -> bool:
    return sys.stdout.isatty()
