"""What a run looks like while it trains: a live table on a terminal, a line every tenth of the steps elsewhere."""

from __future__ import annotations

import logging
import math
import textwrap
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from satwatch.demo.closing import closing_lines
from satwatch.demo.config import DemoConfig
from satwatch.demo.summary import ASCII_SPARKS, SPARKS, DemoSummary, StepRecord, sparkline

SIDECAR_UP: Final = "sidecar up: bounds come from it"
SIDECAR_DOWN: Final = "sidecar down: the trainer computes the bounds"
LINES: Final = 10
# Of everything that is redrawn in place, however wide the terminal is: a terminal that is made narrower would wrap
# longer rows, and what they wrap into is never cleared.
WIDTH: Final = 60
PLOT_WIDTH: Final = 50


class Display:
    """Lines of text, one every tenth of the steps.

    Args:
        console: where they go.
        config: the run.
    """

    def __init__(self, console: Console, config: DemoConfig) -> None:
        self._console = console
        self._steps = config.steps
        self._every = max(1, config.steps // LINES)
        self._meanings = meanings(config)
        self._began = time.perf_counter()
        self._sidecar_up = True

    def note(self, text: str) -> None:
        """Print plain text: broken between words on a terminal, one line elsewhere."""
        width = self._console.width if self._console.is_terminal else len(text) + 1
        self.line("\n".join(textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)))

    def line(self, text: str) -> None:
        """Print plain text as it is, to be copied whole from a terminal of any width; from any thread."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    @property
    def marks(self) -> str:
        """Bars, lowest first, that the console can show."""
        return SPARKS if self._console.encoding.lower().startswith("utf") else ASCII_SPARKS

    def sidecar_down(self, reason: object) -> None:
        """Say that the sidecar is down before the first step; :meth:`show` then says only that it came back."""
        self._sidecar_up = False
        self.note(f"{SIDECAR_DOWN} until it answers ({reason})")

    def show(self, record: StepRecord) -> None:
        """Take in a step that is done, and say so when the sidecar went or came back."""
        if record.sidecar_up != self._sidecar_up:
            self._sidecar_up = record.sidecar_up
            self.note(SIDECAR_UP if record.sidecar_up else SIDECAR_DOWN)
        self._render(record)

    def _render(self, record: StepRecord) -> None:
        done = record.step + 1
        if done % self._every and done != self._steps:
            return
        cells = "  ".join(f"{name} {value}" for name, value in readings(record).items())
        self.note(f"step {done}/{self._steps}  {cells}  {self._rate(done):.1f} steps/s")

    def _rate(self, done: int) -> float:
        return done / (time.perf_counter() - self._began)

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        for name, meaning in self._meanings.items():
            self.note(f"{name:<11}{meaning}")
        return self

    def __exit__(self, *raised: object) -> None:
        return


class LiveDisplay(Display):
    """A progress bar and a table of the latest step, redrawn in place."""

    def __init__(self, console: Console, config: DemoConfig) -> None:
        super().__init__(console, config)
        self._live = Live(console=console, refresh_per_second=4)

    def _render(self, record: StepRecord) -> None:
        self._live.update(self._frame(record.step + 1, record))

    def _frame(self, done: int, record: StepRecord | None) -> Group:
        values = {} if record is None else readings(record)
        rows = [
            Text.assemble(f"{name:<11}", (f"{values.get(name, '-'):<10}", "bold"), (meaning, "dim"))
            for name, meaning in self._meanings.items()
        ]
        bar = Table.grid()  # ends the row, which a bar by itself does not
        bar.add_row(ProgressBar(total=self._steps, completed=done, width=WIDTH))
        lines = [Text(self._pace(done)), *rows, self._state(known=record is not None)]
        for line in lines:
            line.no_wrap, line.overflow = True, "crop"
        return Group(bar, *lines)

    def _state(self, *, known: bool) -> Text:
        if not self._sidecar_up:
            return Text(SIDECAR_DOWN, "bold red")
        return Text(SIDECAR_UP, "green") if known else Text("waiting for the first batch")

    def _pace(self, done: int) -> str:
        pace = f"step {done}/{self._steps}"
        if not done:
            return pace
        rate = self._rate(done)
        return f"{pace}  {rate:.1f} steps/s  {timedelta(seconds=round((self._steps - done) / rate))} left"

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        self._live.update(self._frame(0, None))
        self._live.start(refresh=True)
        return self

    def __exit__(self, *raised: object) -> None:
        self._live.stop()


class ClientLog(logging.Handler):
    """Shows what the client logs, above the table.

    Except that the sidecar went or came back: the display says that itself, by the batches.
    """

    def __init__(self, display: Display) -> None:
        super().__init__(logging.WARNING)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record."""
        if record.module != "link":
            self._display.note(self.format(record))

    def __enter__(self) -> Self:
        logging.getLogger("satwatch").addHandler(self)
        return self

    def __exit__(self, *raised: object) -> None:
        logging.getLogger("satwatch").removeHandler(self)


def display_for(console: Console, config: DemoConfig) -> Display:
    """Return the display that suits a console: live on a terminal, lines elsewhere."""
    redrawn = console.is_terminal and not console.is_dumb_terminal
    return LiveDisplay(console, config) if redrawn else Display(console, config)


def meanings(config: DemoConfig) -> dict[str, str]:
    """Return what each of the :func:`readings` is, in at most 39 characters."""
    judged = "|d|" if config.level == "token" else "|response mean d|"
    return {
        "reward": "mean of the step's responses, 0 to 1",
        "entropy": "of the policy, nats a token",
        "mean|d|": "d = log pi_train - log mu_rollout, nats",
        "q": f"{config.rule.quantile:g} quantile of {judged}, nats",
        "gate": "tokens whose clip interval contracted",
        "lag": "age of the tokens, policy versions",
        "sidecar": "batches that the sidecar bounded",
        "fallback": "batches that the trainer bounded",
        "round-trip": "of the sidecar's last answer",
    }


def readings(record: StepRecord) -> dict[str, str]:
    """Return a step's values as text, by the name they are shown under; ``-`` stands for no value."""
    return {
        "reward": f"{record.reward:.3f}",
        "entropy": f"{record.entropy:.3f}",
        "mean|d|": _number(record.log_ratio_abs_mean, ".4f"),
        "q": _number(record.quantile_reference, ".4f"),
        "gate": f"{record.gated_tokens / record.tokens:.1%}",
        "lag": f"{record.version_lag:g}",
        "sidecar": str(record.bounds_from_sidecar),
        "fallback": str(record.bounds_from_fallback),
        "round-trip": _milliseconds(record.round_trip_seconds if record.sidecar_up else None),
    }


def _number(value: float | None, form: str) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:{form}}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f} ms"


def show_summary(display: Display, config: DemoConfig, summary: DemoSummary, records: list[StepRecord]) -> None:
    """Print what the run came to: reward and mean abs(d) over the steps as a line of bars each, then sentences."""
    display.note(f"{'reward':<9}{_plot(display.marks, records, lambda r: r.reward)}")
    display.note(f"{'mean|d|':<9}{_plot(display.marks, records, lambda r: r.log_ratio_abs_mean)}")
    for line in closing_lines(config, summary, records):
        display.note(line)


def _plot(marks: str, records: list[StepRecord], pick: Callable[[StepRecord], float]) -> str:
    return sparkline([value for value in map(pick, records) if math.isfinite(value)], PLOT_WIDTH, marks=marks)
