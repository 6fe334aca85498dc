"""What a process says when it ends: that its ranks send nothing more."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import weakref
from collections.abc import Hashable
from multiprocessing import util
from typing import Final, Protocol

from satwatch.client.connection import Connection
from satwatch.client.deadline import Deadline
from satwatch.client.misses import Missed
from satwatch.client.settings import Settings

# How long an end waits at most for the sidecar to hear of it: of one client, or of all in a process that ends.
PARTING_SECONDS: Final = 0.5
# And by a sidecar that left the end before unheard: whoever closes client after client waits for it once.
UNHEARD_SECONDS: Final = 0.05


class Speaker(Protocol):
    """One process's part of a client, which may speak for a rank.

    Attributes:
        settings: of its client.
        process: the process that it is in.
    """

    settings: Settings
    process: int

    @property
    def owes_its_end(self) -> bool:
        """Whether it has spoken for a rank and not said yet that it sends nothing more."""

    def part(self, deadline: Deadline) -> None:
        """Send nothing more, and say so."""


_speakers: weakref.WeakSet[Speaker] = weakref.WeakSet()
# Of clients that were let go of without closing: another may go on in their place, so it is said when all is over.
_forgotten: dict[Hashable, tuple[int, Settings]] = {}
_registered_in = 0
# Where the end said last was not heard.
_unheard: set[str] = set()


def enlist(speaker: Speaker) -> None:
    """Have the end of the interpreter say the end of its rank; call it once a client has been made."""
    global _registered_in
    _speakers.add(speaker)
    if _registered_in != os.getpid():
        _registered_in = os.getpid()
        # What is registered last is called first: before weakref's own end, which closes the connections.
        atexit.register(part_all)
        # A process that multiprocessing has forked ends without the interpreter's end.
        if multiprocessing.parent_process() is not None:
            util.Finalize(None, part_all, exitpriority=0)


def forget(speaker: Speaker) -> None:
    """Take over what a client that nobody has any more would have said. Calls nobody: garbage may be freed anywhere."""
    if speaker.owes_its_end:
        _forgotten[_rank(speaker.settings)] = (speaker.process, speaker.settings)


def part(speaker: Speaker) -> None:
    """Say now that a rank sends nothing more."""
    _forgotten.pop(_rank(speaker.settings), None)
    address, is_owed = speaker.settings.address, speaker.owes_its_end
    deadline = Deadline.after(UNHEARD_SECONDS if address in _unheard else PARTING_SECONDS)
    speaker.part(deadline)
    if is_owed:
        (_unheard.discard if deadline.remaining else _unheard.add)(address)


def part_all() -> None:
    """Say of all ranks that this process has spoken for that they send nothing more."""
    deadline, here = Deadline.after(PARTING_SECONDS), os.getpid()
    for speaker in list(_speakers):
        if speaker.process == here:
            speaker.part(deadline)
    for process, settings in [_forgotten.pop(rank) for rank in list(_forgotten)]:
        if process == here:
            with contextlib.suppress(Missed):
                Connection(settings.address, deadline.seconds).close_run(settings.opening, deadline)


def _rank(settings: Settings) -> Hashable:
    opening = settings.opening
    return settings.address, opening.run, opening.incarnation, opening.rank
