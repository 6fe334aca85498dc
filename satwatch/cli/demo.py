"""``satwatch demo``: a real asynchronous run."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from satwatch.cli.edge import need_server_extra
from satwatch.cli.numbers import whole_number
from satwatch.demo.config import OBJECTIVES, TASK_NAMES, DemoConfig, Objective, TaskName

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
    connect: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Use this sidecar instead of starting one.")
    ] = DEFAULTS.connect,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Progress on standard error; the last line of output is one JSON object."),
    ] = False,
) -> None:
    """Train a small policy with asynchronous GRPO, bounds from a sidecar, about a minute on two cores.

    A rollout process serves weights [bold]--lag[/bold] versions old in bfloat16, a learner trains, and every
    microbatch's bounds come from a sidecar over gRPC. On a terminal the sidecar stays up afterwards until Ctrl-C.

    [bold]Example:[/bold] satwatch demo --objective sat --lag 8

    [bold]Example:[/bold] satwatch demo --objective ppo --task sort --steps 100 --json

    [bold]Exit codes:[/bold] 0 trained, 2 wrong use or a process that did not start or died, 130 interrupted.
    """
    if connect is None:
        need_server_extra("demo")
    from satwatch.demo.run import run_demo

    config = DemoConfig(objective=objective, task=task, lag=lag, steps=steps, seed=seed, connect=connect)
    run_demo(config, json_output=as_json)
