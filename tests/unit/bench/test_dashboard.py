"""The dashboard's part: what is stored is a run as a trainer's, and a page is opened over the wire."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from satwatch.bench import dashboard
from satwatch.bench import stored_run as stored_run_module
from satwatch.bench.browser import NO_CHROMIUM, Visited
from satwatch.bench.dashboard import MISSING, DashboardCost, measure_dashboard
from satwatch.bench.page import PageCost, RefreshCost, ask, draw, measure_refresh
from satwatch.bench.stage import Stage
from satwatch.bench.stored_run import ENGINES, LAYERS, RESPONSES, step_totals, stored_run
from satwatch.bench.timing import Timing
from satwatch.client import HistoryClient
from satwatch.errors import UnavailableError
from satwatch.server.history_server import serving_history
from satwatch.types import Stamped


def test_a_step_says_all_that_a_trainer_can_say():
    values = step_totals(3, 512).values()
    assert values["tokens"] == 512
    assert values["version_coverage_ratio"] == values["reference_coverage_ratio"] == values["router_coverage"] == 1.0
    assert values["version_lag_mean"] == pytest.approx(
        values["version_lag_generation_mean"] + values["version_lag_queue_mean"]
    )
    assert values["log_ratio_abs_mean_lag0"] > 0
    assert {"reward_mean", "clip_fraction", "router_flip_rate", "delta_policy_abs_mean"} <= values.keys()
    assert step_totals(3, 512).values() == values != step_totals(4, 512).values()


def test_a_stored_run_is_whole_and_can_be_looked_at():
    with stored_run(40, tokens=256) as (store, size):
        seen = ask(store, 500)
        merged = ask(store, 40, 10)
        newest = ask(store, 5)
    assert size > 0
    assert [point.first_step for point in seen.points] == list(range(40))
    assert sum(point.values["tokens"] for point in seen.points) == 40 * 256
    assert sum(row.responses for point in seen.points for row in point.length_lags) == 40 * RESPONSES
    last = seen.points[-1]
    assert last.policy_version == 39
    assert {39 - lag for lag in last.lags} == set(last.versions)
    assert len(last.layer_flip_rates) == LAYERS
    assert [version.version for version in seen.versions] == list(range(40))
    assert {record.status.engine for record in seen.engines} == set(ENGINES)
    assert [point.first_step for point in newest.points] == [35, 36, 37, 38, 39]
    assert len(merged.points) <= 10
    assert sum(point.values["tokens"] for point in merged.points) == 40 * 256


def test_the_page_is_drawn_from_what_was_asked():
    with stored_run(12, tokens=256) as (store, _):
        seen = ask(store, 12)
    figures = draw(seen)
    assert all(figure.data for figure in figures)
    drawn = [list(trace.y) for trace in figures[1].data if trace.y is not None]
    assert [point.values["log_ratio_abs_mean"] for point in seen.points] in drawn


def test_a_run_that_is_stored_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stored_run_module, "_FLUSH_STEPS", 4)
    monkeypatch.setattr(stored_run_module, "_NEWS_STEPS", 8)
    told: list[int] = []
    with stored_run(20, tokens=64, on_stored=told.append):
        pass
    assert told == [8, 16]


def test_a_run_that_is_not_stored_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stored_run_module, "_STORE_SECONDS", 0.0)
    with pytest.raises(UnavailableError, match="a run that is stored whole"), stored_run(20, tokens=64):
        pass


def test_pages_of_a_short_and_a_long_run_are_measured(monkeypatch: pytest.MonkeyPatch):
    opened: list[Visited] = []

    def browser(pages: Sequence[Visited], *, repeats: int) -> str:
        opened.extend(pages)
        return NO_CHROMIUM

    monkeypatch.setattr(dashboard, "measure_browser", browser)
    told: list[str] = []
    cost = measure_dashboard(quick=True, on_part=told.append)
    assert not isinstance(cost, str)
    assert [(page.steps, page.shown) for page in (cost.short, cost.long, cost.whole)] == [(20, 20), (60, 20), (60, 60)]
    assert [(page.steps, page.shown) for page in opened] == [(20, 20), (60, 20), (60, 60)]
    assert cost.short.points == cost.long.points == 20
    assert 0 < cost.whole.points <= 20
    assert cost.long.store_bytes == cost.whole.store_bytes > cost.short.store_bytes
    for page in (cost.short, cost.long, cost.whole):
        assert page.page.repeats == page.questions.repeats == page.figures.repeats == 2
        assert page.page.median >= max(page.questions.median, page.figures.median) > 0
        assert page.json_bytes > 10_000
    assert cost.refresh.shown == 20
    assert cost.refresh.step.repeats == cost.refresh.nothing.repeats == 2
    assert cost.refresh.nothing.median > 0
    assert cost.browser == NO_CHROMIUM
    assert told[0] == "dashboard: storing 20 steps"
    assert told[-1] == "dashboard: in a browser"


def test_growth_is_that_of_the_same_page_over_a_longer_run():
    short, long, whole = (
        PageCost(1, 1, 1, 1, one, one, one, 1) for one in (Timing(seconds, 9.0, 1) for seconds in (0.2, 0.3, 5.0))
    )
    refresh = RefreshCost(1, long.page, short.page)
    assert DashboardCost(short, long, whole, refresh, NO_CHROMIUM).growth == pytest.approx(1.5)


def test_a_refresh_asks_for_what_is_new():
    with stored_run(12, tokens=256) as (store, _):
        stage = Stage(store)
        stage.show(store, 6)
        read: list[str] = []
        with (
            serving_history(_noted(stage, read)) as address,
            HistoryClient(address, timeout=60.0, keep=1000) as client,
        ):
            cost = measure_refresh(client, stage, 5, 500, repeats=3)
    assert (cost.shown, cost.step.repeats, cost.nothing.repeats) == (5, 3, 3)
    # The first question, and then one step a refresh that has one.
    assert read.count("StepsQuery") == 5 + 1 + 3


def _noted(stage: Stage, read: list[str]) -> Stage:
    """Note the kind of each record that the stage reads."""
    stamped = stage.stamped

    def noted(query):
        def reader(each):
            def reads():
                read.append(type(query).__name__)
                return each.read()

            return reads

        return [Stamped(each.stamp, reader(each)) for each in stamped(query)]

    stage.stamped = noted
    return stage


def test_without_the_extras_nothing_is_started(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dashboard, "find_spec", lambda name: None)
    monkeypatch.setattr(dashboard, "stored_run", None)
    assert measure_dashboard(quick=True) == MISSING


def test_the_benchmark_is_read_without_the_extras():
    program = (
        "import json, sys, satwatch.bench.dashboard; extras = ('playwright', 'plotly', 'sqlalchemy', 'streamlit'); "
        "print(json.dumps([name for name in extras if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
