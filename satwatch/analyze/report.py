"""Analyses for a reader at a terminal: facts and the customary marks beside them, no verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from satwatch.analyze.analysis import Analysis, lag_diagnostics
from satwatch.analyze.bars import draw
from satwatch.analyze.histogram import Histogram
from satwatch.analyze.marks import MARKS
from satwatch.sat import BatchSummary, VersionLag
from satwatch.types import Rule

# Diagnostics in the order of the questions: is the data sound, how far off is it, what did SAT do?
GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "tokens": {
        "tokens": "active tokens",
        "nan_tokens": "NaN tokens",
        "inf_tokens": "infinite tokens",
        "extreme_tokens": "tokens of |d| > 20",
    },
    "mismatch": {
        "log_ratio_mean": "mean d",
        "log_ratio_abs_mean": "mean |d|",
        "log_ratio_abs_q0.5": "|d| 0.5 quantile",
        "log_ratio_abs_q0.9": "|d| 0.9 quantile",
        "log_ratio_abs_q0.99": "|d| 0.99 quantile",
        "log_ratio_abs_q0.999": "|d| 0.999 quantile",
        "log_ratio_abs_max": "|d| max",
    },
    "divergence": {
        "kl_k1": "KL, k1",
        "kl_k2": "KL, k2",
        "kl_k3": "KL, k3",
        "tv_sampled": "total variation",
        "chi2": "chi-squared",
        "ess_ratio": "ESS ratio",
        "ratio_max": "ratio max",
    },
    "versions": {
        "version_lag_mean": "version lag, mean",
        "version_lag_max": "version lag, oldest",
        "version_coverage_ratio": "share of known lag",
        "negative_lag_tokens": "tokens of negative lag",
    },
    "rule": {
        "quantile_reference": "q",
        "gate_rate": "gate rate",
        "tail_index": "tail index",
        "clip_radius_low_mean": "lower radius, mean",
        "clip_radius_high_mean": "upper radius, mean",
        "contraction_min": "smallest factor c",
        "clip_fraction_ppo": "clipped by PPO",
        "clip_fraction": "clipped by SAT",
        "intercepted_fraction": "clipped by SAT alone",
    },
}
STYLES: Final = {"usual": "", "watch": "yellow", "suspect": "bold red"}
# What a row of a list of batches shows: column width, heading, diagnostic.
COLUMNS: Final = (
    (10, "tokens", "tokens"),
    (6, "NaN", "nan_tokens"),
    (6, "inf", "inf_tokens"),
    (10, "q", "quantile_reference"),
    (8, "gate", "gate_rate"),
    (10, "mean |d|", "log_ratio_abs_mean"),
    (10, "q0.99", "log_ratio_abs_q0.99"),
    (8, "ESS", "ess_ratio"),
    (10, "ratio max", "ratio_max"),
)
NAME_WIDTH: Final = 28


class Report:
    """Prints one batch in full, or many as rows as they come and then their sum in full."""

    def __init__(self, console: Console) -> None:
        """Make an empty report; nothing is printed before :meth:`add` or :meth:`finish`."""
        self._console = console
        self._batches = 0
        self._first: tuple[str, Analysis] | None = None
        self._summary: BatchSummary | None = None
        self._lag: VersionLag | None = None
        self._histogram = Histogram.of(np.empty(0))
        self._references = (math.inf, -math.inf)

    def add(self, name: str, analysis: Analysis) -> None:
        """Take one batch; from the second on, each is printed as a row."""
        self._sum_up(analysis)
        if self._batches == 1:
            self._first = name, analysis
            return
        if self._first is not None:
            self._console.print(_heading(), soft_wrap=True)
            self._console.print(_row(*self._first), soft_wrap=True)
            self._first = None
        self._console.print(_row(name, analysis), soft_wrap=True)

    def _sum_up(self, analysis: Analysis) -> None:
        self._batches += 1
        self._summary = analysis.summary if self._summary is None else self._summary.merge(analysis.summary)
        self._histogram = self._histogram + analysis.histogram
        if analysis.version_lag is not None:
            self._lag = analysis.version_lag if self._lag is None else self._lag.merge(analysis.version_lag)
        if math.isfinite(analysis.quantile_reference):
            low, high = self._references
            self._references = min(low, analysis.quantile_reference), max(high, analysis.quantile_reference)

    def finish(self) -> None:
        """Print what's left to say once every batch is in."""
        if self._summary is None:
            return
        diagnostics = {**self._summary.diagnostics(), **lag_diagnostics(self._lag)}
        if self._first is not None:
            name, analysis = self._first
            title = f"{name}   {_rule_in_words(analysis.rule)}"
        else:
            title = f"\nall {self._batches} batches"
            # Each batch had a q of its own: the histogram shows how far they lie apart.
            diagnostics.pop("quantile_reference", None)
        self._console.print(Text(title, style="bold"))
        self._console.print(_table(diagnostics))
        block = "#" if self._console.options.ascii_only else "█"
        self._console.print(draw(self._histogram, self._references, block))


def _rule_in_words(rule: Rule) -> str:
    words = f"{rule.level} level, alpha {rule.quantile:g}, radii {rule.eps_low:g} and {rule.eps_high:g}"
    words += f", exponent {rule.exponent:g}"
    if rule.min_reference:
        words += f", q at least {rule.min_reference:g}"
    return words if rule.enabled else f"{words}, SAT off"


def _table(diagnostics: Mapping[str, float]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading, align in (("", "left"), ("", "left"), ("value", "right"), ("", "left"), ("usual", "left")):
        table.add_column(heading, justify=align, style="" if heading == "value" else "dim")  # type: ignore[arg-type]
    for group, names in GROUPS.items():
        present = [name for name in names if name in diagnostics]
        for name in present:
            mark = MARKS.get(name)
            band = mark.band(diagnostics[name]) if mark else "usual"
            value, flag = Text(_shown(diagnostics[name])), Text("" if band == "usual" else band)
            value.stylize(STYLES[band])
            flag.stylize(STYLES[band])
            table.add_row(group if name == present[0] else "", names[name], value, flag, mark.note if mark else "")
    return table


def _shown(value: float) -> str:
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and 1 <= abs(value) < 1e9):
        return f"{int(value):,}"
    return f"{value:.4g}"


def _heading() -> Text:
    cells = "".join(f"{heading:>{width}}" for width, heading, _ in COLUMNS)
    return Text(f"{'batch':<{NAME_WIDTH}}{cells}", style="bold")


def _row(name: str, analysis: Analysis) -> Text:
    diagnostics = analysis.diagnostics
    row = Text(f"{name if len(name) < NAME_WIDTH else '..' + name[3 - NAME_WIDTH :]:<{NAME_WIDTH}}")
    for width, _, key in COLUMNS:
        value = diagnostics.get(key)
        mark = MARKS.get(key)
        style = STYLES[mark.band(value)] if mark and value is not None else ""
        row.append(f"{'-' if value is None else _shown(value):>{width}}", style=style)
    return row
