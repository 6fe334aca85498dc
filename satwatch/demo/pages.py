"""The run's dashboard, started beside the training, which waits for none of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Self

from satwatch._dashboard.process import DashboardProcess, dashboard_process
from satwatch.errors import ConfigError, SatwatchError


class Pages:
    """A dashboard that starts in the background. A context manager: leaving it ends the dashboard.

    Args:
        address: returns the sidecar's, as soon as it listens; an error of it is its owner's to tell.
        tell: is told where the pages are, or why there are none; from another thread.
    """

    def __init__(self, address: Callable[[], str], tell: Callable[[str], None]) -> None:
        self._address, self._tell = address, tell
        self._running: Future[DashboardProcess | None] = Future()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="dashboard", daemon=True)
        self._thread.start()

    def running(self) -> DashboardProcess | None:
        """Return the dashboard as soon as it answers; None: it does not start."""
        return self._running.result()

    def close(self) -> None:
        """End the dashboard. One that is starting still is not waited for: its leash ends it with this process."""
        self._over.set()
        if self._running.done():
            self._thread.join()

    def _serve(self) -> None:
        try:
            address = self._address()
        except SatwatchError:
            self._running.set_result(None)
            return
        try:
            with ExitStack() as stack:
                running = _enter(stack, address)
                if not self._over.is_set():
                    self._tell(f"dashboard: {running.url}")
                self._running.set_result(running)
                self._over.wait()
        except (SatwatchError, OSError) as error:
            self._tell(f"no dashboard: {error}")
            self._running.set_result(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _enter(stack: ExitStack, address: str) -> DashboardProcess:
    try:
        return stack.enter_context(dashboard_process(address))
    except ConfigError:  # the usual port is somebody else's
        return stack.enter_context(dashboard_process(address, port=0))
