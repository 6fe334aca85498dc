"""How much of the history is kept: the settings of the table ``[history]``."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from satwatch.history import Limits
from satwatch.server.steps import STEP_TIMEOUT_SECONDS

HISTORY_TABLE: Final = "history"


class HistorySettings(BaseModel):
    """What is kept at most, and when a step is over; where it is kept says the setting ``store``.

    Raises:
        pydantic.ValidationError: a value outside its range, or a name that is no setting.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    max_steps: int = Field(100_000, ge=1, le=100_000_000)
    """The most steps kept of one life of a run; beyond it the oldest go."""

    max_batch_steps: int = Field(1000, ge=1, le=100_000_000)
    """The newest steps of a life whose batches are kept one by one, with their worst tokens."""

    max_lives: int = Field(1000, ge=1, le=1_000_000)
    """The most lives kept, of all runs; beyond it the ones idle longest go."""

    max_events: int = Field(100_000, ge=1, le=100_000_000)
    """The most alerts kept, raised and resolved; those still active stay beyond it."""

    max_engine_records: int = Field(100_000, ge=1, le=100_000_000)
    """The most records of engines kept."""

    step_timeout_seconds: float = Field(STEP_TIMEOUT_SECONDS, ge=1, le=86_400)
    """How long a step waits for ranks that have not ended it, since its last message."""

    @property
    def limits(self) -> Limits:
        """What the store keeps at most."""
        return Limits(
            max_steps=self.max_steps,
            max_batch_steps=self.max_batch_steps,
            max_lives=self.max_lives,
            max_events=self.max_events,
            max_engine_records=self.max_engine_records,
        )
