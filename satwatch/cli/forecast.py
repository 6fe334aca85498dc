"""``satwatch forecast``: the version lag to expect of a run before it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from satwatch.cli.numbers import number, whole_number

if TYPE_CHECKING:
    from satwatch.sat.forecast import Change, LagForecast

WIDTH: Final = 40
WHO_WAITS: Final = {
    "rollout-limited": "the trainer waits for responses",
    "trainer-limited": "responses wait for the trainer",
    "balanced": "now the trainer waits, now the responses; chance decides, so take the figures as rough",
}


def forecast(
    concurrency: Annotated[
        int,
        typer.Option(metavar="N", parser=whole_number, help="Responses generated at once, over all engines."),
    ],
    tokens_per_second: Annotated[
        float, typer.Option(metavar="X", parser=number, help="Tokens a second of one response.")
    ],
    length_mean: Annotated[float, typer.Option(metavar="X", parser=number, help="Tokens of a response, mean.")],
    queue: Annotated[
        int,
        typer.Option(metavar="N", parser=whole_number, help="Finished responses that may wait before slots have to."),
    ],
    batch: Annotated[int, typer.Option(metavar="N", parser=whole_number, help="Responses of an optimizer step.")],
    train_seconds: Annotated[
        float,
        typer.Option(metavar="X", parser=number, help="From a step's start to the publishing of its version."),
    ],
    length_cv: Annotated[
        float,
        typer.Option(metavar="X", parser=number, help="The lengths' standard deviation over their mean; lognormal."),
    ] = 1.0,
    sync_seconds: Annotated[
        float, typer.Option(metavar="X", parser=number, help="From a version's publishing to its first token.")
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Forecast the version lag of an asynchronous run, and say what would lower it.

    From the slots that generate, the responses' lengths, the queue and the trainer's step; weights are taken to be
    swapped while responses are in flight. docs/forecast.md has the model and how far it is off.

    [bold]Example:[/bold] satwatch forecast --concurrency 512 --tokens-per-second 40 --length-mean 4000 --length-cv 1.2
    --queue 1024 --batch 512 --train-seconds 60

    [bold]Exit codes:[/bold] 0, 2 a value that can't be meant.
    """
    from satwatch.sat.forecast import Lengths, Pipeline, forecast_by_ratio, forecast_changes

    lengths = Lengths.lognormal(length_mean, length_cv)
    pipeline = Pipeline(concurrency, tokens_per_second, lengths, queue, batch, train_seconds, sync_seconds)
    changes = forecast_changes(pipeline)
    if as_json:
        typer.echo(json.dumps(_as_object(changes)))
        return
    from rich.console import Console

    console = Console(highlight=False)
    block = "#" if console.options.ascii_only else "█"
    lines = (
        *_facts(changes[0].forecast),
        *_table(changes),
        *_advice(changes),
        *_sweep(forecast_by_ratio(pipeline), block),
    )
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _as_object(changes: Sequence[Change]) -> dict[str, object]:
    now, *others = changes
    kept = ("step_seconds", "version_lag", "version_lag_generation", "version_lag_queue", "version_lag_q99")
    return {
        **asdict(now.forecast),
        "responses_per_second": now.responses_per_second,
        "changes": [
            {
                "change": change.name,
                **{name: getattr(change.forecast, name) for name in kept},
                "responses_per_second": change.responses_per_second,
            }
            for change in others
        ],
    }


def _facts(now: LagForecast) -> Iterator[str]:
    yield f"version lag {now.version_lag:.2f}, mean over tokens; 99% of them at most {now.version_lag_q99}"
    yield f"  {now.version_lag_generation:.2f} while generated (N_PQS), 99% at most {now.version_lag_generation_q99}"
    yield f"  {now.version_lag_queue:.2f} while waiting (N_IQS), 99% at most {now.version_lag_queue_q99}"
    yield f"{now.regime}: {WHO_WAITS[now.regime]}"
    yield f"  throughput ratio     {now.throughput_ratio:.3g} (rollout over trainer)"
    yield f"  a version every      {_seconds(now.step_seconds)}"
    yield f"  the trainer trains   {now.trainer_busy_ratio:.0%} of the time"
    yield f"  the slots generate   {now.slots_busy_ratio:.0%} of the time"
    yield f"  finished and waiting {now.responses_waiting:,.0f} responses, {_seconds(now.wait_seconds)} each"
    if now.steps_to_settle >= 1:
        yield f"  from an empty queue  about {now.steps_to_settle:,.0f} steps to get there, with less lag before"


def _table(changes: Sequence[Change]) -> Iterator[str]:
    yield ""
    yield f"{'one thing changed':<36} {'lag':>6} {'N_PQS':>6} {'N_IQS':>6} {'q99':>5} {'responses/s':>12}"
    for change in changes:
        lag = change.forecast
        yield (
            f"{change.name:<36} {lag.version_lag:>6.2f} {lag.version_lag_generation:>6.2f} "
            f"{lag.version_lag_queue:>6.2f} {lag.version_lag_q99:>5} {change.responses_per_second:>12.4g}"
        )


def _advice(changes: Sequence[Change]) -> Iterator[str]:
    from satwatch.sat.forecast import best_change

    most, free = best_change(changes), best_change(changes, free=True)
    yield ""
    if most is None:
        yield "none of these lowers the lag"
        return
    yield f"lowers the lag most: {most.name}"
    if free is not most:
        yield f"at no loss of throughput: {'none of these' if free is None else free.name}"


def _sweep(forecasts: Sequence[LagForecast], block: str) -> Iterator[str]:
    yield ""
    yield "lag by throughput ratio, were the training time another"
    most = max(forecast.version_lag for forecast in forecasts)
    for forecast in forecasts:
        bar = block * max(1, round(WIDTH * forecast.version_lag / most)) if most else ""
        yield f"{forecast.throughput_ratio:>6.2f} {bar} {forecast.version_lag:.2f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 100 else f"{seconds:.3g} s"
