"""What no demo shows, in real Chromium: experts, two engines, a sidecar that goes away, links, dark, saved files."""

from __future__ import annotations

import csv
import re

import pytest
from playwright.sync_api import expect

from tests.integration.dashboard.visit import CHROMIUM, PATIENCE_MS
from tests.unit.dashboard.synthetic import OTHER_RUN, RUN

pytestmark = pytest.mark.real(CHROMIUM, "Debian's package chromium")

STEPS = 60
FIGURES = {"Engines": 5, "Routing": 2, "Alerts": 1}


def test_experts_and_a_fleet_of_which_one_engine_lies(dashboard, visit, keep_picture):
    history = dashboard.history.show("faults", STEPS)
    values = [point for point in history.steps(RUN) if point.is_closed][-1].values
    tab = visit()
    tab.open()
    tab.drawn("Now")

    for page, figures in FIGURES.items():
        tab.go(page)
        expect(tab.page.locator(".js-plotly-plot .main-svg:first-child")).to_have_count(figures, timeout=PATIENCE_MS)
        assert tab.page.get_by_test_id("stException").count() == 0
        expect(tab.page.get_by_role("heading", name=page).first).to_contain_text("live")
        assert tab.cut_off() == [], page
        keep_picture(tab, f"faults-{page.lower()}")
    for event in history.events(RUN, only_active=True):
        assert event.evidence[1:] in tab.said()  # of the last page, the alerts
    tab.go("Routing")
    assert tab.metric("Flip rate") == f"{values['router_flip_rate']:.1%}"
    tab.go("Now")
    expect(tab.verdict()).to_contain_text(f"First seen at step {STEPS // 2}")


def test_a_first_run_shows_up_by_itself_and_its_new_steps_without_a_reload(dashboard, visit):
    dashboard.history.show("empty", 0)
    tab = visit()
    tab.open()
    tab.page.get_by_role("heading", name="No run yet").wait_for()
    tab.page.evaluate("window.visitedOnce = true")

    dashboard.history.show("healthy", 20)
    tab.drawn("Now")
    expect(tab.page.get_by_test_id("stMain")).to_contain_text("Step 18, version 18", timeout=PATIENCE_MS)
    dashboard.history.show("healthy", 24)
    expect(tab.page.get_by_test_id("stMain")).to_contain_text("Step 22, version 22", timeout=PATIENCE_MS)
    kept = next(record.steps for record in dashboard.history.runs() if record.run == RUN)
    expect(tab.page.get_by_test_id("stSidebar")).to_contain_text(f"{kept} steps", timeout=PATIENCE_MS)
    assert tab.page.evaluate("window.visitedOnce")


def test_a_sidecar_that_goes_away_and_comes_back(dashboard, visit):
    dashboard.history.show("healthy", 20)
    tab = visit()
    tab.open()
    tab.drawn("Now")
    value = tab.metric("Mismatch d̄")

    dashboard.history.leave()
    expect(tab.page.get_by_test_id("stMain")).to_contain_text("doesn't answer", timeout=PATIENCE_MS)
    assert tab.metric("Mismatch d̄") == value
    dashboard.history.show("healthy", 24)
    expect(tab.page.get_by_test_id("stMain")).to_contain_text("Step 22, version 22", timeout=PATIENCE_MS)
    expect(tab.page.get_by_test_id("stMain")).not_to_contain_text("doesn't answer", timeout=PATIENCE_MS)


def test_a_link_leads_to_its_run_its_range_and_its_page(dashboard, visit):
    history = dashboard.history.show("healthy", STEPS)
    tab = visit()
    tab.open("lag", run=OTHER_RUN, range="10..20")
    tab.drawn("Lag")

    (point,) = history.steps(OTHER_RUN, first_step=20, last_step=20)
    expect(tab.page.get_by_test_id("stMain")).to_contain_text("Step 20, version 20", timeout=PATIENCE_MS)
    assert float(tab.metric("Lag N")) == pytest.approx(point.values["version_lag_mean"], rel=0.005)
    assert f"run={OTHER_RUN}&range=10..20" in tab.page.url
    tab.go("Bounds")
    expect(tab.page.get_by_test_id("stMain")).to_contain_text("Step 20, version 20", timeout=PATIENCE_MS)
    assert f"/bounds?run={OTHER_RUN}&range=10..20" in tab.page.url


def test_what_is_shown_can_be_saved(dashboard, visit, tmp_path):
    history = dashboard.history.show("faults", STEPS)
    tab = visit()
    tab.open(live="off")
    tab.drawn("Now")
    with tab.page.expect_download() as saving:
        tab.page.get_by_role("button", name="CSV").click()
    assert saving.value.suggested_filename == f"{RUN}-life-3-steps.csv"
    saving.value.save_as(tmp_path / "steps.csv")

    points = history.steps(RUN)
    with (tmp_path / "steps.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert [int(row["last_step"]) for row in rows] == [point.last_step for point in points]
    for row, point in zip(rows, points, strict=True):
        assert {name: float(row[name]) for name in point.values} == dict(point.values)


def test_dark_is_dark_and_reads(dashboard, visit, keep_picture):
    dashboard.history.show("faults", STEPS)
    tab = visit("dark")
    tab.open()
    tab.drawn("Now")

    ground = tab.page.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor")
    red, green, blue = (int(part) for part in re.findall(r"\d+", ground)[:3])
    assert max(red, green, blue) < 64
    keep_picture(tab, "faults-now-dark")
