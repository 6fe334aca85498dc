"""What was amiss with a run when it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from satwatch._dashboard.figures import Episode, episodes
from satwatch.types import Event

# Engines and trainer part within so many seconds.
PARTING_SECONDS: Final = 10.0


def active_at_end(active: Sequence[Event], events: Sequence[Event], ended: float) -> list[Event]:
    """Return the alerts that were active when a run ended, oldest first.

    Engines leave with their trainer, and an alert of one that is watched no more is resolved: nothing has shown that
    the engine is well again. What is seen of an engine after the end concerns other runs.

    Args:
        active: raised and not resolved until now.
        events: all that was raised and resolved, oldest first.
        ended: when the run did, Unix time in seconds.
    """
    left = [episode.raised for episode in episodes(events) if _has_left(episode, ended)]
    found = {(event.alert, event.engine, event.at): event for event in (*active, *left)}
    return sorted(
        (event for event in found.values() if not event.engine or event.at <= ended), key=lambda event: event.at
    )


def episodes_until(events: Sequence[Event], ended: float) -> list[Episode]:
    """Return the alerts of a run that has ended, in the order of raising: what was active then is not resolved.

    Args:
        events: all that was raised and resolved, oldest first.
        ended: when the run did, Unix time in seconds.
    """
    return [
        Episode(episode.raised) if _has_left(episode, ended) else episode
        for episode in episodes(events)
        if not episode.raised.engine or episode.raised.at <= ended
    ]


def _has_left(episode: Episode, ended: float) -> bool:
    """Tell whether an alert outlived the run, or ended with it and without a step that showed its end."""
    raised, resolved = episode.raised, episode.resolved
    if resolved is None or raised.state != "raised" or raised.at > ended:
        return False
    return resolved.at > ended or (resolved.step is None and resolved.at > ended - PARTING_SECONDS)
