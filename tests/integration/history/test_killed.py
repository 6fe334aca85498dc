"""A hundred SIGKILLs in the middle of writing: what was acknowledged is there, and the file opens."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from satwatch.history import open_store
from tests.unit.history.making import totals_of

ROOT = Path(__file__).resolve().parents[3]
KILLS = 100


class Writers:
    """Starts one writer after the other on a file, and kills it."""

    def __init__(self, path):
        command = [sys.executable, "-m", "tests.integration.history.killed", str(path)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def kill_one(self, acknowledged, seconds):
        """Kill a writer so long after so many acknowledgements; return the last step that it acknowledged."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        word, pid = self.process.stdout.readline().split()
        assert word == "pid"
        stored = None
        for _ in range(acknowledged):
            word, number = self.process.stdout.readline().split()
            assert word == "stored"
            stored = int(number)
        time.sleep(seconds)  # a moment in the middle of anything
        os.kill(int(pid), signal.SIGKILL)
        while True:
            word, number = self.process.stdout.readline().split()
            if word == "ended":
                assert int(number) == -signal.SIGKILL
                return stored
            stored = int(number)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        self.process.stdout.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.sqlite"


@pytest.fixture
def writers(path):
    started = Writers(path)
    yield started
    started.close()


def test_no_acknowledged_step_is_lost(writers, path):
    rng = random.Random(5)
    stored = -1
    for _ in range(KILLS):
        acknowledged = writers.kill_one(rng.randint(0, 4), rng.uniform(0.0, 0.03))
        stored = stored if acknowledged is None else acknowledged
        check(path, stored)
    assert stored > KILLS


def check(path, stored):
    """Read what a killed writer left, as a dashboard would and as SQLite itself judges it."""
    if stored < 0 and not path.exists():
        return
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        query = "SELECT block FROM satwatch_steps WHERE level = 0 AND is_closed ORDER BY block"
        closed = [block for (block,) in connection.execute(query)] if stored >= 0 else []
    finally:
        connection.close()
    assert closed[: stored + 1] == list(range(stored + 1))
    if stored >= 0:
        shows(path, stored)


def shows(path, stored):
    store = open_store(str(path), read_only=True)
    try:
        (run,) = store.runs()
        assert run.stored_step is not None
        assert run.stored_step >= stored
        first = max(0, stored - 9)
        points = store.steps("r", first_step=first, last_step=stored)
        assert [point.first_step for point in points] == list(range(first, stored + 1))
        for point in points:
            assert point.heat == totals_of(point.first_step % 8).heat()
        coarse = store.steps("r", max_points=5)
        assert sum(point.steps for point in coarse) == run.steps
        assert sum(sum(point.heat) for point in coarse) == run.tokens
    finally:
        store.close()
