"""A panel of the dashboard: what is shown and how, without Grafana's words; and the panel that Grafana gets of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common as choice
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from satwatch._dashboard import runbook

Kind: TypeAlias = Literal["lines", "stacked", "heat", "stat", "bars", "table", "timeline"]

DATASOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
HEIGHT: Final = 8
STAT_HEIGHT: Final = 4
# Told apart by the colour-blind too; thresholds alone are red and orange.
_OK: Final = "blue"
_WARNING: Final = "orange"
_CRITICAL: Final = "red"


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression, and the name of its series."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class PanelSpec:
    """One panel.

    Attributes:
        title: what it shows.
        description: what it is, and what a bad value means.
        queries: what it draws.
        unit: Grafana's name for it.
        kind: how it is drawn.
        width: of 24 columns.
        low: where the axis begins; None: with the data.
        high: where it ends.
        is_log: the axis is logarithmic.
        warning: the value from which on it is amiss.
        critical: the value from which on it is badly so.
        is_bad_below: amiss is what is below these and not what is above.
        meanings: words for whole numbers, each with its colour.
        runbook: the alert whose section of the runbook says more.
    """

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: Kind = "lines"
    width: int = 8
    low: float | None = None
    high: float | None = None
    is_log: bool = False
    warning: float | None = None
    critical: float | None = None
    is_bad_below: bool = False
    meanings: Mapping[int, tuple[str, str]] | None = None
    runbook: str = ""


@dataclass(frozen=True, slots=True)
class RowSpec:
    """A row of panels.

    Attributes:
        title: its question.
        panels: from left to right.
        is_collapsed: whether it is opened only when asked for.
    """

    title: str
    panels: tuple[PanelSpec, ...]
    is_collapsed: bool = False


def build_panel(spec: PanelSpec) -> Any:  # noqa: ANN401 - one builder class a kind, with no base but the untyped one
    """Return the builder of a panel."""
    panel = _PANELS[spec.kind](spec)
    runbook_link = f"\n\n[Runbook: {spec.runbook}]({runbook.link(spec.runbook)})" if spec.runbook else ""
    text = f"{spec.description}{runbook_link}"
    panel = panel.title(spec.title).description(text).datasource(DATASOURCE).unit(spec.unit)
    panel = panel.span(spec.width).height(STAT_HEIGHT if spec.kind == "stat" else HEIGHT)
    panel = panel.thresholds(_thresholds(spec))
    if spec.low is not None and spec.kind != "heat":
        panel = panel.min(spec.low)
    if spec.high is not None and spec.kind != "heat":
        panel = panel.max(spec.high)
    if spec.meanings is not None:
        panel = panel.mappings([_mapping(spec.meanings)])
    for i, query in enumerate(spec.queries):
        panel = panel.with_target(_target(spec, query, chr(ord("A") + i)))
    return panel


def _target(spec: PanelSpec, query: Query, ref: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend or "__auto").ref_id(ref)
    target = target.datasource(DATASOURCE)
    if spec.kind == "heat":
        return target.range().format(PromQueryFormat.HEATMAP)
    if spec.kind == "table":
        return target.instant().format(PromQueryFormat.TABLE)
    return target.instant() if spec.kind == "bars" else target.range()


def _thresholds(spec: PanelSpec) -> build.ThresholdsConfig:
    """Return the colours by value; the first has no lower end."""
    bad = [
        (value, colour) for value, colour in ((spec.warning, _WARNING), (spec.critical, _CRITICAL)) if value is not None
    ]
    if spec.is_bad_below:
        starts = [None, *sorted(value for value, _ in bad)]
        colours = [*(colour for _, colour in sorted(bad)), _OK]
    else:
        starts, colours = [None, *(value for value, _ in bad)], [_OK, *(colour for _, colour in bad)]
    steps = [model.Threshold(value=start, color=colour) for start, colour in zip(starts, colours, strict=True)]
    return build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)


def _mapping(meanings: Mapping[int, tuple[str, str]]) -> model.ValueMap:
    options = {
        str(value): model.ValueMappingResult(text=text, color=colour, index=i)
        for i, (value, (text, colour)) in enumerate(meanings.items())
    }
    return model.ValueMap(options=options)


def _lines(spec: PanelSpec) -> timeseries.Panel:
    panel = timeseries.Panel().line_width(1).fill_opacity(0).show_points(choice.VisibilityMode.AUTO)
    panel = panel.legend(_legend()).tooltip(_tooltip())
    if spec.is_log:
        panel = panel.scale_distribution(common.ScaleDistributionConfig().type(choice.ScaleDistribution.LOG).log(10))
    if spec.warning is not None or spec.critical is not None:
        style = common.GraphThresholdsStyleConfig().mode(choice.GraphThresholdsStyleMode.DASHED)
        panel = panel.thresholds_style(style)
    return panel


def _stacked(spec: PanelSpec) -> timeseries.Panel:
    return _lines(spec).fill_opacity(30).stacking(common.StackingConfig().mode(choice.StackingMode.NORMAL).group("A"))


def _heat(spec: PanelSpec) -> heatmap.Panel:
    colour = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Viridis").steps(64)
    axis = heatmap.YAxisConfig().unit(spec.unit)
    return heatmap.Panel().calculate(False).color(colour).y_axis(axis).cell_gap(0).show_legend().show_y_histogram()


def _stat(spec: PanelSpec) -> stat.Panel:
    colour = choice.BigValueColorMode.VALUE
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    return stat.Panel().color_mode(colour).graph_mode(choice.BigValueGraphMode.AREA).reduce_options(last)


def _bars(spec: PanelSpec) -> bargauge.Panel:
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    return bargauge.Panel().orientation(choice.VizOrientation.HORIZONTAL).reduce_options(last)


def _table(spec: PanelSpec) -> table.Panel:
    hidden = {"Time": True, "__name__": True, "alertstate": True, "instance": True, "job": True, "Value": True}
    tidy = model.DataTransformerConfig(id_val="organize", options={"excludeByName": hidden})
    return table.Panel().with_transformation(tidy).no_value("nothing is firing")


def _timeline(spec: PanelSpec) -> statetimeline.Panel:
    panel = statetimeline.Panel().show_value(choice.VisibilityMode.NEVER).merge_values(True).row_height(0.8)
    return panel.legend(_legend()).tooltip(_tooltip())


def _legend() -> common.VizLegendOptions:
    options = common.VizLegendOptions().show_legend(True).display_mode(choice.LegendDisplayMode.LIST)
    return options.placement(choice.LegendPlacement.BOTTOM)


def _tooltip() -> common.VizTooltipOptions:
    return common.VizTooltipOptions().mode(choice.TooltipDisplayMode.MULTI).sort(choice.SortOrder.DESCENDING)


_PANELS: Final[Mapping[Kind, Callable[[PanelSpec], Any]]] = {
    "lines": _lines,
    "stacked": _stacked,
    "heat": _heat,
    "stat": _stat,
    "bars": _bars,
    "table": _table,
    "timeline": _timeline,
}
