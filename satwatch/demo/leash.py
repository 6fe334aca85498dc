"""Run a satwatch command that ends when whoever started it does.

Standard input is a leash: a pipe that the starter holds. However the starter ends, SIGKILL included, the pipe ends with
it, and the command gets the SIGTERM that nobody else is left to send.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def hold() -> None:
    """Hold the leash from now on."""
    threading.Thread(target=_wait, name="leash", daemon=True).start()


def become_satwatch() -> None:
    """Run ``python -m satwatch`` in this process, with its arguments."""
    runpy.run_module("satwatch", run_name="__main__", alter_sys=True)


def _wait() -> None:
    # Unbuffered: a thread inside a buffered read of standard input aborts the interpreter's shutdown.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
