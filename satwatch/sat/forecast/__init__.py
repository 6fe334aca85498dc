"""The version lag to expect from concurrency, response lengths, queue and trainer (docs/forecast.md)."""

from satwatch.sat.forecast.changes import Change, best_change, forecast_by_ratio, forecast_changes
from satwatch.sat.forecast.forecast import LagForecast, Regime, forecast_lag
from satwatch.sat.forecast.lengths import Lengths
from satwatch.sat.forecast.pipeline import Pipeline

__all__ = [
    "Change",
    "LagForecast",
    "Lengths",
    "Pipeline",
    "Regime",
    "best_change",
    "forecast_by_ratio",
    "forecast_changes",
    "forecast_lag",
]
