"""Two tasks whose reward a few lines can verify."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from satwatch.demo.config import TaskName


@dataclass(frozen=True, slots=True)
class Task:
    """Digits in, digits out.

    A prompt is ``digits`` random digits and one separator; the response is as many digits as the prompt.

    Attributes:
        digits: digits of a prompt, and of a response.
        base: digits are 0 to ``base`` - 1; the separator is the token ``base``.
        solve: turns the digits of prompts, shape (P, digits), into the right responses, same shape.
    """

    digits: int
    base: int
    solve: Callable[[Tensor], Tensor]

    @property
    def vocabulary(self) -> int:
        """The number of token ids: the digits and the separator."""
        return self.base + 1

    @property
    def prompt_length(self) -> int:
        """Tokens of a prompt, separator included."""
        return self.digits + 1

    @property
    def response_length(self) -> int:
        """Tokens of a response."""
        return self.digits

    def draw_prompts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw prompts uniformly.

        Args:
            count: how many, P.
            generator: the source of randomness.

        Returns:
            Token ids, int64, shape (P, digits + 1).
        """
        digits = torch.randint(self.base, (count, self.digits), generator=generator)
        separator = torch.full((count, 1), self.base)
        return torch.cat([digits, separator], dim=1)

    def reward(self, prompts: Tensor, responses: Tensor) -> Tensor:
        """Return the share of right positions of each response.

        Args:
            prompts: token ids, shape (B, digits + 1).
            responses: token ids, shape (B, digits).

        Returns:
            float32 in [0, 1], shape (B,).
        """
        right = self.solve(prompts[:, : self.digits])
        return (responses == right).float().mean(dim=1)


def _reverse(digits: Tensor) -> Tensor:
    return digits.flip(1)


def _sort(digits: Tensor) -> Tensor:
    return digits.sort(dim=1).values


TASKS: Final[dict[TaskName, Task]] = {
    "reverse": Task(digits=6, base=10, solve=_reverse),
    "sort": Task(digits=4, base=8, solve=_sort),
}
