"""What a hook has to say, once."""

from __future__ import annotations

import logging

logger = logging.getLogger("satwatch")


class Notices:
    """WARNINGs of one hook in the log: each once, however many microbatches give rise to it."""

    def __init__(self, trainer: str) -> None:
        """Name the trainer that they begin with."""
        self._trainer = trainer
        self._given: set[str] = set()

    def give(self, what: str) -> None:
        """Log it, unless it has been."""
        if what not in self._given:
            self._given.add(what)
            logger.warning("satwatch, %s: %s", self._trainer, what)
