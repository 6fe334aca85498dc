"""The demo on its dashboard: live in a real browser, again from its history, and gone with the demo."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import closing, contextmanager

import pytest
from playwright.sync_api import expect, sync_playwright

from satwatch.bench.browser import FLAGS
from satwatch.history import open_store
from tests.integration.dashboard.conftest import CHROMIUM, PATIENCE_MS, Visit
from tests.integration.demos import (
    SATWATCH,
    Children,
    children_of,
    demo,
    demo_on_a_terminal,
    read_screen,
    read_until,
)

STEPS = 60
LAST = f"Step {STEPS - 1}, version {STEPS - 1}"


@pytest.fixture
def visit():
    """Opens a tab of a fresh visitor at an address; nothing in it has gone wrong when it is closed."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=f"/usr/bin/{CHROMIUM}", args=[*FLAGS])

        @contextmanager
        def come(url):
            with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
                context.set_default_timeout(PATIENCE_MS)
                tab = Visit(context.new_page(), url)
                tab.open()
                tab.drawn("Now")
                yield tab
                assert (tab.complaints, tab.outside) == ([], [])

        yield come
        browser.close()


@contextmanager
def dashboard_of(store):
    command = [*SATWATCH, "dashboard", "--store", store, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


@pytest.mark.real(CHROMIUM, "Debian's package chromium")
def test_the_run_is_shown_live_until_ctrl_c_and_again_from_its_history(visit):
    with demo_on_a_terminal("--steps", str(STEPS)) as (process, screen):
        shown = read_screen(screen, until=rf"step [1-9]\d*/{STEPS}")
        rollout = int(re.search(r"rollout\s+pid\s+(\d+)", shown)[1])
        os.kill(rollout, signal.SIGSTOP)  # the training waits until somebody looks on
        shown += read_screen(screen, until=r"dashboard: http://127\.0\.0\.1:\d+")
        with visit(re.search(r"dashboard: (\S+\d)", shown)[1]) as tab:
            before = tab.said()
            assert re.search(r"Step \d+, version \d+", before)
            assert LAST not in before
            os.kill(rollout, signal.SIGCONT)
            shown += read_screen(screen, until="until Ctrl-C")
            expect(tab.page.get_by_test_id("stMain")).to_contain_text(LAST, timeout=PATIENCE_MS)

        file = re.search(r"history: (\S+\.sqlite)\s", shown)[1]
        assert f"see it again: satwatch dashboard --store {file}" in shown
        children = Children(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait() == 0
        children.end()
    with closing(open_store(file, read_only=True)) as kept:
        life = kept.runs()[0]
        (point,) = kept.steps(life.run, first_step=STEPS - 1)
    with dashboard_of(file) as url, visit(url) as tab:
        expect(tab.page.get_by_test_id("stMain")).to_contain_text(LAST, timeout=PATIENCE_MS)
        assert life.run in tab.page.content()
        assert float(tab.metric("Reward")) == pytest.approx(point.values["reward_mean"], rel=0.005)


def test_ctrl_c_while_it_trains_ends_everything():
    with demo("--dashboard", "--steps", "10000") as process:
        read_until(process.stderr, "^dashboard: ")
        children = Children(process.pid)
        assert len(_dashboards(process.pid)) == 1
        os.killpg(process.pid, signal.SIGINT)
        output, rest = process.communicate()
        assert (process.returncode, output) == (130, "")
        assert "Traceback" not in rest
        assert re.search(r"^Interrupted after \d+ of 10000 steps", rest, re.MULTILINE)
        assert re.search(r"^The sidecar bounded all \d+ batches", rest, re.MULTILINE)
        assert rest.splitlines()[-1].startswith("see it again: satwatch dashboard --store ")
        children.end()


def test_sigterm_while_everything_starts_ends_everything():
    with demo("--dashboard") as process:
        read_until(process.stderr, "^sidecar: ")
        while not _dashboards(process.pid):
            time.sleep(0.02)  # the demo is to have the processor
        children = Children(process.pid)
        process.terminate()
        output, rest = process.communicate()
        assert (process.returncode, output) == (143, "")
        assert "Traceback" not in rest
        children.end()


def test_a_killed_demo_leaves_nothing_behind():
    with demo("--dashboard", "--steps", "10000") as process:
        read_until(process.stderr, "^dashboard: ")
        children = Children(process.pid)
        process.kill()
        children.end()


def _dashboards(pid):
    return [command for command in children_of(pid).values() if "satwatch._dashboard" in command]
