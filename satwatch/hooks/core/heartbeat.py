"""Calls per optimizer step: a hook that silently is not called must be visible.

Torch tells of every optimizer's step, whoever drives it, so this needs nothing of the trainer. A loss that is replaced
behind the hook's back then shows as steps without a call.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from satwatch.hooks.core.eager import not_compiled

logger = logging.getLogger("satwatch")

# The first step may end before the hook is in place; the second without a call is no accident.
SILENT_STEPS: Final = 2
# Some trainers step an optimizer many times for one step of theirs, part after part. How many is learned between the
# first two calls; until then this is allowed for.
_PARTS: Final = 64


@dataclass(slots=True)
class _Silence:
    """What one optimizer's steps have seen: calls in all, steps since the last of them, and the most there were."""

    calls: int = 0
    steps: int = 0
    longest: int = 0

    @property
    def silent(self) -> int:
        """Steps without a call: the first of the steps had one, if there was any."""
        return self.steps - (self.calls > 0)

    def is_long(self) -> bool:
        """Tell whether that is more than a trainer's own way to step."""
        usual = 0 if self.calls == 0 else 2 * (self.longest or _PARTS)
        return self.silent >= max(SILENT_STEPS, usual)

    def called(self, calls: int) -> None:
        """Begin anew at a step that had a call."""
        # A silence is not what is usual, but for the first time, when nothing is known of that yet.
        if self.calls and not (self.longest and self.is_long()):
            self.longest = max(self.longest, self.steps)
        self.calls, self.steps = calls, 1


class Heartbeat:
    """Counts the calls of one hook between optimizer steps; for any number of threads.

    A process may have other optimizers, such as a critic's. One that steps right after another, with no call between,
    is part of the same step; one that has never stepped right after a call is not expected to.

    Attributes:
        trainer: the trainer's name, for the log.
        step: optimizer steps that had a call, since the start: the number of the step that is going on.
        calls_last_step: calls in the last step; 0 from when an optimizer has stepped without any.
    """

    def __init__(self, trainer: str) -> None:
        """Start to count."""
        self.trainer = trainer
        self.step = 0
        self.calls_last_step: int | None = None
        self._lock = threading.Lock()
        self._calls = 0
        self._total = 0
        self._seen: weakref.WeakKeyDictionary[torch.optim.Optimizer, _Silence] = weakref.WeakKeyDictionary()
        self._warned = False
        _begin(self)

    def call(self) -> int:
        """Count a call, and return the number of the step that it belongs to."""
        with self._lock:
            self._calls += 1
            self._total += 1
            return self.step

    def close(self) -> None:
        """Stop counting."""
        _end(self)

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Count a step of an optimizer, and warn when it is one too many without a call."""
        with self._lock:
            silent = self._note(optimizer)
        if silent:
            logger.warning(
                "satwatch, %s: %d optimizer steps without a call of the hook: is the loss the one that it is attached "
                "to?",
                self.trainer,
                silent,
            )

    def after_fork(self) -> None:
        """Let go of what another thread held when the process was forked."""
        self._lock = threading.Lock()

    def _note(self, optimizer: torch.optim.Optimizer) -> int:
        """Remember what a step saw, and return the length of a silence where that is news."""
        calls, self._calls = self._calls, 0
        if calls:
            self.step += 1
            self.calls_last_step = calls
        seen = self._seen.setdefault(optimizer, _Silence())
        if self._total and not calls and not seen.calls:
            del self._seen[optimizer]  # another loss's
            return 0
        if self._total > seen.calls:
            seen.called(self._total)
            self._warned = False
            return 0
        seen.steps += 1
        if not seen.is_long():
            return 0
        self.calls_last_step = 0
        news, self._warned = not self._warned, True
        return seen.silent if news else 0


# One hook of torch for all of them, never taken out again: torch goes through its hooks while they run, and a hook
# that a garbage collection took out meanwhile would end the optimizer's step. Replaced as a whole, never changed.
_beating: tuple[weakref.ref[Heartbeat], ...] = ()
_beating_lock = threading.Lock()
_is_registered = False
_has_failed = False


def _begin(heartbeat: Heartbeat) -> None:
    global _beating, _is_registered
    with _beating_lock:
        _beating = (*(ref for ref in _beating if ref() is not None), weakref.ref(heartbeat))
        if not _is_registered:
            register_optimizer_step_post_hook(_optimizer_stepped)
            _is_registered = True


def _end(heartbeat: Heartbeat) -> None:
    global _beating
    with _beating_lock:
        _beating = tuple(ref for ref in _beating if ref() not in (None, heartbeat))


@not_compiled
def _optimizer_stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ANN401 - torch's
    global _has_failed
    for ref in _beating:
        heartbeat = ref()
        if heartbeat is None:
            continue
        try:
            heartbeat.stepped(optimizer)
        except Exception as error:  # noqa: BLE001 - a hook's edge: it would end the trainer's own step, see docs/decisions.md
            if not _has_failed:
                _has_failed = True
                logger.warning("satwatch, %s: an optimizer step could not be counted: %r", heartbeat.trainer, error)


def _after_fork() -> None:
    global _beating_lock
    _beating_lock = threading.Lock()
    for ref in _beating:
        heartbeat = ref()
        if heartbeat is not None:
            heartbeat.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
