"""The probe inside the process that embeds its engine: a ``sglang.Engine`` of a trainer's own."""

from __future__ import annotations

import asyncio
import importlib
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from satwatch.probe.inprocess import (
    Tally,
    canary_answer,
    canary_request,
    read_field,
    read_snapshot,
    responses_of,
)
from satwatch.probe.judge import (
    EngineMemory,
    JudgeConfig,
    conclude,
    observe,
    observe_canary,
    observe_canary_failure,
    observe_checksum,
    observe_response,
)
from satwatch.probe.judge.pace import wants_canary, wants_checksum
from satwatch.probe.snapshot import CanaryAnswer, EngineSnapshot
from satwatch.types import Canary, EngineStatus, TrainerFacts, default_canary

if TYPE_CHECKING:
    from satwatch.probe.watcher import Exchange

logger = logging.getLogger(__name__)

PAUSED = "it is paused: a canary would wait for the end of the pause, and this thread with it"
OTHER_THREAD = "another thread asked than the one that attached: it could stop a call of the engine's owner"
# Longer than any engine takes that works; without an end a trainer's loop would wait for one that doesn't.
PATIENCE_SECONDS: Final = 30.0
IN_LOOP = "its event loop runs in this thread: call the method that begins with an a"


class AttachedEngine:
    """An embedded engine that is watched; made by :func:`attach`.

    **Threads.** A ``sglang.Engine`` is not thread-safe: its methods run its event loop in the thread that calls them.
    So nothing here happens in the background. Attach, and call every method, in the thread that owns the engine,
    between its calls. Another thread gets no canary scored and no checksum: the owner's next call could fail of it.
    Where the loop runs already (``await engine.async_generate(...)``), call :meth:`aonce` and :meth:`ascore` from that
    loop. :attr:`status` alone may be read from any thread, at any time.

    **Faults.** No method raises for a fault of the engine, of the sidecar or of the probe: a trainer goes on. The
    status says what is amiss, and the log says it once.

    Attributes:
        name: the engine's, in statuses and metrics.
        facts: what the trainer has said, as of the last exchange.
    """

    def __init__(
        self,
        engine: Any,  # noqa: ANN401 - a sglang.Engine, which is imported nowhere here
        name: str,
        exchange: Exchange | None,
        config: JudgeConfig,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.name = name
        self.facts = TrainerFacts()
        self._engine = engine
        self._exchange = exchange
        self._config = config
        self._clock = clock
        self._wall = wall
        self._memory = EngineMemory.new(name)
        self._tally = Tally()
        self._amiss = ""
        self._thread = threading.get_ident()

    @property
    def status(self) -> EngineStatus:
        """What is known of the engine, as of the last look."""
        now = self._clock()
        memories = {self.name: self._memory}
        return conclude(now, memories, self.facts, self._config, wall=self._wall() - now)[0]

    @property
    def canary(self) -> Canary:
        """The tokens to score: the trainer's, or else the default ones."""
        return self.facts.canary or default_canary()

    @property
    def wants_score(self) -> bool:
        """Whether a canary is due: a version that was not scored yet, or the slow pulse."""
        return wants_canary(self._clock(), self._memory, self.canary, self.facts, self._config)

    def look(self) -> EngineSnapshot:
        """Look at the engine: attributes and shared memory, well below a millisecond; nothing is asked or waited for.

        Returns:
            The snapshot, the same as over HTTP. ``counters`` are those of the responses that :meth:`observe` saw.
        """
        snapshot = read_snapshot(self._engine, self.name, self._tally, self._clock)
        self._memory = observe(self._memory, snapshot, self.facts)
        return snapshot

    def observe(self, outputs: object) -> None:
        """Show the probe finished responses: their ``weight_versions`` are the authority on the version served.

        Args:
            outputs: what ``engine.generate`` returned, one response or any lists of them.
        """
        now = self._clock()
        for meta_info in responses_of(outputs):
            self._tally = self._tally.add(meta_info)
            self._memory = observe_response(self._memory, now, meta_info)

    def score(self) -> CanaryAnswer | None:
        """Have the engine score the canary, now: a prefill of a few hundred tokens, in this thread.

        Returns:
            The scores; None: the engine is paused, or could not score.
        """
        canary = self.canary
        refusal = self._refusal() or self._refusal_to_run()
        if refusal:
            self._scored_not(refusal)
            return None
        begun = self._clock()  # after the look: one that sees a new label first must not make the answer too old for it
        try:
            return self._scored(canary, begun, self._engine.generate(**canary_request(canary)))
        except Exception as error:  # noqa: BLE001 - the edge to somebody's engine, which may raise anything
            self._scored_not(_said(error))
            return None

    async def ascore(self) -> CanaryAnswer | None:
        """Do what :meth:`score` does, where the engine's loop runs already."""
        canary = self.canary
        refusal = self._refusal()
        if refusal:
            self._scored_not(refusal)
            return None
        begun = self._clock()  # after the look: one that sees a new label first must not make the answer too old for it
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                outputs = await self._engine.async_generate(**canary_request(canary))
            return self._scored(canary, begun, outputs)
        except Exception as error:  # noqa: BLE001 - as in score
            self._scored_not(_said(error))
            return None

    def once(self) -> EngineStatus:
        """Do one round: look, score and take the checksum where they are due, and tell the sidecar.

        Call it where the loop of the trainer has time, such as after each update of the weights and each batch.
        """
        self.look()
        if self.wants_score:
            self.score()
        if self._wants_checksum() and not self._refusal_to_run():
            begun = self._clock()
            checksum = read_field(lambda: self._engine.loop.run_until_complete(_checksum(self._engine)))
            self._take_checksum(checksum, begun)
        return self.report()

    async def aonce(self) -> EngineStatus:
        """Do what :meth:`once` does, where the engine's loop runs already; the sidecar is told from another thread."""
        self.look()
        if self.wants_score:
            await self.ascore()
        if self._wants_checksum():
            begun = self._clock()
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    checksum = await _checksum(self._engine)
            except Exception:  # noqa: BLE001 - as in score: an engine without a checksum is one that doesn't tell it
                checksum = None
            self._take_checksum(checksum, begun)
        if self._exchange is not None:
            await asyncio.to_thread(self._tell, self._exchange)
        return self.status

    def report(self) -> EngineStatus:
        """Tell the sidecar what is known, and take what the trainer said.

        Waits for the sidecar no longer than the exchange does. Without an exchange it returns the status alone.
        """
        if self._exchange is not None:
            self._tell(self._exchange)
        return self.status

    def _tell(self, exchange: Exchange) -> None:
        try:
            self.facts = exchange((self.status,))
        except Exception as error:  # noqa: BLE001 - the edge to somebody's exchange: it may not end a trainer
            self._say(f"could not be reported: {_said(error)}")

    def _refusal(self) -> str:
        """Say why no canary is sent: it would never come back, or never come at all."""
        snapshot = self.look()
        return snapshot.problem.message if snapshot.problem else PAUSED if snapshot.is_paused else ""

    def _refusal_to_run(self) -> str:
        """Say why the engine's loop is not to be run from here."""
        if threading.get_ident() != self._thread:
            return OTHER_THREAD
        is_running = hasattr(self._engine, "loop") and read_field(self._engine.loop.is_running)
        return IN_LOOP if is_running else ""

    def _scored(self, canary: Canary, begun: float, outputs: object) -> CanaryAnswer:
        now = self._clock()
        answer = canary_answer(canary, outputs, now, now - begun)
        self._memory = observe_canary(self._memory, canary, answer, self.facts)
        self._amiss = ""
        return answer

    def _scored_not(self, why: str) -> None:
        self._memory = observe_canary_failure(self._memory, self._clock(), why)
        self._say(f"did not score the canary: {why}")

    def _wants_checksum(self) -> bool:
        return wants_checksum(self._clock(), self._memory, self._config)

    def _take_checksum(self, checksum: str | None, begun: float) -> None:
        now = self._clock()
        self._memory = observe_checksum(self._memory, now, checksum, now - begun)

    def _say(self, what: str) -> None:
        """Log what is amiss, when it is new."""
        if what != self._amiss:
            self._amiss = what
            logger.warning("%s %s", self.name, what)


def attach(
    engine: Any,  # noqa: ANN401 - a sglang.Engine, which is imported nowhere here
    *,
    name: str = "engine",
    exchange: Exchange | None = None,
    config: JudgeConfig | None = None,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> AttachedEngine:
    """Attach the probe to an engine in this process.

    Args:
        engine: a ``sglang.Engine``; it is read, asked to score canaries, and never changed.
        name: what to call it in statuses and metrics: 1 to 200 printable characters.
        exchange: takes the statuses and returns what the trainer said, such as a
            :class:`satwatch.client.EngineReporter`; None: nobody is told, and no version is known to be published.
        config: how to judge; None: the defaults.
        clock: seconds, never set back; the same that the exchange's facts are on.
        wall: Unix time in seconds.

    Returns:
        The attached engine. It holds no thread, socket or file of its own: there is nothing to close.

    Raises:
        InvalidBatchError: a name that can't be one.

    ::

        # A period is the longest time between two rounds: after three of silence the sidecar knows nothing any more.
        reporter = EngineReporter("127.0.0.1:4820", run="my-run", probe="trainer", period_seconds=60.0)
        attached = attach(engine, exchange=reporter)
        outputs = engine.generate(prompts, sampling_params)
        attached.observe(outputs)
        attached.once()
    """
    EngineStatus(name)  # refuses what can't be a label
    return AttachedEngine(engine, name, exchange, JudgeConfig() if config is None else config, clock, wall)


async def _checksum(engine: Any) -> str | None:  # noqa: ANN401
    """Return the checksum of an engine's weights; it reads them, and changes nothing."""
    # By name and late: satwatch needs no sglang, and an engine brings its own.
    request = importlib.import_module("sglang.srt.managers.io_struct").CheckWeightsReqInput(action="checksum")
    success, _, _, checksum = await engine.tokenizer_manager.check_weights(request, None)
    return checksum if success and isinstance(checksum, str) else None


def _said(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"TimeoutError: no answer within {PATIENCE_SECONDS:g} s"
    return f"{type(error).__name__}: {error}"[:300]
