"""What is kept of runs: steps, batches, alerts and engines, in SQLite or PostgreSQL.

A sidecar writes through a :class:`Recorder`, which takes records and never waits; whoever looks opens a :class:`Store`
(:func:`open_store`), beside the sidecar or long after it.
"""

from satwatch.history.address import hide_password
from satwatch.history.limits import Limits
from satwatch.history.points import step_point
from satwatch.history.recorder import Recorder
from satwatch.history.records import (
    BatchSeen,
    EngineSeen,
    EventSeen,
    Kind,
    LifeEnded,
    LifeKey,
    LifeOpened,
    Record,
    RecorderStats,
    StepSeen,
    VersionSeen,
)
from satwatch.history.store import Store, open_store

__all__ = [
    "BatchSeen",
    "EngineSeen",
    "EventSeen",
    "Kind",
    "LifeEnded",
    "LifeKey",
    "LifeOpened",
    "Limits",
    "Record",
    "Recorder",
    "RecorderStats",
    "StepSeen",
    "Store",
    "VersionSeen",
    "hide_password",
    "open_store",
    "step_point",
]
