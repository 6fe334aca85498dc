"""Threads that stand back: a request goes first, and a trainer that takes every core still leaves them a share."""

from __future__ import annotations

import os
import sys
import threading
from typing import Final

_NICENESS: Final = 5
# Python's own is 5 ms: so long a thread that reads the history may keep the interpreter from an answer, each time.
_SWITCH_SECONDS: Final = 0.0005


def step_back() -> None:
    """Make the calling thread less urgent than those that answer trainers."""
    if sys.platform == "linux":  # elsewhere niceness is the whole process's
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def switch_soon() -> None:
    """Have busy threads hand the interpreter over soon to the one that answers.

    For a process of the sidecar's own: never called where a trainer lives.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
