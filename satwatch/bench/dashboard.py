"""What it costs to open the dashboard's heaviest page: its server's part, and all of it in a browser.

Of a short run, and of a long one of which as much is shown: what is stored beside it is what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from satwatch.bench.browser import BrowserCost, Visited, measure_browser
from satwatch.bench.page import POINTS, Page, PageCost, RefreshCost, measure_refresh
from satwatch.bench.stage import Stage
from satwatch.bench.stored_run import stored_run
from satwatch.client import HistoryClient
from satwatch.types import History

REFRESH_AIM: Final = 0.5
OPEN_AIM: Final = 3.0
STORED_STEPS: Final = (500, 10_000)
TOKENS: Final = 8192
MISSING: Final = (
    "not measured: it needs the extras server and dashboard: pip install 'satwatch[server,dashboard]', or from a "
    "checkout: pip install '.[server,dashboard]'"
)
_NEEDED: Final = ("streamlit", "plotly", "sqlalchemy", "grpc_health")


@dataclass(frozen=True, slots=True)
class DashboardCost:
    """The heaviest page.

    Attributes:
        short: a short run, all of it shown: the server's part.
        long: a long run of which as many steps are shown.
        whole: the long run, all of it shown.
        refresh: of ``long``, followed live: what the server asks for.
        browser: the same three in a browser, or why that was not measured.
        refresh_aim: what a refresh of as many steps is meant to stay below, seconds.
        open_aim: what opening the page is.
    """

    short: PageCost
    long: PageCost
    whole: PageCost
    refresh: RefreshCost
    browser: BrowserCost | str
    refresh_aim: float = REFRESH_AIM
    open_aim: float = OPEN_AIM

    @property
    def growth(self) -> float:
        """Median of the long run's page over the short run's, with as much shown: 1 if what is stored costs nothing."""
        return self.long.page.median / self.short.page.median


@dataclass(frozen=True, slots=True)
class Repeating:
    """How a page is measured.

    Attributes:
        repeats: times that count, after one that doesn't.
        openings: the same in a browser, beside the first.
        tokens: of each step stored.
        points: the most points shown.
    """

    repeats: int = 9
    openings: int = 7
    tokens: int = TOKENS
    points: int = POINTS


@dataclass(frozen=True, slots=True)
class _Kept:
    """A run that is stored: as it is read here, and as it is asked for over gRPC."""

    store: History
    client: History
    steps: int
    size: int


def measure_dashboard(*, quick: bool, on_part: Callable[[str], None] = lambda part: None) -> DashboardCost | str:
    """Measure it, or say why not.

    Args:
        quick: short runs, opened a few times.
        on_part: told of each part as it begins.

    Raises:
        UnavailableError: a run could not be stored, its history did not answer, or the dashboard did not start.
    """
    if any(find_spec(module) is None for module in _NEEDED):
        return MISSING
    few, many = (20, 60) if quick else STORED_STEPS
    how = Repeating(2, 1, 512, few) if quick else Repeating()
    with _kept(few, how, on_part) as short, _kept(many, how, on_part) as long:
        looks = ((short, few), (long, few), (long, many))
        on_part("dashboard: questions and figures")
        costs = _measure_pages(looks, how)
        on_part("dashboard: refreshes")
        refresh = _measure_refresh(long, few, how)
        on_part("dashboard: in a browser")
        visited = [Visited(kept.store, kept.steps, shown) for kept, shown in looks]
        browser = measure_browser(visited, repeats=how.openings)
    return DashboardCost(*costs, refresh, browser)


@contextmanager
def _kept(steps: int, how: Repeating, on_part: Callable[[str], None]) -> Iterator[_Kept]:
    """Store a run and serve its history."""
    from satwatch.server.history_server import serving_history  # it needs the extra server

    def said(stored: int) -> None:
        on_part(f"dashboard: {stored:,} of {steps:,} steps stored")

    on_part(f"dashboard: storing {steps:,} steps")
    with (
        stored_run(steps, tokens=how.tokens, on_stored=said) as (store, size),
        serving_history(store) as address,
        HistoryClient(address, timeout=60.0) as client,
    ):
        yield _Kept(store, client, steps, size)


def _measure_pages(looks: Sequence[tuple[_Kept, int]], how: Repeating) -> tuple[PageCost, PageCost, PageCost]:
    pages = [Page(kept.client, kept.steps, kept.size, shown) for kept, shown in looks]
    # They take turns: whatever the machine does hits all of them.
    for turn in range(1 + how.repeats):
        for page in pages:
            page.open(how.points, counts=turn > 0)
    short, long, whole = (page.cost() for page in pages)
    return short, long, whole


def _measure_refresh(kept: _Kept, shown: int, how: Repeating) -> RefreshCost:
    from satwatch._dashboard.source import KEPT_RECORDS  # it needs the extra dashboard
    from satwatch.server.history_server import serving_history

    stage = Stage(kept.store)
    stage.show(kept.store, kept.steps - how.repeats - 2, is_open=True)
    with (
        serving_history(stage, stage.seems_open) as address,
        HistoryClient(address, timeout=60.0, keep=KEPT_RECORDS) as client,
    ):
        return measure_refresh(client, stage, shown, how.points, repeats=how.repeats)
