"""Run a satwatch command that ends when whoever started it does.

``python -m satwatch.demo.leash serve ...`` is ``python -m satwatch serve ...``, except that standard input is a leash:
a pipe that the starter holds. However the starter ends, SIGKILL included, the pipe ends with it, and the command gets
the SIGTERM that nobody else is left to send.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def _hold() -> None:
    # Unbuffered: a thread inside a buffered read of standard input aborts the interpreter's shutdown.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Hold the leash and become the command."""
    threading.Thread(target=_hold, name="leash", daemon=True).start()
    runpy.run_module("satwatch", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
