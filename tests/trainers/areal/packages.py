"""Empty modules where AReaL imports loggers that a test does not use, and that would take as long to install as it."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec

ABSENT = ("swanlab", "trackio", "wandb")


def stand_in():
    """Put them in place, before AReaL is imported."""
    for name in ABSENT:
        sys.modules.setdefault(name, importlib.util.module_from_spec(ModuleSpec(name, None)))
