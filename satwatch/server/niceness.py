"""Threads that stand back: a request goes first, and a trainer that takes every core still leaves them a share."""

from __future__ import annotations

import os
import sys
import threading
from typing import Final

_NICENESS: Final = 5


def step_back() -> None:
    """Make the calling thread less urgent than those that answer trainers."""
    if sys.platform == "linux":  # elsewhere niceness is the whole process's
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
