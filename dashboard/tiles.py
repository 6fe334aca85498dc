"""The numbers at the top of a page: the newest closed step, against the steps shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal, TypeAlias

import streamlit as st

from satwatch._dashboard.sparkline import sparkline
from satwatch._dashboard.wording import count, number, share
from satwatch.types import StepPoint

Write: TypeAlias = Callable[[float | None], str]
Better: TypeAlias = Literal["low", "high", "neither"]

# A change below this share of the median is no news.
QUIET: Final = 0.05
USUAL: Final = "near its median"
_SPARKS: Final = 60
_COLOURS: Final = {"low": "inverse", "high": "normal", "neither": "off"}


@dataclass(frozen=True, slots=True)
class Tile:
    """A diagnostic as a number.

    Attributes:
        label: its name on the page.
        name: its name in docs/diagnostics.md.
        says: what it is, what a bad value looks like, and what to do where it is unknown.
        write: how it is written.
        better: which direction is good.
        unit: in which it is, after the label.
    """

    label: str
    name: str
    says: str
    write: Write = number
    better: Better = "low"
    unit: str = ""

    @property
    def title(self) -> str:
        """The label with the unit."""
        return f"{self.label} :gray[({self.unit})]" if self.unit else self.label


def show(tiles: Sequence[Tile], points: Sequence[StepPoint], last: StepPoint | None) -> None:
    """Show tiles in a row.

    Args:
        tiles: which.
        points: the steps shown, for the median and the line below the number.
        last: the step whose numbers are shown, or None.
    """
    for column, tile in zip(st.columns(len(tiles)), tiles, strict=True):
        value = None if last is None else last.values.get(tile.name)
        past = known(points, tile.name)
        change = delta(tile, value, past)
        with column.container(border=True, height="stretch", gap="small"):
            st.metric(
                tile.title,
                tile.write(value),
                delta=change or (None if value is None else USUAL),
                delta_color=_COLOURS[tile.better] if change else "off",  # type: ignore[arg-type] # its own literals
                delta_arrow="auto" if change else "off",
                help=tile.says,
            )
            if past:
                st.html(sparkline(past[-_SPARKS:]))
    if last is not None:
        version = "" if last.policy_version is None else f", version {last.policy_version}"
        steps = sum(point.steps for point in points)
        st.caption(f"Step {last.last_step}{version}. Changes are against the median of the {count(steps)} steps shown.")


def known(points: Sequence[StepPoint], name: str) -> list[float]:
    """Return the finite values of a diagnostic."""
    values = (point.values.get(name) for point in points)
    return [value for value in values if value is not None and math.isfinite(value)]


def delta(tile: Tile, value: float | None, past: Sequence[float]) -> str | None:
    """Say how far a value is from the median of the steps shown; None where that is no news.

    >>> delta(Tile("p99", "log_ratio_abs_q0.99", ""), 0.3, [0.1, 0.1, 0.2])
    '+0.2'
    """
    if value is None or not math.isfinite(value) or len(past) < 3:
        return None
    apart = value - median(past)
    if abs(apart) <= QUIET * max(abs(median(past)), abs(value)):
        return None
    # Points of a percent: "+5%" of a share would read as a twentieth more of it.
    written = f"{100 * abs(apart):.2f} pp" if tile.write is share else tile.write(abs(apart))
    return f"{'+' if apart > 0 else '-'}{written}"
