"""The interval of a microbatch as a trainer's loss wants it: radii for the places where its epsilons stand."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator

import torch

from satwatch.hooks.core.eager import not_compiled
from satwatch.sat import ClipBounds


class ClipRadii:
    r"""Clip radii of every token, :math:`1 - low` and :math:`high - 1`; asked for, and perhaps still on their way.

    The first look at them waits for the answer, so whatever stands between asking and looking overlaps with it. They
    unpack: ``eps_low, eps_high = radii``. Any thread may look.

    >>> from satwatch.sat import clip_bounds
    >>> radii = ClipRadii(lambda: clip_bounds(torch.tensor([0.1] * 9 + [-0.3])))
    >>> low, high = radii
    >>> bool((1 - low == radii.bounds.low).all()), round(float(low[-1]), 6)
    (True, 0.02)
    """

    def __init__(self, resolve: Callable[[], ClipBounds], has_arrived: Callable[[], bool] = lambda: False) -> None:
        """Make radii of bounds that ``resolve`` returns; it is called once, at the first look.

        Args:
            resolve: waits for the bounds and returns them; what it raises, each look raises.
            has_arrived: tells whether ``resolve`` would return bounds without a wait.
        """
        self._resolve: Callable[[], ClipBounds] | None = resolve
        self._has_arrived = has_arrived
        self._lock = threading.Lock()
        self._bounds: ClipBounds | None = None
        self._low: torch.Tensor | None = None

    @property
    def is_resolved(self) -> bool:
        """Whether the answer is there and has been looked at."""
        return self._bounds is not None

    @property
    def has_arrived(self) -> bool:
        """Whether a look waits for nothing."""
        return self.is_resolved or self._has_arrived()

    @property
    def bounds(self) -> ClipBounds:
        """The clip interval of every token, in the log-ratio's shape and on its device."""
        bounds = self._bounds
        return self._first_look() if bounds is None else bounds

    @not_compiled
    def _first_look(self) -> ClipBounds:
        with self._lock:
            if self._bounds is None:
                assert self._resolve is not None  # given up together with the bounds' arrival
                self._bounds, self._resolve = self._resolve(), None
            return self._bounds

    @property
    def low(self) -> torch.Tensor:
        """The lower radii, 1 - low: what the loss subtracts from 1."""
        if self._low is None:
            self._low = lower_radius(self.bounds.low)
        return self._low

    @property
    def high(self) -> torch.Tensor:
        """The upper radii, high - 1: what the loss adds to 1."""
        return self.bounds.high - 1

    def per_sequence(self, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the radii as (B, 1), for a loss with one ratio a sequence.

        Args:
            mask: the active tokens, (B, T), non-zero is active. At sequence level these share one interval; padding,
                and a sequence without tokens, has the nominal one, which is never the tighter.
        """
        if self.low.dim() == 0:  # one number for every shape
            return self.low.reshape(1, 1), self.high.reshape(1, 1)
        active = (mask != 0).to(self.low.device)
        return _narrowest(self.low, active), _narrowest(self.high, active)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter((self.low, self.high))


def _narrowest(radius: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
    """Return the smallest active radius of each row, (B, 1); of a row without any, the smallest there is."""
    if radius.shape[1] == 0:
        return radius.new_zeros(len(radius), 1)
    narrowest = radius.masked_fill(~active, math.inf).amin(1, keepdim=True)
    return torch.where(active.any(1, keepdim=True), narrowest, radius.amin(1, keepdim=True))


def lower_radius(low: torch.Tensor) -> torch.Tensor:
    """Return the radius r of a lower bound such that 1 - r, rounded, is the bound, or above it by an ulp.

    >>> low = torch.tensor([0.8, 0.3], dtype=torch.float64)
    >>> bool((1 - lower_radius(low) >= low).all())
    True
    """
    radius = 1 - low
    if radius.numel() == 0:
        return radius
    # Below a half the subtraction rounds, and a bound that came back smaller would be looser than PPO's.
    return torch.where(1 - radius < low, torch.nextafter(radius, torch.zeros_like(radius)), radius)
