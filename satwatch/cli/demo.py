"""``satwatch demo``: a real asynchronous run."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from satwatch.cli.edge import need_dashboard_extra, need_server_extra
from satwatch.cli.extras import advice, lacks_any
from satwatch.cli.numbers import whole_number
from satwatch.demo.config import FAULT_NAMES, OBJECTIVES, TASK_NAMES, DemoConfig, FaultName, Objective, TaskName

DEFAULTS: Final = DemoConfig()


def demo(
    objective: Annotated[
        Objective,
        typer.Option(
            metavar="|".join(OBJECTIVES),
            help="What is optimized; with ppo and gspo the sidecar watches and the interval is PPO's.",
        ),
    ] = DEFAULTS.objective,
    task: Annotated[
        TaskName,
        typer.Option(metavar="|".join(TASK_NAMES), help="Reverse six base-10 digits, or sort four base-8 digits."),
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
            metavar="|".join(FAULT_NAMES),
            help="What the rollout engine does wrong: lag falls behind, nan has log-probs that are no numbers, "
            "stale-engine names new versions and serves old weights, temperature samples at another one.",
        ),
    ] = DEFAULTS.fault,
    fault_step: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=whole_number, help="From which step on it does, from 0; a third of the steps if absent."
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

    [bold]Exit codes:[/bold] 0 trained, 2 wrong use or a process that did not start or died, 130 interrupted.
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
    run_demo(config, json_output=as_json, dashboard=_is_shown(dashboard, by_default=not as_json))


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
