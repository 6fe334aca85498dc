"""What a page is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from satwatch._dashboard.chart import looking_at
from satwatch._dashboard.view import Part, View

STEPS: Final[tuple[Part, ...]] = ("points", "last", "versions")
JUDGED: Final[tuple[Part, ...]] = ("events", "active")


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its place in the address line and the menu, and what draws it.

    Attributes:
        path: its last part of the address; the first page's is also the empty one.
        title: in the menu.
        icon: likewise.
        content: draws one look at a run.
        needs: what it reads of every look.
    """

    path: str
    title: str
    icon: str
    content: Callable[[View], None]
    needs: tuple[Part, ...] = STEPS

    def draw(self, view: View) -> None:
        """Draw one look at a run. What a visitor did to its figures lasts as long as the same is looked at."""
        looked_at = replace(view.selection, life=view.record.life, is_live=True)
        with looking_at(f"{self.path} {looked_at}"):
            self.content(view)
