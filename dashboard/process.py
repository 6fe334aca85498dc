"""The dashboard as a process: started on a loopback port, ended with whoever started it."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Final

from satwatch.addresses import ADDRESS_VARIABLE
from satwatch.errors import ConfigError, UnavailableError, required
from satwatch.processes import CLOSE_SECONDS, RUN_MODULE, end

HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8501
STORE_VARIABLE: Final = "SATWATCH_DASHBOARD_STORE"
COMMAND: Final = (*RUN_MODULE, "satwatch._dashboard")
PORTS_TRIED: Final = 5  # of free ports, before somebody else's luck is taken for a fault
START_SECONDS: Final = 60.0  # importing streamlit and torch on a busy machine takes a while
_LOOK_SECONDS: Final = 0.1
_HEALTH: Final = "/_stcore/health"
_GOOD: Final = 200


@dataclass(frozen=True, slots=True)
class DashboardProcess:
    """A dashboard that answers.

    Attributes:
        url: where, for a browser.
        pid: its process id.
        process: the process.
    """

    url: str
    pid: int
    process: subprocess.Popen[str]

    def wait(self) -> int:
        """Wait until it ends; return its exit code, negative for a signal."""
        return self.process.wait()


@contextmanager
def dashboard_process(address: str, port: int = DEFAULT_PORT, *, store: str = "") -> Iterator[DashboardProcess]:
    """Run the dashboard until the block ends, or until this process does, however it ends.

    Args:
        address: the sidecar or the history that it looks at, HOST:PORT or unix:PATH.
        port: loopback port of its pages; 0 picks a free one.
        store: what the history is called where it is a stored one; empty: it is a sidecar's.

    Yields:
        The dashboard, once its pages answer.

    Raises:
        ConfigError: a port that can't be bound.
        UnavailableError: it ended instead of answering, or did not answer within a minute.
    """
    with ExitStack() as stack:
        yield _first_started(stack, address, port, store)


def _first_started(stack: ExitStack, address: str, port: int, store: str) -> DashboardProcess:
    """Start it; on any other free port again where somebody else was quicker to take the one that was picked."""
    for _ in range(0 if port else PORTS_TRIED - 1):
        with suppress(ConfigError):
            return stack.enter_context(_started(address, _bindable(port), store))
    return stack.enter_context(_started(address, _bindable(port), store))


@contextmanager
def _started(address: str, port: int, store: str) -> Iterator[DashboardProcess]:
    # A session of its own: a Ctrl-C on the terminal reaches the starter alone, which then ends the dashboard.
    process = subprocess.Popen(
        [sys.executable, *COMMAND, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, ADDRESS_VARIABLE: address, STORE_VARIABLE: store, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    # Its output is read to the end, so that a full pipe never stops it.
    said = _Said(f"http://{HOST}:{port}")
    reader = threading.Thread(target=said.read, args=(process.stdout,), daemon=True)
    reader.start()
    try:
        _wait_until_it_answers(process, port, said)
        yield DashboardProcess(said.url, process.pid, process)
    finally:
        _end(process, reader)


class _Said:
    """What a dashboard says; its address is named once it listens there, whoever else may answer at the port.

    Args:
        url: its address.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.listens = threading.Event()
        self.last_lines: deque[str] = deque(maxlen=5)

    def read(self, output: IO[str]) -> None:
        """Read all of it."""
        for line in output:
            if line.strip():
                self.last_lines.append(line.strip())
            if self.url in line.split():
                self.listens.set()


def _bindable(port: int) -> int:
    """Return the port, or a free one for 0.

    Raises:
        ConfigError: it is no port, it is taken, or this user may not bind it.
    """
    if not 0 <= port <= 65_535:
        raise ConfigError(required("port", port, "0 to 65535"))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            came = f"{port} ({error.strerror})"
            raise ConfigError(required("port", came, f"a free port of {HOST}, or 0 to pick one")) from error
        return int(probe.getsockname()[1])


def _wait_until_it_answers(process: subprocess.Popen[str], port: int, said: _Said) -> None:
    """Wait for the pages.

    Raises:
        ConfigError: it ended, and somebody else has its port.
        UnavailableError: it ended with the port free, or its time is up.
    """
    deadline = time.monotonic() + START_SECONDS
    while not (said.listens.is_set() and _answers(port)):
        if process.poll() is not None:
            _bindable(port)
            came = f"exit code {process.returncode} ({' | '.join(said.last_lines) or 'no output'})"
            raise UnavailableError(required("dashboard", came, f"pages on {HOST}:{port}"))
        if time.monotonic() > deadline:
            raise UnavailableError(required("dashboard", f"no answer in {START_SECONDS:g} s", f"one on {HOST}:{port}"))
        time.sleep(_LOOK_SECONDS)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=1.0)
    try:
        connection.request("GET", _HEALTH)
        return connection.getresponse().status == _GOOD
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _end(process: subprocess.Popen[str], reader: threading.Thread) -> None:
    end(process)
    reader.join(CLOSE_SECONDS)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
