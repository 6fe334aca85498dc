"""The demo as a command, on pipes or on a terminal, and the processes that it starts."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import termios
from collections import deque
from contextlib import contextmanager
from pathlib import Path

import pytest

SATWATCH = (sys.executable, "-m", "satwatch")
PATIENCE_SECONDS = 120


@contextmanager
def demo(*arguments):
    """A demo whose progress is on a pipe, in a process group of its own."""
    command = [*SATWATCH, "demo", "--json", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def demo_on_a_terminal(*arguments):
    """A demo in a process group of its own, and what is on its screen."""
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    with open(terminal, "wb", buffering=0) as end:
        command = [*SATWATCH, "demo", *arguments]
        process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, start_new_session=True)
    with process, open(controller, "rb", buffering=0) as screen:
        try:
            yield process, screen
        finally:
            process.kill()


def read_until(lines, pattern):
    """Wait for the line that matches; return the match."""
    seen = deque(maxlen=20)
    for line in lines:
        seen.append(line)
        if match := re.search(pattern, line):
            return match
    return pytest.fail(f"no line matches {pattern!r}; the last were {list(seen)}")


def read_screen(screen, until):
    """Wait until the pattern is on the screen; return what has been."""
    shown = ""
    while not re.search(until, shown):
        shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.read(65536).decode(errors="replace"))
    return shown


class Children:
    """All processes that one has started, watched from now on."""

    def __init__(self, pid):
        self.pids = children_of(pid)
        self._watched = [os.pidfd_open(pid) for pid in self.pids]

    def end(self):
        """Wait for all of them to end."""
        for descriptor in self._watched:
            ended, _, _ = select.select([descriptor], [], [], PATIENCE_SECONDS)
            os.close(descriptor)
            assert ended


class DemoChildren(Children):
    """The processes of a demo on pipes; its rollout process and its sidecar are found in its first lines."""

    def __init__(self, process):
        self.rollout = int(read_until(process.stderr, r"rollout pid (\d+)")[1])
        self.sidecar = int(read_until(process.stderr, r"^sidecar: .*, pid (\d+)")[1])
        super().__init__(process.pid)
        assert {self.rollout, self.sidecar} <= self.pids.keys()


def children_of(pid):
    """Return the processes that one has started, by number, with their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == pid:
                found[int(folder.name)] = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue  # it has ended meanwhile
    return found
