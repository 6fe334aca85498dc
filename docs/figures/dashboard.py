"""Take the README's pictures of the dashboard: a demo whose engine keeps its weights and names new ones.

Writes dashboard-now.png and dashboard-engines.png beside this file. It needs Chromium, and takes a minute:

    make screenshots
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from satwatch.bench.browser import FLAGS

FOLDER = Path(__file__).resolve().parent
SATWATCH = (sys.executable, "-m", "satwatch")
STORE = "demo.sqlite"
# From step 50 on: the policy has much to learn still, so that old weights are soon far from new ones.
FAULT = ("--steps", "150", "--fault", "stale-engine", "--fault-step", "50")
DEMO = ("demo", "--json", "--no-dashboard", "--lag", "2", *FAULT, "--store", STORE)
# Each page's path, and how many of its figures are in the picture.
PAGES = {"now": ("/", 1), "engines": ("/engines", 2)}
WINDOW = {"width": 1280, "height": 1200}
BELOW = 16  # pixels
PATIENCE_MS = 120_000


@contextmanager
def dashboard(folder: str) -> Iterator[str]:
    """Show the history stored in a folder on a free port; yield its address."""
    command = (*SATWATCH, "dashboard", "--port", "0", "--store", STORE)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.communicate()


def picture(page: Page, url: str, figures: int) -> Image.Image:
    """Return the beginning of a page down to its so-manieth figure, once all are drawn."""
    page.goto(url)
    page.wait_for_selector(".js-plotly-plot .main-svg")
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
    page.wait_for_timeout(2000)  # figures fade in
    frames = page.locator("[data-testid=stVerticalBlock]:has(> [data-testid=stElementContainer] .js-plotly-plot)")
    box = frames.filter(has=page.locator("[data-testid=stCaptionContainer]")).nth(figures - 1).bounding_box()
    assert box is not None
    height = min(WINDOW["height"], box["y"] + box["height"] + BELOW)
    clip = {"x": 0, "y": 0, "width": WINDOW["width"], "height": height}
    return Image.open(BytesIO(page.screenshot(clip=clip)))


def main() -> None:
    """Run the demo, open the pages, write the pictures."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("dashboard.py: Chromium is missing; it is Debian's package chromium")
    with TemporaryDirectory() as folder:
        subprocess.run((*SATWATCH, *DEMO), check=True, stdout=subprocess.DEVNULL, cwd=folder)
        with dashboard(folder) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS])
            page = browser.new_page(viewport=WINDOW, color_scheme="light")
            page.set_default_timeout(PATIENCE_MS)
            for name, (path, figures) in PAGES.items():
                # A picture of so many colours looks the same and has a third of the bytes.
                shown = picture(page, url + path, figures).convert("P", palette=Image.Palette.ADAPTIVE, colors=192)
                shown.save(FOLDER / f"dashboard-{name}.png", optimize=True)
            browser.close()


if __name__ == "__main__":
    main()
