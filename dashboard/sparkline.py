"""The line in a tile. Streamlit's own would load a second library of charts, and draw itself anew at every refresh."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Final

from satwatch._dashboard.figures.palette import BLUE

_WIDTH, _HEIGHT, _EDGE = 100.0, 30.0, 2.0
_STYLE: Final = "display:block;width:100%;height:40px"


def sparkline(values: Sequence[float]) -> str:
    """Return a line through values as an image in HTML, from the least at the bottom to the greatest at the top.

    Args:
        values: at equal distances, oldest first; at least one. Those that are not finite are left out.
    """
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    apart = _WIDTH / max(1, len(values) - 1)
    points = " ".join(
        f"{i * apart:.1f},{_place(value, low, high):.1f}" for i, value in enumerate(values) if math.isfinite(value)
    )
    line = (
        f'<polyline points="{points}" fill="none" stroke="{BLUE}" stroke-width="1.5" stroke-linejoin="round" '
        'vector-effect="non-scaling-stroke"/>'
    )
    box = f'viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio="none"'
    drawn = base64.b64encode(f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{line}</svg>'.encode()).decode()
    return f'<img alt="" style="{_STYLE}" src="data:image/svg+xml;base64,{drawn}">'


def _place(value: float, low: float, high: float) -> float:
    share = 0.5 if high == low else (value - low) / (high - low)
    return _EDGE + (1.0 - share) * (_HEIGHT - 2 * _EDGE)
