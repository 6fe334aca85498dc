"""The lag to expect of a run: from what its engines say, or from a few numbers that its owner knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import streamlit as st

from satwatch._dashboard.figures import merged_lengths
from satwatch._dashboard.view import View
from satwatch._dashboard.wording import literal, number
from satwatch.errors import ConfigError
from satwatch.sat.forecast import Lengths, Pipeline, forecast_lag
from satwatch.types import EngineStatus, StepPoint

_MOST_LENGTHS: Final = 2000
_LEAST: Final = 0.001


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of the lag.

    Attributes:
        generation: N_PQS, versions, mean over tokens; None: nothing is.
        queue: N_IQS likewise.
        says: where the figures come from.
    """

    generation: float | None = None
    queue: float | None = None
    says: str = ""


@dataclass(frozen=True, slots=True)
class Guess:
    """A run's pipeline as far as the history knows it; None is unknown."""

    concurrency: int | None = None
    tokens_per_second: float | None = None
    batch_responses: int | None = None
    train_seconds: float | None = None
    sync_seconds: float | None = None


def ask_forecast(view: View) -> Expected:
    """Show the numbers that a forecast needs, filled in as far as they are known, and return what follows.

    Without them the engines' own expectation of N_PQS is returned, if they have one.
    """
    guess = guessed(view)
    lengths = seen_lengths(view.points)
    with st.popover(":material/calculate: Forecast", help="What the lag should be (docs/forecast.md)."):
        st.caption("From slots, speed, queue and trainer. What this history knows is filled in.")
        slots = _ask("Responses generated at once", "slots", 1, guess.concurrency)
        speed = _ask("Tokens/s of one response", "speed", _LEAST, guess.tokens_per_second)
        queue = _ask("Finished responses the queue holds", "queue", 0, None)
        batch = _ask("Responses of one step", "batch", 1, guess.batch_responses)
        train = _ask("Seconds the trainer takes for a step", "train", _LEAST, None)
        sync = _ask("Seconds from publishing to serving", "sync", 0.0, guess.sync_seconds)
    if lengths is None or slots is None or speed is None or queue is None or batch is None or train is None:
        return _from_engines([record.status for record in view.engines])
    try:
        told = forecast_lag(Pipeline(int(slots), speed, lengths, int(queue), int(batch), train, sync or 0.0))
    except ConfigError as error:
        st.error(literal(str(error)))
        return Expected()
    says = (
        f"Forecast: {told.regime}, a step of {number(told.step_seconds)} s; 99% of the tokens have a lag of at most "
        f"{told.version_lag_q99}."
    )
    return Expected(told.version_lag_generation, told.version_lag_queue, says)


def _ask(label: str, name: str, least: float, guess: float | None) -> float | None:
    """Ask for a number; what is known stands there until it is changed."""
    key = f"forecast {name}"
    if guess is not None and key not in st.session_state:
        st.session_state[key] = guess
    return st.number_input(label, min_value=least, value=None, key=key)


def seen_lengths(points: Sequence[StepPoint]) -> Lengths | None:
    """Return the response lengths of the steps shown, each bucket at its mean; None where none is known."""
    rows = [row for row in merged_lengths(points) if row.responses and row.length >= row.responses]
    responses = sum(row.responses for row in rows)
    if not responses:
        return None
    scale = min(1.0, _MOST_LENGTHS / responses)
    return Lengths.of(
        length for row in rows for length in [row.length / row.responses] * max(1, round(row.responses * scale))
    )


def guessed(view: View) -> Guess:
    """Return what the history knows of the pipeline."""
    newest = {record.status.engine: record.status for record in view.engines}
    running = [status.requests_running for status in newest.values() if status.requests_running]
    speeds = [
        status.generation_tokens_per_second / status.requests_running
        for status in newest.values()
        if status.requests_running and status.generation_tokens_per_second
    ]
    syncs = [status.sync_seconds for status in newest.values() if status.sync_seconds is not None]
    responses = [
        sum(row.responses for row in point.length_lags) / point.steps for point in view.points if point.length_lags
    ]
    return Guess(
        concurrency=sum(running) or None,
        tokens_per_second=median(speeds) if speeds else None,
        batch_responses=round(median(responses)) or None if responses else None,
        sync_seconds=median(syncs) if syncs else None,
    )


def _from_engines(statuses: Sequence[EngineStatus]) -> Expected:
    newest = {status.engine: status.version_lag_generation_expected for status in statuses}
    known = [value for value in newest.values() if value is not None]
    if not known:
        return Expected(says="Nothing is expected yet: fill in *Forecast*, or let the probe watch the engines.")
    return Expected(generation=max(known), says="Expected N_PQS: of the slowest engine, as the probe works it out.")
