"""The real dashboard in a real browser: over what demos have stored, and over histories made up for a test."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from satwatch._dashboard.process import dashboard_process
from satwatch.bench.browser import FLAGS
from satwatch.errors import UnavailableError
from satwatch.history import open_store
from satwatch.server.history_server import serving_history
from tests.integration.dashboard.visit import CHROMIUM, PATIENCE_MS, WINDOW, Visit
from tests.integration.demos import SATWATCH
from tests.unit.dashboard.synthetic import SyntheticHistory

FAULT_STEP = 32
# An engine's canary is scored once a second at most: the more steps, the surer one is among the faulty ones.
DEMO_STEPS = {"none": 64, "lag": 64, "nan": 64, "stale-engine": 96, "temperature": 64}


class Switchboard:
    """A history that can become another while it is looked at, or be away."""

    def __init__(self):
        self.history = SyntheticHistory("empty")

    def show(self, kind, steps):
        self.history = SyntheticHistory(kind, steps, now=time.time())
        return self.history

    def leave(self):
        self.history = None

    def __getattr__(self, name):
        if self.history is None:
            refusal = "sidecar: got no answer, required one"
            raise UnavailableError(refusal)
        return getattr(self.history, name)


@dataclass
class Dashboard:
    """A dashboard that runs, and the history that it looks at."""

    url: str
    history: object


@contextmanager
def announced(*command):
    """Run ``satwatch`` with these arguments, and yield what its first line says."""
    process = subprocess.Popen([*SATWATCH, *command], stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline()
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def dashboard_command(*options):
    """Run ``satwatch dashboard`` on a free port; yield its address."""
    with announced("dashboard", "--port", "0", *options) as first:
        yield first.split()[-1]


@pytest.fixture(scope="session")
def dashboard():
    """One dashboard for all made-up histories; each test sets the one that it needs."""
    switchboard = Switchboard()
    with (
        # What is served here stands for a sidecar's history, which has a run open.
        serving_history(switchboard, lambda record: record.life == 3) as address,
        dashboard_process(address, port=0) as running,
    ):
        yield Dashboard(running.url, switchboard)


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory):
    """The file in which demos were stored one after the other, a sound one and one of each fault."""
    file = str(tmp_path_factory.mktemp("demos") / "demos.sqlite")
    for fault, steps in DEMO_STEPS.items():
        wrong = () if fault == "none" else ("--fault", fault, "--fault-step", str(FAULT_STEP))
        demo = ("demo", "--json", "--no-dashboard", "--lag", "2", "--steps", str(steps), "--store", file, *wrong)
        done = subprocess.run([*SATWATCH, *demo], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return file


@pytest.fixture(scope="session")
def demos(demo_store):
    """The dashboard of stored demos."""
    with dashboard_command("--store", demo_store) as url, closing(open_store(demo_store, read_only=True)) as history:
        yield Dashboard(url, history)


@pytest.fixture(scope="module")
def chromium():
    """A browser with a profile of its own, and without any of this machine's.

    Of a module, not of the session: Playwright runs once in a process, and other modules have a browser too.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=f"/usr/bin/{CHROMIUM}", args=[*FLAGS])
        yield browser
        browser.close()


@pytest.fixture
def look(chromium):
    """Opens tabs of fresh visitors; one that heard an error or asked another host fails the test."""
    contexts, visits = [], []

    @contextmanager
    def closed_in_the_end():
        try:
            yield
        finally:
            for context in contexts:
                context.close()

    def come(url, scheme="light"):
        context = chromium.new_context(viewport=WINDOW, color_scheme=scheme)
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        visits.append(Visit(context.new_page(), url))
        return visits[-1]

    with closed_in_the_end():
        yield come
        assert [complaint for one in visits for complaint in one.complaints] == []
        assert [url for one in visits for url in one.outside] == []


@pytest.fixture
def visit(look, dashboard):
    """Opens tabs that look at the made-up history."""
    return partial(look, dashboard.url)


@pytest.fixture
def keep_picture(tmp_path):
    """Keeps a picture of a whole page, where SATWATCH_ARTIFACTS says or with the test's files."""
    folder = Path(os.environ.get("SATWATCH_ARTIFACTS") or tmp_path) / "dashboard"
    folder.mkdir(parents=True, exist_ok=True)

    def keep(visit, name):
        page = visit.page
        tall = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        page.set_viewport_size({**WINDOW, "height": max(WINDOW["height"], int(tall))})
        # Figures draw themselves anew for the new size, a frame later.
        page.evaluate("new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        page.screenshot(path=folder / f"{name}.png")
        page.set_viewport_size(WINDOW)
        assert (folder / f"{name}.png").stat().st_size > 10_000

    return keep
