"""What the sidecar's log says of engines: that one can't be trusted or looked at, and that it is over."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from satwatch.types import EngineStatus

logger = logging.getLogger(__name__)

# Lag and pauses come and go with every step; these states need a person.
FAULTS: Final = frozenset({"wrong_weights", "unknown"})
_LONGEST_REASON: Final = 400


def log_faults(before: Iterable[EngineStatus], statuses: Iterable[EngineStatus]) -> None:
    """Say of each engine when a fault begins, becomes another, or ends; nothing while it lasts.

    Args:
        before: what was said last of the engines.
        statuses: what is said now.
    """
    faults = {status.engine: _fault(status) for status in before}
    for status in statuses:
        was, fault = faults.get(status.engine, ""), _fault(status)
        if fault and fault != was:
            # Some of the reason is the engine's own text: quoted, it can't look like a line of the log.
            logger.warning("Engine %s is %s: %r.", status.engine, fault, status.reason[:_LONGEST_REASON])
        elif was and not fault:
            logger.info("Engine %s is no longer %s: %s.", status.engine, was, status.state)


def _fault(status: EngineStatus) -> str:
    """Return the state that needs a person, or nothing; an engine that was not looked at yet has none."""
    return status.state if status.state in FAULTS and status.looks else ""
