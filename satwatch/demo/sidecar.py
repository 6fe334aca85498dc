"""A sidecar of the demo's own: started with it, ended with it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import IO, Final, Self

from satwatch.errors import UnavailableError, required

START_SECONDS: Final = 60.0  # importing torch on a busy machine takes a while
CLOSE_SECONDS: Final = 10.0
# Batches this small gain nothing from a GPU, which may be somebody else's.
SERVE: Final = ("serve", "--listen", "127.0.0.1:0", "--metrics-port", "0", "--device", "cpu")
COMMAND: Final = ("-m", "satwatch.demo.leash", *SERVE)


def parse_address(line: str) -> str | None:
    """Read the gRPC address off a sidecar's first line, or return None when it is not one.

    >>> parse_address("satwatch 0.1.0 grpc=127.0.0.1:4820 metrics=http://127.0.0.1:9820/metrics device=cpu")
    '127.0.0.1:4820'
    """
    named = dict(word.split("=", 1) for word in line.split() if "=" in word)
    return named.get("grpc") if line.startswith("satwatch ") else None


class SidecarProcess:
    """A sidecar on free loopback ports. A context manager: leaving it ends the process."""

    def __init__(self) -> None:
        # A session of its own: a Ctrl-C on the terminal reaches the learner alone, which then ends the sidecar.
        self._process = subprocess.Popen(
            [sys.executable, *COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self._address: Future[str] = Future()
        self._last_lines: deque[str] = deque(maxlen=5)
        # Its output is read to the end, so that a full pipe never stops it.
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The sidecar's process id."""
        return self._process.pid

    def address(self) -> str:
        """Return where it listens, HOST:PORT, as soon as it does.

        Raises:
            UnavailableError: it ended instead, or said nothing for a minute.
        """
        try:
            return self._address.result(START_SECONDS)
        except FutureTimeoutError:
            raise UnavailableError(required("sidecar", f"no address in {START_SECONDS:g} s", "its address")) from None

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def wait(self) -> int:
        """Wait until it ends; return its exit code."""
        return self._process.wait()

    def close(self) -> None:
        """End it: SIGTERM, and SIGKILL if it does not drain in time."""
        self._process.terminate()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(CLOSE_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self._last_lines.append(line.strip())
            address = None if self._address.done() else parse_address(line)
            if address is not None:
                self._address.set_result(address)
        if not self._address.done():
            came = f"exit code {self._process.wait()} ({' | '.join(self._last_lines) or 'no output'})"
            self._address.set_exception(UnavailableError(required("sidecar", came, "an address on its first line")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
