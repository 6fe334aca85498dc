"""The end of a process that satwatch started."""

from __future__ import annotations

import subprocess
from typing import Final

CLOSE_SECONDS: Final = 10.0


def end(process: subprocess.Popen[str]) -> None:
    """End a process: SIGTERM, and SIGKILL if it has not ended within ``CLOSE_SECONDS``; its pipes stay open."""
    process.terminate()
    try:
        process.wait(CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
