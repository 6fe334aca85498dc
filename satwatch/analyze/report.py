"""Analyses for a reader at a terminal: facts and the customary marks beside them, no verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Final

import numpy as np
from rich.console import Console
from rich.text import Text

from satwatch.analyze.analysis import Analysis, lag_diagnostics
from satwatch.analyze.bars import draw
from satwatch.analyze.histogram import Histogram
from satwatch.analyze.marks import Mark, marks_of
from satwatch.sat import StepTotals
from satwatch.types import Rule

# Diagnostics in the order of the questions: is the data sound, how far off is it, what did SAT do?
GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "tokens": {
        "tokens": "active tokens",
        "nan_tokens": "NaN tokens",
        "inf_tokens": "infinite tokens",
        "extreme_tokens": "|d| above 20",
    },
    "mismatch": {
        "log_ratio_mean": "mean d",
        "log_ratio_abs_mean": "mean |d|",
        "log_ratio_abs_q0.5": "|d| q0.5",
        "log_ratio_abs_q0.9": "|d| q0.9",
        "log_ratio_abs_q0.99": "|d| q0.99",
        "log_ratio_abs_q0.999": "|d| q0.999",
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
        "version_lag_mean": "mean lag",
        "version_lag_max": "oldest lag",
        "version_coverage_ratio": "share known",
        "negative_lag_tokens": "negative lag",
    },
    "rule": {
        "quantile_reference": "q",
        "gate_rate": "gate rate",
        "tail_index": "tail index",
        "clip_radius_low_mean": "lower radius",
        "clip_radius_high_mean": "upper radius",
        "contraction_min": "smallest c",
        "clip_fraction_ppo": "clipped by PPO",
        "clip_fraction": "clipped by SAT",
        "intercepted_fraction": "only SAT clips",
    },
}
# What the history knows of a step beyond what a recorded batch can tell, by the same questions.
STEP_GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "where from": {
        "delta_policy_abs_mean": "policy's part",
        "delta_impl_abs_mean": "engine's part",
        "reference_coverage_ratio": "share known",
    },
    "routing": {
        "router_flip_rate": "experts flipped",
        "router_token_flip_rate": "tokens flipped",
        "router_coverage": "share known",
    },
    "trainer": {
        "reward_mean": "mean reward",
        "loss_mean": "mean loss",
        "response_length_mean": "mean length",
        "client_fallbacks": "without sidecar",
    },
}
STYLES: Final = {"usual": "", "watch": "yellow", "suspect": "bold red"}
# What a row of a list of batches shows: column width, heading, diagnostic. With the name: 79 characters.
COLUMNS: Final = (
    (11, "tokens", "tokens"),
    (6, "NaN", "nan_tokens"),
    (6, "inf", "inf_tokens"),
    (10, "q", "quantile_reference"),
    (8, "gate", "gate_rate"),
    (10, "mean |d|", "log_ratio_abs_mean"),
    (8, "ESS", "ess_ratio"),
)
NAME_WIDTH: Final = 20


class Report:
    """Prints one batch or step in full, or many as rows as they come and then their sum in full."""

    def __init__(self, console: Console) -> None:
        """Make an empty report; nothing is printed before :meth:`add` or :meth:`finish`."""
        self._console = console
        self._batches = 0
        self._steps = 0  # of these
        self._first: tuple[str, Analysis] | None = None
        self._sum = _Sum()
        self._histogram = Histogram.of(np.empty(0))
        self._references = (math.inf, -math.inf)

    def add(self, name: str, analysis: Analysis) -> None:
        """Take one; from the second on, each is printed as a row."""
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
        self._steps += analysis.bounds is None
        self._sum.add(analysis.totals)
        self._histogram = self._histogram + analysis.histogram
        if math.isfinite(analysis.quantile_reference):
            low, high = self._references
            self._references = min(low, analysis.quantile_reference), max(high, analysis.quantile_reference)

    def finish(self) -> None:
        """Print what's left to say once every batch is in."""
        if not self._batches:
            return
        if self._first is not None:
            name, analysis = self._first
            title = name if analysis.rule is None else f"{name}\n{_rule_in_words(analysis.rule)}"
            diagnostics = {**analysis.diagnostics, **lag_diagnostics(analysis.version_lag)}
        else:
            title = f"\nall {self._batches} {self._what()}"
            totals = self._sum.total()
            known = totals.values() if self._steps else totals.summary.diagnostics()
            diagnostics = {**known, **lag_diagnostics(totals.lag)}
            # Each batch had a q of its own: the histogram shows how far they lie apart.
            diagnostics.pop("quantile_reference", None)
        self._console.print(Text(title, style="bold"), soft_wrap=True)
        for line in _lines(diagnostics):
            self._console.print(line, soft_wrap=True)
        block = "#" if self._console.options.ascii_only else "█"
        self._console.print(draw(self._histogram, self._references, block), soft_wrap=True)

    def _what(self) -> str:
        if not self._steps:
            return "batches"
        return "steps" if self._steps == self._batches else "batches and steps"


class _Sum:
    """Adds totals up in pairs of like size, so that what grows with their number is not copied for each of them."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, StepTotals]] = []

    def add(self, totals: StepTotals) -> None:
        """Take the next ones."""
        size = 1
        while self._parts and self._parts[-1][0] == size:
            totals = self._parts.pop()[1].merge(totals)
            size *= 2
        self._parts.append((size, totals))

    def total(self) -> StepTotals:
        """Return all of them together."""
        return reduce(StepTotals.merge, (totals for _, totals in self._parts), StepTotals.empty())


def _rule_in_words(rule: Rule) -> str:
    words = f"{rule.level} level, alpha {rule.quantile:g}, radii {rule.eps_low:g} and {rule.eps_high:g}"
    words += f", exponent {rule.exponent:g}"
    if rule.min_reference:
        words += f", q at least {rule.min_reference:g}"
    return words if rule.enabled else f"{words}, SAT off"


def _lines(diagnostics: Mapping[str, float]) -> Iterator[Text]:
    """Write one diagnostic a line, with its mark; lines, since a table too wide for its console loses digits."""
    yield Text(f"{'':<40} {'value':>11}         {'usual':<8} suspect", style="dim")
    marks = marks_of(diagnostics)
    for group, names in {**GROUPS, **STEP_GROUPS}.items():
        present = [name for name in names if name in diagnostics]
        if present:
            yield Text(group, style="dim")
        for name in present:
            yield _line(names[name], name, diagnostics[name], marks.get(name))


def _line(label: str, name: str, value: float, mark: Mark | None) -> Text:
    band = mark.band(value) if mark else "usual"
    line = Text(f"  {label:<15} {name:<22} ").append(f"{_shown(value):>{33 - max(22, len(name))}}", style=STYLES[band])
    if mark:
        line.append(f" {'' if band == 'usual' else band:<7}", style=STYLES[band])
        line.append(f" {mark.usual_range:<8} {mark.suspect_range}", style="dim")
    line.rstrip()
    return line


def _shown(value: float, digits: int = 4) -> str:
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and 1 <= abs(value) < 1e9):
        return f"{int(value):,}"
    return f"{value:.{digits}g}"


def _heading() -> Text:
    cells = "".join(f"{heading:>{width}}" for width, heading, _ in COLUMNS)
    return Text(f"{'batch':<{NAME_WIDTH}}{cells}", style="bold")


def _row(name: str, analysis: Analysis) -> Text:
    diagnostics = {**analysis.diagnostics, **lag_diagnostics(analysis.version_lag)}
    marks = marks_of(diagnostics)
    row = Text(f"{name if len(name) < NAME_WIDTH else '..' + name[3 - NAME_WIDTH :]:<{NAME_WIDTH}}")
    for width, _, key in COLUMNS:
        value = diagnostics.get(key)
        mark = marks.get(key)
        style = STYLES[mark.band(value)] if mark and value is not None else ""
        row.append(f"{'-' if value is None else _shown(value, digits=3):>{width}}", style=style)
    return row
