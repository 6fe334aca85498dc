"""Colours that read on a dark and on a light ground, and to the colour-blind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from satwatch.types import EngineState, Severity

# After Okabe and Ito, of middle lightness: none vanishes on white or on near-black.
BLUE: Final = "#3b8bd0"
ORANGE: Final = "#e08a1e"
GREEN: Final = "#1fa37a"
RED: Final = "#d5473e"
PURPLE: Final = "#b07ac9"
SKY: Final = "#56b4e9"
GREY: Final = "#8a8f98"
LINES: Final = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED)

UNKNOWN: Final = "rgba(138, 143, 152, 0.30)"
MARKER: Final = "rgba(138, 143, 152, 0.35)"
BAND: Final = "rgba(138, 143, 152, 0.12)"

# Few tokens dark, many bright, without the ends of viridis that vanish on black or on white.
DENSITY: Final = (
    (0.0, "#4a3a7d"),
    (0.25, "#3d5f96"),
    (0.5, "#2c8a96"),
    (0.75, "#49b27c"),
    (1.0, "#e3cf3c"),
)

SEVERITY: Final[Mapping[Severity, str]] = {"critical": RED, "warning": ORANGE, "info": SKY}
STATE: Final[Mapping[EngineState, str]] = {
    "serving": GREEN,
    "lagging": ORANGE,
    "wrong_weights": RED,
    "paused": SKY,
    "unknown": GREY,
}


def faint(colour: str, alpha: float) -> str:
    """Return a colour of the form #rrggbb, thinned.

    >>> faint("#3b8bd0", 0.25)
    'rgba(59, 139, 208, 0.25)'
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {alpha:g})"
