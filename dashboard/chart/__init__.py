"""A figure on a page, in the browser updated where it stands."""

from satwatch._dashboard.chart.mount import chart
from satwatch._dashboard.chart.payload import looking_at

__all__ = ["chart", "looking_at"]
