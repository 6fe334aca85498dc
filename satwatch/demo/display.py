"""What a run looks like while it trains: a live table on a terminal, a line every tenth of the steps elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from satwatch.demo.summary import ASCII_SPARKS, SPARKS, DemoSummary, StepRecord, sparkline

SIDECAR_UP = "sidecar: up, bounds come from it"
SIDECAR_DOWN = "sidecar: down, bounds computed in the trainer"
LINES = 10
PLOT_WIDTH = 50


class Display:
    """Lines of text, one every tenth of the steps.

    Args:
        console: where they go.
        steps: of the whole run.
    """

    def __init__(self, console: Console, steps: int) -> None:
        self._console = console
        self._steps = steps
        self._every = max(1, steps // LINES)
        self._began = time.perf_counter()
        self._sidecar_up = True

    def note(self, text: str) -> None:
        """Print one line of plain text."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

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
        rate = done / (time.perf_counter() - self._began)
        cells = "  ".join(f"{name} {value}" for name, value in readings(record).items())
        self.note(f"step {done}/{self._steps}  {cells}  {rate:.1f} steps/s")

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        return self

    def __exit__(self, *raised: object) -> None:
        return


class LiveDisplay(Display):
    """A progress bar and a table of the latest step, redrawn in place."""

    def __init__(self, console: Console, steps: int) -> None:
        super().__init__(console, steps)
        self._progress = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            _Speed(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._progress.add_task("training", total=steps)
        self._live = Live(self._progress, console=console, refresh_per_second=4)

    def _render(self, record: StepRecord) -> None:
        self._progress.update(self._task, completed=record.step + 1)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        values = readings(record)
        for name in values:
            table.add_column(name)
        table.add_row(*values.values())
        state = Text(SIDECAR_UP, "green") if record.sidecar_up else Text(SIDECAR_DOWN, "bold red")
        self._live.update(Group(self._progress, table, state))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._live.stop()


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("- steps/s" if task.speed is None else f"{task.speed:.1f} steps/s")


def display_for(console: Console, steps: int) -> Display:
    """Return the display that suits a console: live on a terminal, lines elsewhere."""
    return LiveDisplay(console, steps) if console.is_terminal else Display(console, steps)


def readings(record: StepRecord) -> dict[str, str]:
    """Return a step's values as text, by the name they are shown under; ``-`` stands for no value."""
    return {
        "reward": f"{record.reward:.3f}",
        "entropy": f"{record.entropy:.3f}",
        "q": _number(record.quantile_reference, ".4f"),
        "mean|d|": _number(record.log_ratio_abs_mean, ".4f"),
        "gate": f"{record.gated_tokens / record.tokens:.1%}",
        "lag": f"{record.version_lag:g}",
        "sidecar": str(record.bounds_from_sidecar),
        "fallback": str(record.bounds_from_fallback),
        "round-trip": _milliseconds(record.round_trip_seconds),
    }


def _number(value: float | None, form: str) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:{form}}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f} ms"


def show_summary(console: Console, summary: DemoSummary, records: list[StepRecord]) -> None:
    """Print what the run came to, with reward and mean abs(d) over the steps as a line of bars each."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    first, last = summary.reward_first_quarter, summary.reward_last_quarter
    table.add_row("reward", f"{first:.3f} in the first quarter, {last:.3f} in the last")
    table.add_row("", _plot(console, records, lambda r: r.reward))
    table.add_row("mean|d|, nats", _number(summary.log_ratio_abs_mean, ".4f"))
    table.add_row("", _plot(console, records, lambda r: r.log_ratio_abs_mean))
    table.add_row("q", _number(summary.quantile_reference_mean, ".4f"))
    table.add_row("gated tokens", f"{summary.gate_rate:.1%}")
    answered, computed = summary.bounds_from_sidecar, summary.bounds_from_fallback
    table.add_row("bounds", f"{answered} from the sidecar, {computed} computed in the trainer")
    table.add_row("time", f"{summary.seconds:.1f} s for {summary.steps} steps")
    console.print(table, highlight=False)


def _plot(console: Console, records: list[StepRecord], pick: Callable[[StepRecord], float]) -> str:
    marks = SPARKS if console.encoding.lower().startswith("utf") else ASCII_SPARKS
    return sparkline([value for value in map(pick, records) if math.isfinite(value)], PLOT_WIDTH, marks=marks)
