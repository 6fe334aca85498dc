"""The dashboard's server: ``python -m satwatch._dashboard PORT``, with the sidecar's address in the environment.

Standard input is a leash: a pipe that the starter holds. However the starter ends, SIGKILL included, the pipe ends with
it, and the server gets the SIGTERM that nobody else is left to send.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Final

from streamlit.web import cli

import satwatch._dashboard.app  # noqa: F401 - loaded before the first visitor comes, torch and plotly included
from satwatch._dashboard.brand import BLUE
from satwatch._dashboard.process import HOST

# The address that Streamlit names as it begins tells the starter that it listens. Not among the options: an older
# Streamlit doesn't know it, and always does so.
WELCOME: Final = "STREAMLIT_LOGGER_HIDE_WELCOME_MESSAGE"

# Read-only, loopback only, and nothing is told to anybody.
OPTIONS: Final = {
    "global.developmentMode": "false",
    "server.address": HOST,
    "server.headless": "true",
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": "false",
    "browser.serverAddress": HOST,
    "client.toolbarMode": "viewer",  # keeps the choice of dark and light
    # Of both themes by name: one that is set for all would do away with dark.
    "theme.light.primaryColor": BLUE,
    "theme.dark.primaryColor": BLUE,
}


def _hold() -> None:
    # Unbuffered: a thread inside a buffered read of standard input aborts the interpreter's shutdown.
    while os.read(sys.stdin.fileno(), 1):
        pass
    # Nobody reads its last words either, and a closed pipe would keep the server from stopping.
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(null, stream.fileno())
    os.kill(os.getpid(), signal.SIGTERM)


def main(port: str) -> None:
    """Hold the leash and serve the pages."""
    threading.Thread(target=_hold, name="leash", daemon=True).start()
    os.environ[WELCOME] = "false"
    ports = {"server.port": port, "browser.serverPort": port}
    options = [f"--{name}={value}" for name, value in {**OPTIONS, **ports}.items()]
    cli.main(["run", str(Path(__file__).with_name("app.py")), *options], prog_name="streamlit")


if __name__ == "__main__":
    main(sys.argv[1])
