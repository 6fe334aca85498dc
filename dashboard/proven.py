"""Which weights an engine is shown to serve, where its canary contradicts what it says."""

from __future__ import annotations

from collections.abc import Mapping

from satwatch.types import EngineStatus


def is_contradicted(status: EngineStatus) -> bool:
    """Tell whether an engine's canary shows that it serves other weights than it says."""
    return status.state == "wrong_weights" and (
        status.version_canary is None or status.version_canary != status.version_served
    )


def version(status: EngineStatus) -> int | None:
    """Return the version that an engine serves: by its canary where that contradicts it; None where nothing tells."""
    return status.version_canary if is_contradicted(status) else status.version_served


def lag(status: EngineStatus) -> int | None:
    """Return how many versions an engine is behind, by :func:`version`; None where that is unknown.

    >>> lag(EngineStatus("a", "wrong_weights", version_served=88, version_published=88, version_canary=32))
    56
    """
    if not is_contradicted(status):
        return status.version_lag
    if status.version_canary is None or status.version_published is None:
        return None
    return max(0, status.version_published - status.version_canary)


def weight_age(status: EngineStatus, published: Mapping[int, float], at: float) -> float | None:
    """Return the age of the weights that an engine serves, by :func:`version`, seconds; None where it is unknown.

    Args:
        status: of the engine.
        published: when each version was, Unix time in seconds.
        at: when the status was seen, likewise.
    """
    if not is_contradicted(status):
        return status.weight_age_seconds
    began = None if status.version_canary is None else published.get(status.version_canary)
    return None if began is None else max(0.0, at - began)
