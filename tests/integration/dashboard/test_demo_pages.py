"""Every page over what real demos have stored, a sound one and one of each fault: its numbers are the stored ones."""

from __future__ import annotations

import math
import re
from contextlib import closing

import pytest
from playwright.sync_api import expect

from satwatch.alerts import RULES
from satwatch.history import open_store
from tests.integration.dashboard.conftest import DEMO_STEPS, FAULT_STEP, announced, dashboard_command
from tests.integration.dashboard.visit import CHROMIUM, PAGES, PATIENCE_MS
from tests.integration.demos import demo

pytestmark = pytest.mark.real(CHROMIUM, "Debian's package chromium")

SUMMARIES = {rule.name: rule.summary for rule in RULES}
# What each fault is to be called, and within how many steps.
NAMED = {
    "lag": (("VersionLagRising", "EngineBehind"), 12),
    "nan": (("NanTokens",), 0),
    "stale-engine": (("EngineWrongWeights",), DEMO_STEPS["stale-engine"] - FAULT_STEP),
    "temperature": (("FloorRaised",), 4),
}
# A dense model: there are no routes.
FIGURES = {"Now": 6, "Bounds": 8, "Lag": 5, "Engines": 5, "Routing": 0, "Tokens": 1, "Compare": 8, "Alerts": 1}
TILES = {
    "Now": {
        "Mismatch d̄": "log_ratio_abs_mean",
        "Tail, 99%": "log_ratio_abs_q0.99",
        "Version lag": "version_lag_mean",
        "Reward": "reward_mean",
    },
    "Bounds": {
        "Radius low": "clip_radius_low_mean",
        "Radius high": "clip_radius_high_mean",
        "Smallest factor": "contraction_min",
    },
    "Lag": {"Lag N": "version_lag_mean", "Waited": "version_lag_queue_mean"},
}
# Lines of figures, by the beginning of the figure's title.
LINES = {
    "Now": {
        ("The tail", "q0.99"): "log_ratio_abs_q0.99",
        ("Mean mismatch", "d̄"): "log_ratio_abs_mean",
        ("Mean mismatch", "floor, |δ impl|"): "delta_impl_abs_mean",
        ("Effective sample size", "ESS"): "ess_ratio",
        ("Reward", "reward"): "reward_mean",
        ("Loss", "loss"): "loss_mean",
    },
    "Bounds": {
        ("Quantile reference", "q"): "quantile_reference",
        ("Clip radii", "low"): "clip_radius_low_mean",
        ("Strongest contraction", "smallest c"): "contraction_min",
        ("Quantiles of the tail", "max"): "log_ratio_abs_max",
        ("KL", "KL, k3"): "kl_k3",
    },
    "Lag": {("Version lag", "mean lag"): "version_lag_mean", ("Lag, seen", "N_IQS"): "version_lag_queue_mean"},
}


def run_name(fault):
    return "demo-reverse-sat-lag2-seed0" + ("" if fault == "none" else f"-{fault}")


def shown_numbers_are_stored(tab, page, points):
    """Compare tiles with the last step, and lines with all of them."""
    for label, name in TILES.get(page, {}).items():
        assert float(tab.metric(label)) == pytest.approx(points[-1].values[name], rel=0.005), label
    for (title, line), name in LINES.get(page, {}).items():
        told = tab.line(title, line)
        stored = {p.first_step: p.values[name] for p in points if math.isfinite(p.values.get(name, math.nan))}
        assert told == pytest.approx(stored), (title, line)


@pytest.mark.parametrize("fault", ["none", "stale-engine"])
def test_every_page_shows_the_stored_numbers(demos, look, keep_picture, fault):
    run = run_name(fault)
    points = demos.history.steps(run)
    tab = look(demos.url)
    tab.open(run=run)
    tab.drawn("Now")

    assert [point.first_step for point in points] == [*range(DEMO_STEPS[fault])]
    for page in PAGES:
        tab.page.get_by_test_id("stSidebarNav").get_by_text(page, exact=True).click()
        heading = tab.page.get_by_role("heading", name=page).first
        expect(heading).to_contain_text(run, timeout=PATIENCE_MS)
        expect(tab.page.locator(".js-plotly-plot .main-svg:first-child")).to_have_count(
            FIGURES[page], timeout=PATIENCE_MS
        )
        if FIGURES[page]:
            tab.drawn(page)
        expect(heading).to_contain_text("ended")
        assert tab.page.get_by_test_id("stException").count() == 0
        shown_numbers_are_stored(tab, page, points)
        assert tab.cut_off() == [], page
        keep_picture(tab, f"demo-{fault}-{page.lower()}")


def test_a_sound_run_is_said_to_have_ended_without_an_alert(demos, look):
    tab = look(demos.url)
    tab.open(run=run_name("none"))
    last = demos.history.steps(run_name("none"))[-1].values

    expect(tab.verdict()).to_contain_text("No alert was active then", timeout=PATIENCE_MS)
    expect(tab.verdict()).to_contain_text(f"mean |d| {last['log_ratio_abs_mean']:.3g} nats")


@pytest.mark.parametrize("fault", NAMED)
def test_the_verdict_names_the_fault_and_the_step_that_it_began_at(demos, look, keep_picture, fault):
    alerts, late = NAMED[fault]
    raised = [e for e in demos.history.events(run_name(fault)) if e.alert in alerts and e.state == "raised"]
    tab = look(demos.url)
    tab.open(run=run_name(fault))
    expect(tab.verdict()).to_contain_text("First seen at step", timeout=PATIENCE_MS)
    said = tab.verdict().inner_text()

    event = next(event for event in raised if SUMMARIES[event.alert] in said)
    assert event.evidence[1:] in said
    assert f"First seen at step {event.step}, version {event.version}." in said
    assert FAULT_STEP <= event.step <= FAULT_STEP + late
    tab.go("Alerts")
    assert event.evidence[1:] in tab.said()
    expect(tab.page.get_by_role("heading", name="Active at the end")).to_be_visible()
    if fault != "stale-engine":  # which has pictures of all its pages
        keep_picture(tab, f"demo-{fault}-alerts")
        tab.go("Now")
        assert run_name(fault) in tab.page.get_by_role("heading", name="Now").first.inner_text()
        keep_picture(tab, f"demo-{fault}-now")


def test_a_click_that_comes_before_a_page_is_drawn_to_its_end_leaves_the_selection(demos, look):
    run = run_name("lag")
    # No event tells when the click hurts: while the last of the page before is under way.
    for milliseconds in (40, 70, 100):
        tab = look(demos.url)
        tab.open(run=run, range="100")
        tab.verdict().wait_for()
        for page in ("Alerts", "Now"):
            tab.page.wait_for_timeout(milliseconds)
            tab.go(page)
            expect(tab.page.get_by_role("heading", name=page).first).to_contain_text(run)
        assert tab.page.url.endswith(f"/?run={run}&range=100")
        tab.page.close()


def test_the_engine_that_lies_is_named_with_the_versions_it_says_and_serves(demos, look):
    run = run_name("stale-engine")
    records = [record for record in demos.history.engines(run) if record.status.state == "wrong_weights"]
    tab = look(demos.url)
    tab.open("engines", run=run)
    tab.drawn("Engines")
    newest = records[-1].status
    served, canary = (tab.line("Versions", f"rollout {word}") for word in ("served", "by its canary"))

    assert newest.version_canary == FAULT_STEP  # what it kept
    assert re.search(rf"labelled {newest.version_served}, equals the trainer's version {FAULT_STEP}\b", tab.said())
    assert "wrong weights" in tab.said()
    assert tab.metric("Serving") == "0 of 1"
    assert tab.metric("Largest lag") == f"{newest.version_published - FAULT_STEP} versions"
    assert "0 as declared" in tab.said()
    assert float(tab.metric("Largest canary").split()[0]) == pytest.approx(newest.canary_log_ratio_abs_mean, rel=0.005)
    assert (max(canary.values()), max(served.values())) == (FAULT_STEP, newest.version_served)


def test_the_tokens_that_are_nan_come_first(demos, look, keep_picture):
    run, step = run_name("nan"), FAULT_STEP + 3
    batches = demos.history.batches(run, step)
    tab = look(demos.url)
    tab.open("tokens", run=run, step=step)
    tab.drawn("Tokens")
    worst = [token for batch in batches for token in batch.worst]
    broken = tab.page.evaluate(
        "[...document.querySelector('.js-plotly-plot').data].find(one => one.name.startsWith('NaN')).text"
    )

    assert sum(math.isnan(token.log_ratio) for token in worst) == len(broken) == 3
    assert all("d = nan nats" in told and f"version {step - 2}" in told for told in broken)
    assert float(tab.metric("Worst |d|").split()[0]) == pytest.approx(
        max(batch.values["log_ratio_abs_max"] for batch in batches), rel=0.005
    )
    keep_picture(tab, "demo-nan-tokens")


def test_the_lag_of_an_engine_that_falls_behind_climbs_and_falls(demos, look, keep_picture):
    points = demos.history.steps(run_name("lag"))
    tab = look(demos.url)
    tab.open("lag", run=run_name("lag"))
    tab.drawn("Lag")
    lags = tab.line("Version lag", "mean lag")

    assert lags == pytest.approx({point.first_step: point.values["version_lag_mean"] for point in points})
    assert lags[FAULT_STEP - 1] == 2
    assert lags[max(lags)] > 20
    keep_picture(tab, "demo-lag-lag")


def test_a_sound_and_a_faulty_run_side_by_side(demos, look, keep_picture):
    sound, faulty = run_name("none"), run_name("temperature")
    life = next(record.life for record in demos.history.runs() if record.run == sound)
    tab = look(demos.url)
    tab.open("compare", run=faulty, **{"with": life})
    tab.drawn("Compare")

    for run in (sound, faulty):
        stored = {p.first_step: p.values["log_ratio_abs_mean"] for p in demos.history.steps(run)}
        assert tab.line("Mean mismatch", run) == pytest.approx(stored)
    keep_picture(tab, "demo-compare")


def test_every_page_of_an_empty_store_says_so(tmp_path, look, keep_picture):
    file = tmp_path / "empty.sqlite"
    open_store(str(file)).close()
    with dashboard_command("--store", str(file)) as url:
        tab = look(url)
        tab.open()
        for page in PAGES:
            tab.page.get_by_test_id("stSidebarNav").get_by_text(page, exact=True).click()
            tab.page.wait_for_url(re.compile(r"/\?|/$" if page == "Now" else f"/{page.lower()}"))
            expect(tab.page.get_by_role("heading", name="No run yet")).to_be_visible(timeout=PATIENCE_MS)
            expect(tab.page.get_by_test_id("stMain")).to_contain_text("empty: no trainer has opened a run in it")
        keep_picture(tab, "empty-store")


def test_a_demo_is_followed_from_before_its_first_step_to_its_last(tmp_path, look):
    file, steps = str(tmp_path / "live.sqlite"), 60
    serve = ("serve", "--listen", "127.0.0.1:0", "--metrics-port", "-1", "--device", "cpu", "--store", file)
    with announced(*serve) as first:
        address = re.search(r"grpc=(\S+)", first)[1]
        with dashboard_command("--address", address) as url:
            tab = look(url)
            tab.open()
            tab.page.get_by_role("heading", name="No run yet").wait_for()
            tab.page.evaluate("window.visitedOnce = true")
            options = ("--connect", address, "--lag", "2", "--steps", str(steps), "--fault", "nan")
            with demo("--no-dashboard", *options) as process:
                heading = tab.page.get_by_role("heading", name="Now").first
                expect(heading).to_contain_text("live", timeout=PATIENCE_MS)
                main = tab.page.get_by_test_id("stMain")
                expect(main).to_contain_text(re.compile(r"Step \d+, version \d+"), timeout=PATIENCE_MS)
                _, rest = process.communicate()
                assert process.returncode == 0, rest
            expect(main).to_contain_text(f"Step {steps - 1}, version {steps - 1}", timeout=PATIENCE_MS)
            expect(tab.verdict()).to_contain_text(SUMMARIES["NanTokens"], timeout=PATIENCE_MS)
            assert tab.page.evaluate("window.visitedOnce")
            with closing(open_store(file, read_only=True)) as history:
                shown_numbers_are_stored(tab, "Now", history.steps(run_name("nan")))
