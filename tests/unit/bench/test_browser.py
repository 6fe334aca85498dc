"""The browser's part: what a refresh is, which page is opened, and what is said where there is no browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Error

from satwatch.bench import browser
from satwatch.bench.browser import (
    NO_CHROMIUM,
    NO_PLAYWRIGHT,
    BrowserCost,
    Opening,
    Visited,
    measure_browser,
    refresh_seconds,
)
from satwatch.bench.timing import Timing
from tests.unit.dashboard.synthetic import SyntheticHistory

HISTORY = SyntheticHistory("empty")


def test_a_refresh_begins_with_the_browser_s_last_word_before_the_question():
    assert refresh_seconds([1.0, 3.0, 5.0, 7.0], asked=5.25, drawn=5.75) == pytest.approx(0.75)
    assert refresh_seconds([1.0, 3.0], asked=None, drawn=3.5) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("steps", "shown", "path"),
    [
        (500, 500, "/?range=500"),
        (10_000, 500, "/?range=500"),
        (10_000, 10_000, "/?range=all"),
        (60, 20, "/?range=40..59"),
    ],
)
def test_the_page_opened_shows_as_many_steps(steps: int, shown: int, path: str):
    assert Visited(HISTORY, steps, shown).path == path


def test_the_first_opening_is_told_by_itself():
    page = Visited(HISTORY, 500, 500, figures=5, drawn=[4.0, 1.0, 3.0, 1.5], answered=[2.0, 0.5, 1.0, 0.75])
    assert page.cost() == Opening(500, 500, 5, 4.0, Timing(1.5, 3.0, 3), Timing(0.75, 1.0, 3))


def test_growth_is_that_of_as_many_steps_beside_more_that_are_stored():
    short, long, whole = (
        Opening(1, 1, 5, 9.0, Timing(again, 9.0, 1), Timing(0.1, 0.1, 1)) for again in (2.0, 2.5, 9.0)
    )
    assert BrowserCost("", short, long, whole, Timing(0.1, 0.1, 1)).growth == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("name", "absent", "said"),
    [("find_spec", lambda name: None, NO_PLAYWRIGHT), ("shutil.which", lambda name: None, NO_CHROMIUM)],
)
def test_without_a_browser_it_says_so(monkeypatch: pytest.MonkeyPatch, name, absent, said: str):
    monkeypatch.setattr(f"satwatch.bench.browser.{name}", absent)
    monkeypatch.setattr(browser, "_measure", None)
    assert measure_browser([], repeats=1) == said


def test_a_browser_that_fails_is_said(monkeypatch: pytest.MonkeyPatch):
    def fail(*arguments: object) -> None:
        words = "Timeout 60000ms exceeded.\nCall log: ..."
        raise Error(words)

    monkeypatch.setattr("satwatch.bench.browser.shutil.which", lambda name: name)
    monkeypatch.setattr(browser, "_measure", fail)
    assert measure_browser([], repeats=1) == "not measured: Timeout 60000ms exceeded."
