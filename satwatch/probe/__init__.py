"""The probe: attached to rollout engines, it measures their lag and finds those that serve the wrong weights.

What needs an HTTP client or pydantic is loaded when it is asked for: attaching to an engine of the same process needs
neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

# At once, for the function has its module's name: whichever is loaded last would be what the name stands for.
from satwatch.probe.attach import attach

if TYPE_CHECKING:
    from satwatch.probe.http.engine import HttpEngine
    from satwatch.probe.settings import ProbeSettings
    from satwatch.probe.snapshot import EngineSnapshot
    from satwatch.probe.watch import Watcher, watching
    from satwatch.types import EngineStatus

__all__ = ["EngineSnapshot", "EngineStatus", "HttpEngine", "ProbeSettings", "Watcher", "attach", "watching"]

_HOMES = {
    "EngineSnapshot": "satwatch.probe.snapshot",
    "EngineStatus": "satwatch.types",
    "HttpEngine": "satwatch.probe.http.engine",
    "ProbeSettings": "satwatch.probe.settings",
    "Watcher": "satwatch.probe.watch",
    "watching": "satwatch.probe.watch",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
