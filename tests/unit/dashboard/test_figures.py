"""Figures over steps: what is drawn equals what was kept, unknown is a gap or grey, and sizes are bounded."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest

from satwatch._dashboard import figures
from satwatch._dashboard.figures.frame import MOST_MARKER_LABELS, MOST_MARKERS, log_axis
from satwatch._dashboard.figures.health import MOST_CANARIES
from satwatch._dashboard.figures.heat import BUCKET_EDGES, CODES, SHARES, height_of
from satwatch._dashboard.figures.palette import GREEN, faint
from satwatch._dashboard.figures.series import columns, line, stack_of
from satwatch.types import HEAT_BUCKETS, EngineRecord, EngineStatus, Rule, StepPoint, VersionRecord
from tests.unit.dashboard.synthetic import OTHER_RUN, RUN, SyntheticHistory

STEPS = 60
OVER_STEPS = {
    "tail_heat_map": figures.tail_heat_map,
    "tail_quantiles": figures.tail_quantiles,
    "mismatch": figures.mismatch,
    "ess": figures.ess,
    "reward": figures.reward,
    "loss": figures.loss,
    "coverage_strip": figures.coverage_strip,
    "reference": figures.reference,
    "radii": lambda points: figures.radii(points, Rule()),
    "contraction": figures.contraction,
    "tail_index": figures.tail_index,
    "clip_fractions": figures.clip_fractions,
    "divergence": figures.divergence,
    "lag_heat_map": figures.lag_heat_map,
    "lag_parts": figures.lag_parts,
    "lag_by_length": figures.lag_by_length,
    "lag_against_forecast": figures.lag_against_forecast,
    "mismatch_by_lag": figures.mismatch_by_lag,
    "flip_rate_heat_map": figures.flip_rate_heat_map,
    "flip_rates": figures.flip_rates,
    "compare": lambda points: figures.compare({"a": points, "b": points}, "ess_ratio"),
}


@pytest.fixture(scope="module")
def history() -> SyntheticHistory:
    return SyntheticHistory("faults", STEPS)


@pytest.fixture(scope="module")
def points(history: SyntheticHistory) -> Sequence[StepPoint]:
    return history.steps(RUN)


def bare(step: int, **values: float) -> StepPoint:
    """A step of which only some values are known."""
    return StepPoint(1, step, step, 1, 0.0, True, 1, 1, None, values)


def trace(figure: go.Figure, name: str) -> go.Scatter:
    return next(t for t in figure.data if t.name == name and t.fill is None)


def grey_bands(figure: go.Figure) -> list[tuple[float, float]]:
    (bands,) = [shape for shape in figure.layout.shapes if shape.name == "unknown"]
    return [(float(a), float(b)) for a, b in re.findall(r"M (\S+),0 L (\S+),0", bands.path)]


def drawn(figure: go.Figure, name: str) -> dict[float, float]:
    one = trace(figure, name)
    return {x: y for x, y in zip(one.x, one.y, strict=True) if np.isfinite(y)}


def kept(points: Sequence[StepPoint], name: str) -> dict[float, float]:
    return {float(p.first_step): p.values[name] for p in points if name in p.values}


@pytest.mark.parametrize("name", OVER_STEPS)
def test_without_steps_a_figure_says_so(name: str):
    figure = OVER_STEPS[name]([])
    assert not figure.data
    (said,) = figure.layout.annotations
    assert said.text
    assert not figure.layout.xaxis.visible


@pytest.mark.parametrize("name", OVER_STEPS)
def test_a_step_of_which_nothing_is_known_draws_nothing(name: str):
    figure = OVER_STEPS[name]([bare(3)])
    if name == "coverage_strip":
        assert figure.data[0].z.tolist() == [[-1.0]] * 5
    else:
        assert not figure.data
        assert figure.layout.annotations[0].text


@pytest.mark.parametrize("name", OVER_STEPS)
def test_every_figure_is_bounded_and_is_json_whatever_comes(name: str):
    many = [
        replace(bare(3 * i, **{k: float(i % 17) / 20 for k in VALUES}), heat=one_token(i), lags={i % 5: 3, 900: 1})
        for i in range(5000)
    ]
    many[100] = bare(300)
    many = [
        replace(p, generation_lags=p.lags, queue_lags={1: 2}, layer_flip_rates={0: 0.1, 7: 0.0}) if p.lags else p
        for p in many
    ]
    figure = OVER_STEPS[name](many)
    for one in figure.data:
        if one.type == "heatmap":
            rows, width = np.asarray(one.z).shape
            assert rows <= HEAT_BUCKETS + 1
            assert width <= 2 * figures.MOST_COLUMNS
        elif one.type == "bar" or one.fill != "toself":
            assert len(one.x) <= figures.MOST_LINE_POINTS
    assert len(json.loads(figure.to_json())["data"]) == len(figure.data)


VALUES = (
    *("log_ratio_abs_mean", "log_ratio_abs_q0.5", "log_ratio_abs_q0.9", "log_ratio_abs_q0.99", "log_ratio_abs_max"),
    *("ess_ratio", "reward_mean", "loss_mean", "quantile_reference", "clip_radius_low_mean", "clip_radius_high_mean"),
    *("contraction_min", "tail_index", "clip_fraction_ppo", "intercepted_fraction", "kl_k3", "version_lag_mean"),
    *("version_lag_generation_mean", "version_lag_queue_mean", "router_flip_rate", "version_coverage_ratio"),
)


def one_token(i: int) -> tuple[int, ...]:
    return tuple(int(bucket == i % HEAT_BUCKETS) for bucket in range(HEAT_BUCKETS))


def rows_of(heat: go.Heatmap) -> slice:
    """The buckets that a heat map has rows for: those between the lowest and the highest that hold a token."""
    return slice(int(heat.y[0]), int(heat.y[-1]))


def test_the_heat_map_is_the_tokens_by_bucket_and_step(points: Sequence[StepPoint]):
    heat = figures.tail_heat_map(points, measure="tokens").data[0]
    counts = np.array(heat.customdata)
    whole = np.array([point.heat for point in points]).T
    rows = rows_of(heat)
    assert counts.shape == (rows.stop - rows.start, STEPS)
    assert whole.sum() == whole[rows].sum()
    columns_of = {point.first_step: point for point in points}
    for i, (left, right) in enumerate(zip(heat.x, heat.x[1:], strict=False)):
        step = (left + right) / 2
        if step in columns_of:
            assert counts[:, i].tolist() == list(columns_of[step].heat[rows])
        else:
            assert step == STEPS // 4  # the step that is not kept
            assert not counts[:, i].any()
    assert ((heat.z > 0) == (counts > 0)).all()  # an empty bucket has no colour
    assert heat.colorscale[0] == (0.0, "rgba(0, 0, 0, 0)")


def test_a_colour_is_a_share_whatever_else_is_shown(points: Sequence[StepPoint]):
    heat = figures.tail_heat_map(points).data[0]
    share, codes = np.array(heat.customdata), np.array(heat.z)
    least, most = SHARES
    inside = (share > 10**least) & (share < 10**most)
    assert inside.any()
    powers = least + (codes[inside] - 1) / (CODES - 1) * (most - least)
    assert powers == pytest.approx(np.log10(share[inside]), abs=0.01)
    assert (heat.zmin, heat.zmax) == (0, CODES)
    low, high = np.array(BUCKET_EDGES)[rows_of(heat)], np.array(BUCKET_EDGES[1:])[rows_of(heat)]
    assert ((low < heat.text[:, 0]) & (heat.text[:, 0] < high)).all()


def test_shares_of_a_step_add_up_and_are_of_its_tokens(points: Sequence[StepPoint]):
    share = np.array(figures.tail_heat_map(points).data[0].customdata)
    sums = np.nansum(share, axis=0)
    missing = STEPS // 4
    assert np.allclose(np.delete(sums, missing), 1.0, atol=1e-5)
    nan_step = points[STEPS // 5]
    known = nan_step.values["tokens"] - nan_step.values["nan_tokens"]
    assert sum(nan_step.heat) == known


def test_a_missing_step_is_grey_and_a_step_beyond_the_edges_is_marked(points: Sequence[StepPoint]):
    figure = figures.tail_heat_map(points)
    assert grey_bands(figure) == [(STEPS // 4 - 0.5, STEPS // 4 + 0.5)]
    beyond = trace(figure, "tokens above 64 nats, or infinite")
    marked = dict(zip(beyond.x, beyond.customdata, strict=True))
    assert marked == {p.first_step: p.heat[-1] for p in points if p.heat[-1]}
    assert marked


def test_quantiles_over_the_heat_map_are_the_steps_own(points: Sequence[StepPoint]):
    figure = figures.tail_heat_map(points)
    for q in ("0.5", "0.9", "0.99"):
        stored = kept(points, f"log_ratio_abs_q{q}")
        assert drawn(figure, f"q{q}") == pytest.approx(
            {step: height_of([value]).item() for step, value in stored.items()}
        )
        one = trace(figure, f"q{q}")
        told = {x: y for x, y in zip(one.x, one.customdata, strict=True) if np.isfinite(y)}
        assert told == stored
    assert len(figures.tail_heat_map(points, quantiles=False).data) == len(figure.data) - 3


def test_names_of_quantiles_that_are_close_do_not_lie_on_each_other():
    values = {"log_ratio_abs_q0.5": 0.01, "log_ratio_abs_q0.9": 0.0101, "log_ratio_abs_q0.99": 0.0102}
    heat = [0] * HEAT_BUCKETS
    heat[20:50] = [10] * 30
    figure = figures.tail_heat_map([StepPoint(1, 0, 0, 1, 0.0, True, 1, 1, 0, values, heat=tuple(heat))])
    places = {one.text: one.y for one in figure.layout.annotations}
    low, high = figure.layout.yaxis.range
    plot = figure.layout.height - figure.layout.margin.t - figure.layout.margin.b
    pixels = [(places[name] - places["q0.5"]) * plot / (high - low) for name in ("q0.9", "q0.99")]

    assert places["q0.5"] == height_of([0.01]).item()
    assert pixels == pytest.approx([13.0, 26.0])


def test_a_reward_is_pale_only_behind_its_median(points: Sequence[StepPoint]):
    assert [line.line.color for line in figures.reward(points[:40]).data] == [GREEN]
    behind, median = figures.reward([replace(p, first_step=i, last_step=i) for i, p in enumerate([*points] * 9)]).data
    assert (behind.line.color, median.line.color) == (faint(GREEN, 0.6), GREEN)


def test_a_quantile_lies_in_the_bucket_that_holds_it(points: Sequence[StepPoint]):
    point = points[5]
    cumulative = np.cumsum(point.heat)
    bucket = int(np.searchsorted(cumulative, 0.9 * cumulative[-1]))
    q = point.values["log_ratio_abs_q0.9"]
    assert BUCKET_EDGES[bucket] <= q < BUCKET_EDGES[bucket + 1]


def test_lines_equal_the_values_kept(points: Sequence[StepPoint]):
    cases = [
        (figures.mismatch(points), "d̄", "log_ratio_abs_mean"),
        (figures.mismatch(points), "floor, |δ impl|", "delta_impl_abs_mean"),
        (figures.mismatch(points), "at lag 0", "log_ratio_abs_mean_lag0"),
        (figures.ess(points), "ESS", "ess_ratio"),
        (figures.reward(points), "reward", "reward_mean"),
        (figures.loss(points), "loss", "loss_mean"),
        (figures.tail_quantiles(points), "q0.999", "log_ratio_abs_q0.999"),
        (figures.tail_quantiles(points), "max", "log_ratio_abs_max"),
        (figures.reference(points), "q", "quantile_reference"),
        (figures.radii(points, Rule()), "low", "clip_radius_low_mean"),
        (figures.radii(points, Rule()), "high", "clip_radius_high_mean"),
        (figures.tail_index(points), "tail index", "tail_index"),
        (figures.divergence(points), "KL, k3", "kl_k3"),
        (figures.flip_rates(points), "(token, layer) pairs", "router_flip_rate"),
    ]
    for figure, name, value in cases:
        assert drawn(figure, name) == kept(points, value), name


def test_a_missing_step_breaks_a_line_and_a_sparse_run_does_not():
    some = line(
        [bare(1, ess_ratio=0.5), bare(2, ess_ratio=0.6), bare(3, ess_ratio=0.7), bare(9, ess_ratio=1.0)], "ess_ratio"
    )
    assert np.isnan(some.y).tolist() == [False, False, False, True, False]
    every_tenth = line([bare(step, ess_ratio=0.5) for step in (0, 10, 20, 30)], "ess_ratio")
    assert every_tenth.y.tolist() == [0.5] * 4


def test_an_unknown_value_is_a_gap_and_a_value_alone_is_a_dot():
    figure = figures.ess([bare(1, ess_ratio=0.5), bare(2), bare(3, ess_ratio=0.7), bare(4, ess_ratio=math.inf)])
    one = figure.data[0]
    assert np.isnan(one.y).tolist() == [False, True, False, True]
    assert one.mode == "lines+markers"
    assert one.connectgaps is False


def test_thinning_keeps_spikes():
    many = [bare(step, ess_ratio=0.01 if step == 7777 else 0.9) for step in range(10_000)]
    thin = line(many, "ess_ratio")
    assert len(thin.x) <= figures.MOST_LINE_POINTS
    assert thin.y[thin.x == 7777].tolist() == [0.01]


def test_merged_points_stand_in_the_middle_of_their_steps(history: SyntheticHistory):
    merged = history.steps(RUN, max_points=10)
    assert merged[0].steps == 8
    figure = figures.ess(merged)
    assert figure.data[0].x[0] == 3.5
    assert "up to 8 steps a point" in figure.layout.xaxis.title.text
    laid = columns(merged)
    assert laid.edges[:2].tolist() == [-0.5, 7.5]


def test_columns_of_many_points_hold_all_their_tokens(points: Sequence[StepPoint]):
    many = [replace(points[0], first_step=step, last_step=step) for step in range(1700)]
    heat = figures.tail_heat_map(many, measure="tokens").data[0]
    assert heat.z.shape[1] <= figures.MOST_COLUMNS
    assert np.asarray(heat.customdata).sum() == 1700 * sum(points[0].heat)


def test_coverage_is_grey_where_unknown(history: SyntheticHistory, points: Sequence[StepPoint]):
    strip = figures.coverage_strip(points).data[0]
    rows = dict(zip(strip.y, np.asarray(strip.z), strict=True))
    grey = {(a + b) / 2 for a, b, z in zip(strip.x, strip.x[1:], rows["versions"], strict=False) if z == -1}
    unversioned = {float(p.first_step) for p in points if p.values.get("version_coverage_ratio") == 0}
    assert grey == unversioned | {STEPS // 4}
    assert unversioned
    other = figures.coverage_strip(history.steps(OTHER_RUN)).data[0]
    known = {name: set(row.tolist()) for name, row in zip(other.y, np.asarray(other.z), strict=True)}
    nothing = {"references": {-1.0}, "routes": {-1.0}, "reward": {-1.0}}
    assert known == {"versions": {1.0}, **nothing, "finite": {1.0}}
    assert other.text[1][0] == "references: unknown"


def test_one_token_that_is_no_number_is_seen(points: Sequence[StepPoint]):
    strip = figures.coverage_strip(points).data[0]
    row = list(strip.y).index("finite")
    shown = dict(zip(np.asarray(strip.x)[:-1] + 0.5, zip(strip.z[row], strip.text[row], strict=True), strict=True))
    for point in points:
        broken = int(point.values.get("nan_tokens", 0) + point.values.get("inf_tokens", 0))
        z, said = shown[point.first_step]
        assert z == pytest.approx(0.01 if broken else 1.0)
        assert said == f"NaN or infinite: {broken:,} tokens"
    assert 0.01 in np.round(strip.z[row], 6)


def test_clip_fractions_stack_to_all_that_is_clipped(points: Sequence[StepPoint]):
    figure = figures.clip_fractions(points)
    assert drawn(figure, "clipped by PPO too") == kept(points, "clip_fraction_ppo")
    top = drawn(figure, "newly intercepted")
    assert top == pytest.approx(kept(points, "clip_fraction"))
    hatched = next(t for t in figure.data if t.fill == "toself" and t.name == "newly intercepted")
    assert hatched.fillpattern.shape == "/"


def test_a_stack_is_open_where_a_part_is_unknown():
    points = [bare(1, a=1.0, b=2.0), bare(2, a=1.0), bare(3, a=3.0, b=1.0), bare(4, a=1.0, b=1.0)]
    a, b = stack_of(points, lambda p: (p.values["a"], p.values["b"]) if "b" in p.values else None)
    assert np.isnan(a.y).tolist() == np.isnan(b.y).tolist() == [False, True, False, False]
    assert b.y[[0, 2, 3]].tolist() == [2.0, 1.0, 1.0]


def test_without_advantages_clip_fractions_say_what_to_pass(history: SyntheticHistory):
    figure = figures.clip_fractions(history.steps(OTHER_RUN))
    assert not figure.data
    assert "advantage=" in figure.layout.annotations[0].text


def test_canaries_are_a_floor_unless_the_weights_are_wrong(history: SyntheticHistory, points: Sequence[StepPoint]):
    engines = history.engines(RUN)
    canary = trace(figures.mismatch(points, engines=engines), "canary")
    usable = {r.status.canary_log_ratio_abs_mean for r in engines if r.status.state != "wrong_weights"}
    assert set(canary.y.tolist()) <= usable
    assert max(canary.y) == max(usable) < 0.01
    assert len(canary.x) == len(set(canary.x.tolist()))  # of several engines, the one that is furthest off
    assert any(r.status.state == "wrong_weights" for r in engines)


def test_canaries_of_a_fleet_are_few_marks_and_the_worst_is_among_them(points: Sequence[StepPoint]):
    many = [replace(bare(i), at=float(i), values={"log_ratio_abs_mean": 0.1}) for i in range(1000)]
    engines = [
        EngineRecord(
            float(i), EngineStatus(name, "serving", canary_log_ratio_abs_mean=0.5 if i == 700 else 0.001 * (i % 9 + 1))
        )
        for i in range(1000)
        for name in ("a", "b")
    ]
    canary = trace(figures.mismatch(many, engines=engines), "canary")
    assert len(canary.x) <= MOST_CANARIES
    assert drawn(figures.mismatch(many, engines=engines), "canary")[700.0] == 0.5


def version_labels(figure: go.Figure) -> dict[float, str]:
    return {a.x: a.text for a in figure.layout.annotations if a.text.startswith("v")}


def test_a_version_now_and_then_is_a_thin_line(points: Sequence[StepPoint]):
    versions = [VersionRecord(3, i, 0.0, i) for i in range(0, STEPS, 4)] + [VersionRecord(3, 7, 0.0, None)]
    figure = figures.ess(points, versions=versions)
    (marks,) = [shape for shape in figure.layout.shapes if shape.name == "versions"]
    assert [float(x) for x in re.findall(r"M (\S+),0 L \1,1", marks.path)] == [*range(0, STEPS, 4)]
    assert marks.line.width == 1
    assert len(version_labels(figure)) == MOST_MARKER_LABELS


def test_a_version_at_every_step_is_written_above_and_has_no_line(points: Sequence[StepPoint]):
    versions = [VersionRecord(3, 100 + i, 0.0, i) for i in range(STEPS)]
    figure = figures.ess(points, versions=versions)
    labels = version_labels(figure)
    assert len(versions) > MOST_MARKERS
    assert [shape for shape in figure.layout.shapes if shape.name == "versions"] == []
    assert len(labels) == MOST_MARKER_LABELS
    assert (min(labels), max(labels)) == (0, STEPS - 1)
    assert labels.items() <= {v.step: f"v{v.version}" for v in versions}.items()


def test_a_closed_bound_is_drawn_at_the_lower_end_and_said_to_be_0():
    figure = figures.contraction([bare(0, contraction_min=0.5), bare(1, contraction_min=0.0)])
    (least,) = figure.data
    assert least.customdata.tolist() == [0.5, 0.0]
    bottom, top = figure.layout.yaxis.range
    assert np.log10(least.y).tolist() == pytest.approx([math.log10(0.5), bottom])
    assert bottom <= -0.9
    assert top >= 0.0


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0.0011, 0.0014], ["0.0002", "0.0005", "0.001"]),  # level: a decade is shown
        ([0.002, 0.09], ["0.002", "0.005", "0.01", "0.02", "0.05", "0.1"]),
        ([1e-6, 3.0], ["10<sup>-6</sup>", "10<sup>-5</sup>", "10<sup>-4</sup>", "0.001", "0.01", "0.1", "1"]),
        ([math.nan, 0.0], ["0.2", "0.5", "1"]),
    ],
)
def test_a_log_axis_has_ticks_that_read(values: list[float], ticks: list[str]):
    figure = go.Figure()
    log_axis(figure, values)
    assert [*figure.layout.yaxis.ticktext] == ticks


def test_flip_rates_by_layer(points: Sequence[StepPoint]):
    heat = figures.flip_rate_heat_map(points).data[0]
    layers = np.asarray(heat.y).tolist()
    assert layers == sorted(points[0].layer_flip_rates)
    last = np.asarray(heat.z)[:, -1]
    assert last == pytest.approx([points[-1].layer_flip_rates[layer] for layer in layers], rel=1e-6)
    assert np.isnan(np.asarray(heat.z)[:, STEPS // 4]).all()
    assert np.asarray(heat.z)[:, 0].tolist() == [0.0] * len(layers)


def test_compared_runs_begin_at_the_same_step(history: SyntheticHistory, points: Sequence[StepPoint]):
    runs = {"a": points[10:], "b": history.steps(OTHER_RUN)}
    figure = figures.compare(runs, "log_ratio_abs_mean")
    assert [min(drawn(figure, name)) for name in ("a", "b")] == [0.0, 0.0]
    assert list(drawn(figure, "a").values()) == list(kept(points[10:], "log_ratio_abs_mean").values())
    apart = figures.compare(runs, "log_ratio_abs_mean", aligned=False)
    assert min(drawn(apart, "a")) == 10.0
    rewards = figures.compare(runs, "reward_mean")
    assert [t.name for t in rewards.data] == ["a"]
    assert rewards.layout.annotations[0].text == "unknown: b"
