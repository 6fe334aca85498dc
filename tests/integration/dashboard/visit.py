"""A tab of a browser that looks at a dashboard, and what it sees there."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

CHROMIUM = "chromium"
# A machine with two cores that does other things too.
PATIENCE_MS = 60_000
WINDOW = {"width": 1280, "height": 900}
PAGES = ("Now", "Bounds", "Lag", "Engines", "Routing", "Tokens", "Compare", "Alerts")

# The values of a line by its name, from a figure by words of its title, as it is drawn; null where it has a gap.
_LINE = """([title, name]) => {
  const figures = [...document.querySelectorAll(".js-plotly-plot")];
  const figure = figures.find((one) => one._fullData && one.layout.title.text.includes(title));
  const line = figure._fullData.find((one) => one.name === name && one.fill !== "toself");
  const plain = (values) => Array.from(values, (value) => (Number.isFinite(value) ? value : null));
  return { x: plain(line.x), y: plain(line.y), customdata: plain(line.customdata ?? []) };
}"""

_IS_DRAWN = """(title) => [...document.querySelectorAll(".js-plotly-plot")].some(
  (one) => one._fullData && one.layout.title.text.includes(title)
)"""


@dataclass
class Visit:
    """A tab, and what went wrong in it."""

    page: object
    url: str
    complaints: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._asked)

    def open(self, path="", **link):
        self.page.goto(f"{self.url}/{path}?{urlencode(link)}")

    def go(self, title):
        """Choose a page of the menu and wait until it is drawn."""
        self.page.get_by_test_id("stSidebarNav").get_by_text(title, exact=True).click()
        self.drawn(title)

    def drawn(self, title):
        """Wait until a page is there, with the last of its figures."""
        self.page.get_by_role("heading", name=title).first.wait_for()
        nothing_to_save = self.page.get_by_text("No alert was raised in this run")
        self.page.get_by_role("button", name="JSON").or_(nothing_to_save).first.wait_for()
        self.page.locator(".js-plotly-plot .main-svg").first.wait_for()

    def metric(self, label):
        tile = self.page.get_by_test_id("stMetric").filter(has_text=label).first
        return tile.get_by_test_id("stMetricValue").inner_text()

    def line(self, title, name):
        """Return what a line of a figure tells where it is pointed at, by x."""
        self.page.wait_for_function(_IS_DRAWN, arg=title)
        found = self.page.evaluate(_LINE, [title, name])
        told = found["customdata"] or found["y"]
        return {x: y for x, y in zip(found["x"], told, strict=True) if y is not None}

    def verdict(self):
        return self.page.get_by_test_id("stAlert").first

    def said(self):
        return self.page.get_by_test_id("stMain").inner_text()

    def cut_off(self):
        """Return the numbers and names that don't fit their tiles, and the page's width if the window is too narrow."""
        label = "[data-testid=stMetricLabel]"
        cut = self.page.locator(f"[data-testid=stMetricValue], {label}, {label} *").evaluate_all(
            "tiles => tiles.filter(t => t.scrollWidth > t.clientWidth + 1).map(t => t.innerText)"
        )
        main = "document.querySelector('[data-testid=stMain]')"
        wide, room = (self.page.evaluate(f"{main}.{width}") for width in ("scrollWidth", "clientWidth"))
        return cut if wide <= room + 1 else [*cut, f"{wide} of {room} pixels"]

    def _heard(self, message):
        # Streamlit looks for its server below the page's own path first, and finds it at the root.
        is_search = "404" in message.text and "/_stcore/" in message.location.get("url", "")
        if message.type in ("error", "warning") and not is_search:
            self.complaints.append(f"{message.text} {message.location.get('url', '')}")

    def _asked(self, request):
        address = urlsplit(request.url)
        if address.scheme in ("http", "https", "ws", "wss") and address.hostname != "127.0.0.1":
            self.outside.append(request.url)
