"""An asynchronous run as the forecast sees it: slots that generate, a queue, a trainer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from satwatch.errors import ConfigError, required
from satwatch.sat.forecast.lengths import Lengths
from satwatch.types import is_number

# What a run may be made of, with room on both sides.
SMALLEST: Final = 1e-6
LARGEST: Final = 1e9


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What decides how old tokens get.

    Attributes:
        concurrency: C, responses generated at once, over all engines; all slots are always in use.
        tokens_per_second: that one response advances by.
        lengths: of the responses, in tokens.
        queue_capacity: Q, finished responses that wait for the trainer; a response that finds the queue full waits in
            its slot, which generates nothing meanwhile.
        batch_responses: B, responses of one optimizer step, after which a version is published.
        train_seconds: S, from the start of a step to the publishing of its version.
        sync_seconds: from the publishing of a version to its first token.

    Raises:
        ConfigError: a value outside its range.
    """

    concurrency: int
    tokens_per_second: float
    lengths: Lengths
    queue_capacity: int
    batch_responses: int
    train_seconds: float
    sync_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name, least in (("concurrency", 1), ("queue_capacity", 0), ("batch_responses", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 10**9:
                raise ConfigError(required(name, repr(value), f"a whole number from {least} to 1,000,000,000"))
        for name, smallest in (("tokens_per_second", SMALLEST), ("train_seconds", SMALLEST), ("sync_seconds", 0.0)):
            given = getattr(self, name)
            if not (is_number(given) and smallest <= given <= LARGEST):
                raise ConfigError(required(name, repr(given), f"a number from {smallest:g} to {LARGEST:g}"))

    @property
    def response_seconds(self) -> float:
        """Time to generate a response, mean."""
        return self.lengths.mean / self.tokens_per_second

    @property
    def responses_per_second(self) -> float:
        """Responses that all slots finish when none of them is held."""
        return self.concurrency / self.response_seconds

    @property
    def throughput_ratio(self) -> float:
        """Responses that the slots can finish in a training step over those that the step needs."""
        return self.responses_per_second * self.train_seconds / self.batch_responses
