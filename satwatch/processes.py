"""Processes that satwatch starts: how Python is told to run a module, and how they end."""

from __future__ import annotations

import subprocess
from typing import Final

CLOSE_SECONDS: Final = 10.0
# -P: a queue.py or a streamlit.py in the folder that the user happens to be in is not loaded in a module's place.
RUN_MODULE: Final = ("-P", "-m")


def end(process: subprocess.Popen[str]) -> None:
    """End a process: SIGTERM, and SIGKILL if it has not ended within ``CLOSE_SECONDS``; its pipes stay open."""
    process.terminate()
    try:
        process.wait(CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
