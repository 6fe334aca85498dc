"""What both trainers share: epsilons that a loss may read as radii, published versions, and the log."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Final, Literal, TypeAlias

import torch

from satwatch.client import BoundsClient
from satwatch.errors import SatwatchError
from satwatch.hooks.core.attachment import Attachment
from satwatch.hooks.core.notices import Notices
from satwatch.hooks.core.radii import ClipRadii

# The hook overrides methods that are TRL's own affair.
TESTED: Final = "1.16"

Radii: TypeAlias = tuple[torch.Tensor, torch.Tensor]


class GuardedTrainer:
    """A mixin before a trainer of TRL's, whose loss clips to ``[1 - epsilon_low, 1 + epsilon_high]``.

    Attributes:
        attachment: what stands between the trainer and satwatch; there once the trainer is made.
    """

    attachment: Attachment
    _radii: Callable[[], Radii] | None = None

    def _attach(self, client: BoundsClient | None, *, level: Literal["token", "sequence"], clips: bool = True) -> None:
        trainer: Any = self
        self._notices = Notices(type(self).__name__)
        self.attachment = Attachment(
            type(self).__name__,
            client,
            eps_low=trainer.epsilon_low if clips else None,
            eps_high=trainer.epsilon_high if clips else None,
            level=level,
            rank=trainer.accelerator.process_index,
            world_size=trainer.accelerator.num_processes,
            run=trainer.args.run_name,
        )
        release = version("trl")
        if not release.startswith(f"{TESTED}."):
            self._notices.give(
                f"this is TRL {release}, and the hook is made for {TESTED}: compare a watched run's losses first"
            )

    @property
    def epsilon_low(self) -> Any:  # noqa: ANN401 - TRL's scalar, or a tensor
        """The trainer's lower clip radius; while a guarded loss runs, the microbatch's radii."""
        return self._epsilon_low if self._radii is None else self._radii()[0]

    @epsilon_low.setter
    def epsilon_low(self, value: float) -> None:
        self._epsilon_low = value

    @property
    def epsilon_high(self) -> Any:  # noqa: ANN401 - as above
        """The trainer's upper clip radius; while a guarded loss runs, the microbatch's radii."""
        return self._epsilon_high if self._radii is None else self._radii()[1]

    @epsilon_high.setter
    def epsilon_high(self, value: float) -> None:
        self._epsilon_high = value

    def _lend(self, radii: ClipRadii, read: Callable[[ClipRadii], Radii]) -> None:
        """Put radii where the loss looks for its epsilons; they are waited for when it does, which is when it clips.

        The loss's caller takes them back, whatever the loss raises.
        """
        # It looks twice: for the clamp, and for its clip metrics.
        self._radii = functools.cache(lambda: read(radii))

    def _publish(self, published: int) -> None:
        """Say that a version has reached the generator."""
        try:
            self.attachment.client.publish_version(published)
        except SatwatchError:
            raise
        except Exception as error:  # noqa: BLE001 - the hook's edge: no fault of ours may end a run, see docs/decisions.md
            self._notices.give(f"a version could not be published: {type(error).__name__}: {error}")

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as TRL does, with the metrics of the microbatches since the last line."""
        trainer: Any = self
        if trainer.model.training:
            # One value a line: several would be averaged there, and these are merged exactly.
            for name, value in self.attachment.drain().items():
                trainer._metrics["train"][name].append(value)
        super().log(logs, start_time)  # type: ignore[misc] # the trainer's
