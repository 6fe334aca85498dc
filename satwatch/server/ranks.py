"""What is kept of each rank of a run: how far it has come, whether it has started again, and its fallbacks. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Fallbacks:
    """What one rank's client said of the batches it answered without the sidecar.

    It says its own total so far. A lower total is a message overtaken by a later one, or, once the rank has
    opened the run again, a client that started again from 0.
    """

    last: int = 0
    reopened: bool = False

    def observe(self, count: int) -> int:
        """Take a client's total so far, and return by how much the sum grows."""
        if count >= self.last:
            new = count - self.last
        elif self.reopened:
            new = count
        else:
            return 0
        self.last, self.reopened = count, False
        return new


@dataclass(slots=True)
class Rank:
    """What is kept of one data-parallel rank.

    A rank that opens its run again without an incarnation has reconnected, or its trainer has started again. Only its
    steps tell: after a restart they go back.

    Attributes:
        window: the run's window at its last batch with a step.
        life: the run's window when its trainer last started again.
        step: its last step.
        reopened: it has opened the run again, and has sent no higher step since.
        world_size: the ranks that it announced last.
        fallbacks: what it said of its fallbacks.
    """

    window: int
    life: int = 0
    step: int | None = None
    reopened: bool = False
    world_size: int = 1
    fallbacks: Fallbacks = field(default_factory=Fallbacks)

    def has_restarted(self, step: int, window: int) -> bool:
        """Tell whether a step is of a trainer that has started again; so it is if another rank's said so already."""
        return self.reopened and self.step is not None and (step < self.step or self.window < window)
