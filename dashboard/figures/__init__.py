"""Figures of the dashboard: values of a history in, plotly figures out. Nothing here knows Streamlit.

A line has ``MOST_LINE_POINTS`` points at most and a heat map ``MOST_COLUMNS`` steps. What is unknown is a gap or grey,
never 0, and a figure without data says why and what to do.
"""

from satwatch._dashboard.figures.alerts import Episode, alert_timeline, episodes
from satwatch._dashboard.figures.bounds import clip_fractions, contraction, divergence, radii, reference, tail_index
from satwatch._dashboard.figures.compare import COMPARED, align, compare
from satwatch._dashboard.figures.engines import (
    engine_ages,
    engine_canaries,
    engine_grid,
    engine_queues,
    engine_versions,
)
from satwatch._dashboard.figures.health import coverage_strip, ess, loss, mismatch, reward
from satwatch._dashboard.figures.heat import tail_heat_map, tail_view
from satwatch._dashboard.figures.interval import interval, interval_picture
from satwatch._dashboard.figures.lag import (
    lag_against_forecast,
    lag_by_length,
    lag_heat_map,
    lag_parts,
    merged_lengths,
    mismatch_by_lag,
)
from satwatch._dashboard.figures.routing import flip_rate_heat_map, flip_rates
from satwatch._dashboard.figures.series import MOST_COLUMNS, MOST_LINE_POINTS
from satwatch._dashboard.figures.tail import tail_quantiles
from satwatch._dashboard.figures.tokens import worst_tokens

__all__ = [
    "COMPARED",
    "MOST_COLUMNS",
    "MOST_LINE_POINTS",
    "Episode",
    "alert_timeline",
    "align",
    "clip_fractions",
    "compare",
    "contraction",
    "coverage_strip",
    "divergence",
    "engine_ages",
    "engine_canaries",
    "engine_grid",
    "engine_queues",
    "engine_versions",
    "episodes",
    "ess",
    "flip_rate_heat_map",
    "flip_rates",
    "interval",
    "interval_picture",
    "lag_against_forecast",
    "lag_by_length",
    "lag_heat_map",
    "lag_parts",
    "loss",
    "merged_lengths",
    "mismatch",
    "mismatch_by_lag",
    "radii",
    "reference",
    "reward",
    "tail_heat_map",
    "tail_index",
    "tail_quantiles",
    "tail_view",
    "worst_tokens",
]
