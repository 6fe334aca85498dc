"""What the dashboard's heaviest page costs its visitor: the real app in real Chromium, until its figures are drawn."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from satwatch.bench.stage import Stage
from satwatch.bench.timing import Timing
from satwatch.types import History

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

NO_PLAYWRIGHT: Final = (
    "not measured: no Playwright, which drives the browser: pip install playwright; it need not bring a browser"
)
NO_CHROMIUM: Final = "not measured: no Chromium on the path (Debian's package chromium)"
PATIENCE_SECONDS: Final = 60.0
WINDOW: Final = (1280, 900)
# It draws without a GPU, asks nobody for anything, and root may start it.
FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_SCRIPT: Final = Path(__file__).with_name("browser.js")
NAMED_RANGES: Final = (100, 500)


@dataclass(frozen=True, slots=True)
class Opening:
    """The page *Now* of a stored run, from the address line to the last figure.

    Attributes:
        steps: steps stored.
        shown: steps shown, the newest ones.
        figures: figures drawn.
        first: seconds that a browser took that had nothing of the dashboard's yet.
        again: what it took later, with the dashboard's scripts in its cache.
        answered: of that, until the server had said its last.
    """

    steps: int
    shown: int
    figures: int
    first: float
    again: Timing
    answered: Timing


@dataclass(frozen=True, slots=True)
class BrowserCost:
    """The heaviest page in a browser.

    Attributes:
        browser: its name and version.
        short: a short run, all of it shown.
        long: a long run of which as many steps are shown.
        whole: the long run, all of it shown.
        refresh: of ``long``, followed live: a new step, from asking for it to the last figure that shows it.
    """

    browser: str
    short: Opening
    long: Opening
    whole: Opening
    refresh: Timing

    @property
    def growth(self) -> float:
        """Median of the long run's page over the short run's, with as much shown: 1 if what is stored costs nothing."""
        return self.long.again.median / self.short.again.median


@dataclass
class Visited:
    """A page that is opened again and again by a visitor of its own.

    Attributes:
        history: of one run.
        steps: steps stored.
        shown: steps shown, the newest.
        figures: figures drawn the last time.
        drawn: seconds that each opening took.
        answered: of these, until the server had said its last.
    """

    history: History
    steps: int
    shown: int
    figures: int = 0
    drawn: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)

    @property
    def path(self) -> str:
        """What of the address line leads there."""
        if self.shown in NAMED_RANGES:
            return f"/?range={self.shown}"
        return "/?range=all" if self.shown == self.steps else f"/?range={self.steps - self.shown}..{self.steps - 1}"

    def cost(self) -> Opening:
        """Sum up: the first opening by itself."""
        again, answered = Timing.of(self.drawn[1:]), Timing.of(self.answered[1:])
        return Opening(self.steps, self.shown, self.figures, self.drawn[0], again, answered)


def measure_browser(pages: Sequence[Visited], *, repeats: int) -> BrowserCost | str:
    """Measure it, or say why not.

    Args:
        pages: the short run; as much of the long one; all of that.
        repeats: openings of each that count beside the first, and refreshes.

    Raises:
        UnavailableError: the dashboard did not start.
    """
    if find_spec("playwright") is None:
        return NO_PLAYWRIGHT
    program = shutil.which("chromium")
    if program is None:
        return NO_CHROMIUM
    from playwright.sync_api import Error

    try:
        return _measure(program, pages, repeats)
    except Error as error:
        return f"not measured: {str(error).strip().splitlines()[0]}"


def _measure(program: str, pages: Sequence[Visited], repeats: int) -> BrowserCost:
    short, long, whole = pages
    stage = Stage(short.history)
    with _dashboard(stage) as url, _chromium(program) as browser:
        with _visitor(browser) as visitor:
            _open(visitor, url + short.path)  # the server's first visit is like no other
        _take_turns(browser, url, pages, stage, repeats)
        with _visitor(browser) as visitor:
            refresh = Timing.of(_refreshes(visitor, url, long, stage, repeats))
        name = f"Chromium {browser.version}"
    return BrowserCost(name, short.cost(), long.cost(), whole.cost(), refresh)


@contextmanager
def _dashboard(stage: Stage) -> Iterator[str]:
    from satwatch._dashboard.process import dashboard_process
    from satwatch.server.history_server import serving_history

    with serving_history(stage, stage.seems_open) as address, dashboard_process(address, port=0) as running:
        yield running.url


@contextmanager
def _chromium(program: str) -> Iterator[Browser]:
    """Start a browser with a profile of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*FLAGS])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def _visitor(browser: Browser) -> Iterator[BrowserContext]:
    """Yield a visitor with a cache of its own, empty at first."""
    width, height = WINDOW
    visitor = browser.new_context(viewport={"width": width, "height": height})
    visitor.set_default_timeout(1e3 * PATIENCE_SECONDS)
    visitor.add_init_script(path=_SCRIPT)
    try:
        yield visitor
    finally:
        visitor.close()


def _take_turns(browser: Browser, url: str, pages: Sequence[Visited], stage: Stage, repeats: int) -> None:
    """Open each page by a visitor of its own, once and then again: whatever the machine does hits all of them."""
    with ExitStack() as leaving:
        visitors = [leaving.enter_context(_visitor(browser)) for _ in pages]
        for _ in range(1 + repeats):
            for page, visitor in zip(pages, visitors, strict=True):
                stage.show(page.history)
                opened = _open(visitor, url + page.path)
                page.figures = int(opened["figures"])
                page.drawn.append(opened["drawn"])
                page.answered.append(opened["answered"])


def _open(visitor: BrowserContext, url: str) -> dict[str, float]:
    """Open a page in a tab of its own and wait until it is drawn; return what the script said of it."""
    tab = visitor.new_page()
    tab.goto(url, wait_until="commit")
    opened: dict[str, float] = tab.wait_for_function("() => bench.opened()", polling="raf").json_value()
    tab.close()
    return opened


def _refreshes(visitor: BrowserContext, url: str, page: Visited, stage: Stage, repeats: int) -> list[float]:
    """Follow a run that grows step by step; return how long each new step took, after one that doesn't count."""
    stage.show(page.history, page.steps - repeats - 2, is_open=True)
    path = f"/?range={page.shown}" if page.shown in NAMED_RANGES else "/?range=all"
    tab = visitor.new_page()
    tab.goto(url + path, wait_until="commit")
    tab.wait_for_function("() => bench.opened()", polling="raf")
    took = []
    for _ in range(1 + repeats):
        step = stage.grow()
        drawn = tab.wait_for_function("step => bench.shows(step)", arg=step, polling="raf").json_value()
        took.append(refresh_seconds(tab.evaluate("() => bench.sent"), stage.asked_at, drawn))
    tab.close()
    return took[1:]


def refresh_seconds(sent: Sequence[float], asked: float | None, drawn: float) -> float:
    """Return how long a refresh took: from the browser's last word before the history was asked, to the last figure.

    Args:
        sent: Unix times in seconds at which the browser told its server something, ascending.
        asked: when the server asked for the new step, by the same clock; None: not known.
        drawn: when the last figure showed it.

    >>> refresh_seconds([10.0, 12.0, 14.0], 12.25, 12.5)
    0.5
    """
    latest = drawn if asked is None else asked
    return drawn - max(at for at in sent if at <= latest)
