"""Engines that a real sglang-router knows of: the probe asks it for their addresses, and each of them for the rest."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx
import pytest

from tests.integration.engines.server import PYTHON, ROOT, free_port

pytestmark = [
    pytest.mark.engine,
    pytest.mark.real(".venv-engines/sglang/.ready", "make engines"),
    pytest.mark.timeout(600),
]

PATIENCE = 120.0


@contextmanager
def router(log, *workers):
    """Start a router, and yield its URL when it answers."""
    port, program = free_port(), ROOT / "tests/engines/sglang/router.py"
    with log.open("wb") as output:
        command = [str(PYTHON), str(program), str(port), str(free_port()), *workers]
        popen = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: popen.poll() is not None or workers_of(url) is not None, log)
        assert popen.poll() is None, log.read_text()
        yield url
    finally:
        popen.terminate()
        popen.wait(timeout=60)


def until(holds, log):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, log.read_text()[-4000:]
        time.sleep(0.2)


def workers_of(url):
    try:
        return {worker["url"] for worker in httpx.get(f"{url}/workers", trust_env=False).json()["workers"]}
    except httpx.HTTPError:
        return None


def probe(url, *arguments):
    command = [sys.executable, "-m", "satwatch", "probe", "--router", url, "--once", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done, {said["engine"]: said for said in map(json.loads, done.stdout.splitlines())}


def test_the_router_s_workers_are_each_asked_for_what_it_does_not_know(plain, experts, tmp_path):
    plain.load(3)
    experts.load(1)
    log = tmp_path / "router.log"
    with router(log, plain.url, experts.url) as url:
        until(lambda: workers_of(url) == {plain.url, experts.url}, log)
        done, engines = probe(url)
    assert (done.returncode, done.stderr) == (0, "")
    assert {name: said["version_served"] for name, said in engines.items()} == {plain.name: 3, experts.name: 1}
    assert {said["state"] for said in engines.values()} == {"serving"}


def test_a_router_without_workers_is_an_empty_fleet_and_no_fault(fleet, tmp_path):
    with router(tmp_path / "router.log") as url:
        assert workers_of(url) == set()
        done, engines = probe(url)
        checked, _ = probe(url, "--fail-on", "unknown")
    assert (done.returncode, engines, checked.returncode) == (0, {}, 1)
    assert "Traceback" not in done.stderr
