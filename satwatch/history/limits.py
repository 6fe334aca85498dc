"""How much is kept."""

from __future__ import annotations

from dataclasses import dataclass, fields

from satwatch.errors import ConfigError, required


@dataclass(frozen=True, slots=True)
class Limits:
    """What is kept at most; the oldest goes first.

    Attributes:
        max_steps: steps of a life.
        max_batch_steps: the newest steps of a life whose batches are kept one by one.
        max_lives: lives, of all runs.
        max_events: alerts raised and resolved; those still active are kept beyond it.
        max_engine_records: records of engines.

    Raises:
        ConfigError: a limit that isn't a whole number of 1 or more.
    """

    max_steps: int = 100_000
    max_batch_steps: int = 1000
    max_lives: int = 1000
    max_events: int = 100_000
    max_engine_records: int = 100_000

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(required(each.name, repr(value), "a whole number of 1 or more"))
