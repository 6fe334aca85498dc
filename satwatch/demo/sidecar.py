"""A sidecar of the demo's own: started with it, ended with it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

from satwatch.demo.config import OWN_STORE
from satwatch.errors import UnavailableError, required
from satwatch.processes import CLOSE_SECONDS, RUN_MODULE, end

START_SECONDS: Final = 60.0  # importing torch on a busy machine takes a while
# Batches this small gain nothing from a GPU, which may be somebody else's.
SERVE: Final = ("serve", "--listen", "127.0.0.1:0", "--metrics-port", "0", "--device", "cpu")
COMMAND: Final = (*RUN_MODULE, "satwatch.demo.serving", *SERVE)
TEMPORARY: Final = "satwatch-demo-"  # how the name of a folder begins that was made because the state folder is no use


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a sidecar says of itself in its first line.

    Attributes:
        address: where it listens, HOST:PORT or unix:PATH.
        history: what ``--store`` takes to show its history again; None: it keeps none.
    """

    address: str
    history: str | None

    @property
    def is_temporary(self) -> bool:
        """Whether the history is where the system may remove it."""
        return self.history is not None and Path(self.history).parent.name.startswith(TEMPORARY)


def parse_announcement(line: str) -> Announcement | None:
    """Read a sidecar's first line, or return None when it is not one.

    >>> parse_announcement("satwatch 0.1.0 grpc=127.0.0.1:4820 metrics=off device=cpu history=/var/lib/a run.sqlite")
    Announcement(address='127.0.0.1:4820', history='/var/lib/a run.sqlite')
    """
    addresses, _, history = line.strip().partition(" history=")  # the last, for a path may have spaces
    named = dict(word.split("=", 1) for word in addresses.split() if "=" in word)
    if not line.startswith("satwatch ") or "grpc" not in named:
        return None
    return Announcement(named["grpc"], history if history not in ("", "off") else None)


class SidecarProcess:
    """A sidecar on free loopback ports. A context manager: leaving it ends the process.

    Args:
        store: where it keeps its history, as ``satwatch serve`` takes it; but ``auto`` is a file of the demos' own.
    """

    def __init__(self, store: str = OWN_STORE) -> None:
        options = () if store == OWN_STORE else ("--store", store)
        # A session of its own: a Ctrl-C on the terminal reaches the learner alone, which then ends the sidecar.
        self._process = subprocess.Popen(
            [sys.executable, *COMMAND, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self._announced: Future[Announcement] = Future()
        self._last_lines: deque[str] = deque(maxlen=5)
        # Its output is read to the end, so that a full pipe never stops it.
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The sidecar's process id."""
        return self._process.pid

    def announcement(self) -> Announcement:
        """Return what it says of itself, as soon as it listens.

        Raises:
            UnavailableError: it ended instead, or said nothing for a minute.
        """
        try:
            return self._announced.result(START_SECONDS)
        except FutureTimeoutError:
            raise UnavailableError(required("sidecar", f"no address in {START_SECONDS:g} s", "its address")) from None

    def address(self) -> str:
        """Return where it listens, HOST:PORT, as soon as it does.

        Raises:
            UnavailableError: it ended instead, or said nothing for a minute.
        """
        return self.announcement().address

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def wait(self) -> int:
        """Wait until it ends; return its exit code."""
        return self._process.wait()

    def close(self) -> None:
        """End it: SIGTERM, and SIGKILL if it does not drain in time."""
        end(self._process)
        self._reader.join(CLOSE_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self._last_lines.append(line.strip())
            announcement = None if self._announced.done() else parse_announcement(line)
            if announcement is not None:
                self._announced.set_result(announcement)
        if not self._announced.done():
            came = f"exit code {self._process.wait()} ({' | '.join(self._last_lines) or 'no output'})"
            self._announced.set_exception(UnavailableError(required("sidecar", came, "an address on its first line")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
