"""Figures of version lag and of the clip interval, against independent computations."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from satwatch._dashboard import figures
from satwatch.sat import clip_bounds
from satwatch.types import LengthLag, Rule, StepPoint
from tests.unit.dashboard.synthetic import OTHER_RUN, RUN, SyntheticHistory

STEPS = 60


@pytest.fixture(scope="module")
def history() -> SyntheticHistory:
    return SyntheticHistory("faults", STEPS)


@pytest.fixture(scope="module")
def points(history: SyntheticHistory) -> Sequence[StepPoint]:
    return history.steps(RUN)


def test_the_lag_heat_map_is_the_histogram_of_each_step(points: Sequence[StepPoint]):
    figure = figures.lag_heat_map(points)
    heat = figure.data[0]
    share = np.asarray(heat.customdata)
    by_step = {p.first_step: p for p in points}
    for i, (left, right) in enumerate(zip(heat.x, heat.x[1:], strict=False)):
        point = by_step.get((left + right) / 2)
        if point is None or not point.lags:
            assert np.isnan(share[:, i]).all()
            continue
        total = sum(point.lags.values())
        for lag in range(len(share)):
            if lag in point.lags:
                assert share[lag, i] == pytest.approx(point.lags[lag] / total, rel=1e-6)
            else:
                assert math.isnan(share[lag, i])
    unversioned = [p.first_step for p in points if not p.lags]
    (bands,) = [shape for shape in figure.layout.shapes if shape.name == "unknown"]
    grey = [(float(a), float(b)) for a, b in re.findall(r"M (\S+),0 L (\S+),0", bands.path)]
    assert grey[-1] == (unversioned[0] - 0.5, unversioned[-1] + 0.5)


def test_very_old_tokens_share_the_top_row():
    point = StepPoint(1, 1, 1, 1, 0.0, True, 1, 1, 500, {"version_lag_mean": 120.0}, lags={0: 1, 100: 1, 300: 2})
    heat = figures.lag_heat_map([point]).data[0]
    assert np.asarray(heat.y).max() == 64
    assert np.asarray(heat.customdata)[64, 0] == 0.75


def test_the_parts_of_the_lag_add_up_to_it(points: Sequence[StepPoint]):
    figure = figures.lag_parts(points)
    generation, total = (t for t in figure.data if t.fill is None)
    by_step = {p.first_step: p.values for p in points}
    seen = 0
    for x, low, high in zip(generation.x, generation.y, total.y, strict=True):
        values = by_step.get(x, {})
        if "version_lag_generation_mean" in values:
            seen += 1
            assert low == pytest.approx(values["version_lag_generation_mean"])
            assert high == pytest.approx(low + values["version_lag_queue_mean"])
        else:
            assert math.isnan(low)
            assert math.isnan(high)
    assert seen == sum("version_lag_generation_mean" in p.values for p in points) > 0


def test_shares_of_the_lag_add_up_to_one(points: Sequence[StepPoint]):
    top = [t for t in figures.lag_parts(points, shares=True).data if t.fill is None][-1]
    known = np.asarray(top.y)[np.isfinite(top.y)]
    assert known == pytest.approx(np.ones(len(known)))
    calm = StepPoint(1, 1, 1, 1, 0.0, True, 1, 1, 5, {}, generation_lags={0: 9}, queue_lags={0: 9})
    assert not figures.lag_parts([calm], shares=True).data
    assert figures.lag_parts([calm]).data


def test_lag_by_length_is_over_all_steps_shown(points: Sequence[StepPoint]):
    totals: dict[int, Counter[str]] = {}
    for point in points:
        for row in point.length_lags:
            counts = totals.setdefault(row.longest, Counter())
            counts.update(
                {n: getattr(row, n) for n in ("tokens", "lag", "split_tokens", "generation_lag", "queue_lag")}
            )
    figure = figures.lag_by_length(points)
    generation, queue, mean = figure.data
    known = [totals[longest] for longest in sorted(totals) if totals[longest]["tokens"]]
    assert list(generation.y) == [c["generation_lag"] / c["split_tokens"] for c in known]
    assert list(queue.y) == [c["queue_lag"] / c["split_tokens"] for c in known]
    assert list(mean.y) == [c["lag"] / c["tokens"] for c in known]
    assert figure.layout.barmode == "stack"


def test_the_names_of_many_lengths_stand_apart():
    rows = tuple(LengthLag(2**i, 1, 2**i, 2**i, 1, 2**i, 1, 0) for i in range(16))
    axis = figures.lag_by_length([StepPoint(1, 1, 1, 1, 0.0, True, 1, 1, 5, {}, length_lags=rows)]).layout.xaxis
    assert axis.ticktext == ("≤1", "≤4", "≤16", "≤64", "≤256", "≤1k", "≤4k", "≤16k")
    assert axis.tickvals[-1] == "8,193-16,384"
    assert axis.tickangle == 0


def test_lengths_whose_lag_is_unknown_draw_no_bar():
    rows = (LengthLag(8, 3, 20), LengthLag(16, 1, 12, tokens=12, lag=24))
    point = StepPoint(1, 1, 1, 1, 0.0, True, 1, 1, 5, {}, length_lags=rows)
    generation, _, mean = figures.lag_by_length([point]).data
    assert list(generation.x) == ["9-16"]
    assert list(generation.y) == [None]
    assert list(mean.y) == [2.0]


def test_a_forecast_is_drawn_beside_what_was_seen(points: Sequence[StepPoint]):
    figure = figures.lag_against_forecast(points, generation=0.5, queue=1.25)
    expected = {t.name: set(t.y) for t in figure.data if "expected" in t.name}
    assert expected == {"N_PQS expected 0.50": {0.5}, "N_IQS expected 1.25": {1.25}, "N expected 1.75": {1.75}}
    only = figures.lag_against_forecast(points, queue=1.25)
    assert [t.name for t in only.data if "expected" in t.name] == ["N_IQS expected 1.25"]


def test_the_mismatch_is_shown_where_the_lag_is_known(points: Sequence[StepPoint]):
    (scatter,) = figures.mismatch_by_lag(points).data
    known = [p for p in points if "version_lag_mean" in p.values]
    assert list(scatter.x) == [p.values["version_lag_mean"] for p in known]
    assert list(scatter.y) == [p.values["log_ratio_abs_mean"] for p in known]
    assert len(known) < len(points)


def test_unknown_parts_of_a_known_lag_ask_for_a_version_a_token(points: Sequence[StepPoint]):
    whole = [replace(p, generation_lags={}, queue_lags={}) for p in points]
    figure = figures.lag_parts(whole)
    assert not figure.data
    assert "one version<br>a token" in figure.layout.annotations[0].text


def test_without_versions_a_figure_says_what_to_pass():
    point = StepPoint(1, 1, 1, 1, 0.0, True, 1, 1, None, {"log_ratio_abs_mean": 0.01})
    for draw in (figures.lag_heat_map, figures.lag_parts, figures.lag_by_length, figures.mismatch_by_lag):
        figure = draw([point])
        assert not figure.data
        assert "behavior_version=" in figure.layout.annotations[0].text


@pytest.mark.parametrize(
    "rule", [Rule(), Rule(eps_low=0.1, eps_high=0.28, exponent=1.0), Rule(quantile=0.5, eps_low=0.4, eps_high=0.4)]
)
def test_the_interval_drawn_is_the_one_that_clips(rule: Rule):
    q = 0.03
    found = figures.interval(rule, q)
    # A batch whose q is exactly q: most tokens at q, then each score drawn, few enough to stay in the tail.
    for index in range(0, len(found.score), 37):
        d = torch.full((101,), q, dtype=torch.float64)
        d[-1] = float(found.score[index])
        bounds = clip_bounds(
            d, quantile=rule.quantile, eps_low=rule.eps_low, eps_high=rule.eps_high, exponent=rule.exponent
        )
        assert float(bounds.quantile_reference) == q
        assert found.low[index] == pytest.approx(float(bounds.low[-1]), rel=1e-12)
        assert found.high[index] == pytest.approx(float(bounds.high[-1]), rel=1e-12)


def test_what_is_newly_intercepted_passes_under_ppo_and_not_here():
    rule = Rule()
    found = figures.interval(rule, 0.03)
    ratio = np.exp(found.score)
    ppo = (ratio >= 1 - rule.eps_low) & (ratio <= 1 + rule.eps_high)
    sat = (ratio >= found.low) & (ratio <= found.high)
    assert np.array_equal(found.intercepted, ppo & ~sat)
    assert found.intercepted.any()
    assert not (sat & ~ppo).any()


def test_a_shut_gate_leaves_ppo_s_interval():
    for rule, q in ((Rule(enabled=False), 0.03), (Rule(), 0.0), (Rule(), math.inf)):
        found = figures.interval(rule, q)
        assert set(found.low) == {1 - rule.eps_low}
        assert set(found.high) == {1 + rule.eps_high}
        assert not found.intercepted.any()
        picture = figures.interval_picture(rule, q)
        assert "PPO's interval everywhere" in picture.layout.annotations[0].text


def test_the_picture_has_the_bounds_the_band_and_the_ratio():
    rule = Rule()
    picture = figures.interval_picture(rule, 0.03)
    found = figures.interval(rule, 0.03)
    low, high = (t for t in picture.data if t.name == "SAT's interval")
    assert np.array_equal(low.y, found.low)
    assert np.array_equal(high.y, found.high)
    hatched = [t for t in picture.data if t.name == "newly intercepted outward band"]
    assert [t.meta["advantage"] for t in hatched] == ["A > 0", "A < 0"]
    assert all(t.fillpattern.shape == "/" for t in hatched)
    assert max(hatched[0].x) == pytest.approx(math.log(1.2), abs=1e-3)
    assert min(hatched[1].x) == pytest.approx(math.log(0.8), abs=1e-3)
    assert {t.name for t in picture.data} >= {"PPO's interval", "ratio r = exp(d)"}
    assert "q = 0.03" in picture.layout.annotations[0].text


@pytest.mark.parametrize("q", [None, math.nan])
def test_an_unknown_reference_draws_no_interval(q: float | None):
    assert not figures.interval_picture(Rule(), q).data


def test_radii_stand_under_the_nominal_ones_of_the_rule(history: SyntheticHistory):
    figure = figures.radii(history.steps(OTHER_RUN), Rule(enabled=False, eps_low=0.2, eps_high=0.28))
    assert [a.text for a in figure.layout.annotations] == ["nominal low 0.2", "nominal high 0.28"]
