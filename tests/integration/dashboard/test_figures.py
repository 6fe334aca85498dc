"""Figures in real Chromium: what a visitor did to one outlives new steps; it follows the page in colours and size."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.integration.dashboard.visit import CHROMIUM, PATIENCE_MS

pytestmark = pytest.mark.real(CHROMIUM, "Debian's package chromium")

TAIL, MISMATCH, ESS = "The tail", "Mean mismatch", "Effective sample size"
# All that is asked of a figure is asked by words of its title.
_FIGURE = """window.figure = (title) => [...document.querySelectorAll(".js-plotly-plot")].find(
  (one) => one.layout.title.text.includes(title));
window.trace = (title, name) => figure(title)._fullData.find((one) => one.name === name)"""
_RANGES = "title => ['xaxis', 'yaxis'].map(axis => figure(title)._fullLayout[axis].range)"
_REACHES = "([title, step]) => figure(title)._fullData.some(one => one.x?.[one.x.length - 1] >= step)"


@pytest.fixture
def tab(dashboard, visit):
    dashboard.history.show("healthy", 20)
    visitor = visit()
    visitor.page.add_init_script(_FIGURE)
    visitor.open()
    visitor.drawn("Now")
    visitor.page.wait_for_function("() => figure('What is known')")
    return visitor


def place(tab, title, part):
    """Return where a part of a figure is, in the middle of the window."""
    found = tab.page.get_by_role("figure", name=title).locator(part)
    found.evaluate("part => part.scrollIntoView({ block: 'center' })")
    return found.bounding_box()


def zoom(tab, title):
    """Drag over the middle of a plot; return the ranges of its axes."""
    box = place(tab, title, ".nsewdrag")
    mouse = tab.page.mouse
    mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    mouse.down()
    mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.6 * box["height"], steps=4)
    mouse.up()
    tab.page.wait_for_function("title => !figure(title)._fullLayout.xaxis.autorange", arg=title)
    return tab.page.evaluate(_RANGES, title)


def grow(tab, dashboard, steps):
    # From half of them on the tail is another, and its axis with it.
    dashboard.history.show("faults", steps)
    for title in (TAIL, MISMATCH, ESS):
        tab.page.wait_for_function(_REACHES, arg=[title, steps - 2], timeout=PATIENCE_MS)


def test_a_zoom_and_what_was_hidden_outlive_new_steps_and_not_another_range(tab, dashboard):
    page = tab.page
    before = page.evaluate(_RANGES, ESS)
    zoomed = {title: zoom(tab, title) for title in (TAIL, MISMATCH)}
    page.get_by_role("figure", name=MISMATCH).locator(".legendtoggle").last.click()
    page.wait_for_function("title => trace(title, 'd̄').visible === 'legendonly'", arg=MISMATCH)
    page.evaluate("window.before = [...document.querySelectorAll('.js-plotly-plot')]")

    grow(tab, dashboard, 30)
    assert page.evaluate("before.every((one, i) => one === document.querySelectorAll('.js-plotly-plot')[i])")
    assert {title: page.evaluate(_RANGES, title) for title in zoomed} == zoomed
    assert page.evaluate("title => trace(title, 'd̄').visible", MISMATCH) == "legendonly"
    (first, last), height = page.evaluate(_RANGES, ESS)
    assert (height, first, last) == (before[1], pytest.approx(before[0][0], abs=1), pytest.approx(29, abs=3))

    page.get_by_role("radio", name="100").or_(page.get_by_role("button", name="100")).first.click()
    page.wait_for_function("title => figure(title)._fullLayout.xaxis.autorange", arg=TAIL)
    assert page.evaluate("title => trace(title, 'd̄').visible", MISMATCH) is True


def test_a_figure_follows_the_page_s_colours_at_once(tab):
    page = tab.page
    page.evaluate("window.before = figure('The tail')")
    light = page.evaluate("title => figure(title)._fullLayout.paper_bgcolor", TAIL)

    page.emulate_media(color_scheme="dark")
    page.wait_for_function("([title, was]) => figure(title)._fullLayout.paper_bgcolor !== was", arg=[TAIL, light])
    grounds = "[...document.querySelectorAll('.js-plotly-plot')].map(one => one._fullLayout.paper_bgcolor)"
    ground = "getComputedStyle(document.querySelector('[data-testid=stApp]')).getPropertyValue('background-color')"
    page.wait_for_function(f"new Set({grounds}).size === 1")
    red, green, blue = (int(page.evaluate(f"{grounds}[0]")[at : at + 2], 16) for at in (1, 3, 5))
    assert page.evaluate(ground) == f"rgb({red}, {green}, {blue})"
    assert page.evaluate("before === figure('The tail')")


def test_a_figure_fills_the_window_and_goes_back(tab):
    page = tab.page
    size = "title => [figure(title)._fullLayout.width, figure(title)._fullLayout.height]"
    before = page.evaluate(size, ESS)
    place(tab, ESS, ".main-svg >> nth=0")
    page.get_by_role("figure", name=ESS).hover()
    page.get_by_role("figure", name=ESS).locator("[data-title='Full screen']").click()

    window = page.evaluate("[document.documentElement.clientWidth, document.documentElement.clientHeight]")
    page.wait_for_function(f"([title, wide]) => ({size})(title)[0] === wide", arg=[ESS, window[0]])
    assert page.evaluate(size, ESS) == window
    page.keyboard.press("Escape")
    page.wait_for_function(f"([title, wide]) => ({size})(title)[0] === wide", arg=[ESS, before[0]])
    assert page.evaluate(size, ESS) == before


def test_without_plotly_s_script_a_figure_says_so_and_is_drawn_once_it_comes(dashboard, visit):
    dashboard.history.show("healthy", 20)
    tab = visit()
    tab.page.route("**/plotly.min.js?*", lambda route: route.fulfill(body="", content_type="text/javascript"))
    tab.open()
    figures = tab.page.get_by_role("figure")
    for title in (TAIL, ESS):
        said = tab.page.get_by_role("figure", name=title)
        expect(said).to_contain_text("can't be drawn: the script that draws it, plotly.min.js of the package plotly")

    tab.page.unroute_all()
    dashboard.history.show("healthy", 24)
    expect(figures.locator(".main-svg:first-child")).to_have_count(figures.count(), timeout=PATIENCE_MS)
    expect(tab.page.get_by_test_id("stMain")).not_to_contain_text("can't be drawn")
