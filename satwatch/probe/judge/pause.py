"""Whether an engine that says it is paused is paused.

SGLang's ``/ready`` has one answer for two things: it is paused, or it calls itself unhealthy. The second begins when
somebody calls ``/health`` during a pause, and stays when the pause is over, until a later ``/health`` succeeds; all
that time the engine serves. What it does then gives it away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from satwatch.probe.judge.versions import LOOKS_TO_ACCUSE
from satwatch.probe.snapshot import EngineSnapshot

# A pause that began during a look leaves one last stamp, a moment newer. An engine at work stamps all the time.
_LEAST_MOVED: Final = 0.5


@dataclass(frozen=True, slots=True)
class PauseMemory:
    """What was seen of an engine that says it is paused.

    Attributes:
        is_said: whether the last look said so.
        signs: looks that showed work all the same; enough of them, and it is not believed.
    """

    is_said: bool = False
    signs: int = 0

    @property
    def is_disbelieved(self) -> bool:
        """Whether the engine is taken to serve, whatever it says."""
        return self.is_said and self.signs >= LOOKS_TO_ACCUSE


def see_pause(was: PauseMemory, last: EngineSnapshot | None, snapshot: EngineSnapshot) -> PauseMemory:
    """Take in a look of the same process.

    Its load stamps stand still while it is paused in place or by retracting: then it is believed. Paused by aborting,
    which is SGLang's default, its scheduler goes on stamping with nothing to do. So stamps that moved on disprove a
    pause at once only where requests run at both looks; where it counted more output tokens, twice in a row, for a
    request that a pause cut off may be counted late. Once disproved it stays so while stamps move on, until requests
    are held and none runs.
    """
    if not snapshot.is_paused:
        return PauseMemory()
    if last is None or not was.is_said:
        return PauseMemory(True)
    if not _moved_on(last, snapshot):
        return PauseMemory(True)
    if last.load.running and snapshot.load.running:
        return PauseMemory(True, LOOKS_TO_ACCUSE)
    if _has_made(last, snapshot):
        return PauseMemory(True, was.signs + 1)
    is_held = snapshot.load.open_requests and not snapshot.load.running
    return PauseMemory(True, 0 if is_held or was.signs < LOOKS_TO_ACCUSE else was.signs)


def _moved_on(last: EngineSnapshot, snapshot: EngineSnapshot) -> bool:
    """Tell whether the stamps moved by most of the time between two looks; without stamps nothing is known."""
    stamps = last.load.stamps, snapshot.load.stamps
    return all(stamps) and max(stamps[1]) - max(stamps[0]) > _LEAST_MOVED * (snapshot.at - last.at) > 0


def _has_made(last: EngineSnapshot, snapshot: EngineSnapshot) -> bool:
    was, now = last.counters.generated_tokens, snapshot.counters.generated_tokens
    return was is not None and now is not None and now > was
