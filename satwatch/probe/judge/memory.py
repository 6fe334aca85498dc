"""What is remembered of one engine from one observation to the next.

Values in, values out: the probe's edges look, score and keep the time, and hand what came to the functions here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from satwatch.probe.judge.book import Recall, open_book
from satwatch.probe.judge.canary import distance
from satwatch.probe.judge.pause import PauseMemory, see_pause
from satwatch.probe.judge.restart import Counted, count, restart
from satwatch.probe.judge.stale import Proof, Standstill, keep, prove, stand
from satwatch.probe.judge.versions import (
    VersionHistory,
    canonical,
    has_fallen,
    label_of_response,
    recall_publishing,
    see_answer,
    see_label,
    see_response,
    version_of,
)
from satwatch.probe.snapshot import CanaryAnswer, EngineSnapshot, Problem
from satwatch.types import Canary, CanaryScores, TrainerFacts, default_canary

if TYPE_CHECKING:
    from satwatch.probe.judge.evidence import Evidence

# One slow answer is a busy engine; the quickest of so many is what a look costs it.
LOOKS_TIMED: Final = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """An engine's scores of a canary under one label."""

    label: str
    at: float
    logprobs: tuple[float, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class CanaryMemory:
    """The canaries that one process of an engine was asked to score.

    Attributes:
        canary: the tokens asked last.
        answer: the latest scores of the version served.
        before: the latest scores under another label before that.
        noise: what two answers of one label differed by last, mean nats: the engine's own; 0: not known, or none.
        trainer: the trainer's scores of the version served, kept when the trainer's history has moved on.
        proof: that its weights are another version's; it stands until the scores change or the label falls.
        standstill: for how many labels the scores have stood still.
        is_compared: whether ``answer`` was compared with the trainer's scores of its version.
        asked_at: when the last came back, with scores or without.
        sequences: how many were asked for.
        failures: in a row.
        weighed: what was concluded from all this; no part of the value.
    """

    canary: Canary | None = None
    answer: Answer | None = None
    before: Answer | None = None
    noise: float = 0.0
    trainer: CanaryScores | None = None
    proof: Proof | None = None
    standstill: Standstill | None = None
    is_compared: bool = False
    asked_at: float | None = None
    sequences: int = 0
    failures: int = 0
    weighed: Recall[Evidence] = field(default_factory=Recall, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ChecksumMemory:
    """The checksums of an engine's weights.

    Attributes:
        value: the latest; None: not granted.
        label: the label that it was taken under.
        at: when it came.
        took: how long it took, seconds.
        is_settled: whether a later look saw the same label still: a label can come after its weights.
        before: the latest settled one under another label, and that label.
    """

    value: str | None = None
    label: str | None = None
    at: float | None = None
    took: float = 0.0
    is_settled: bool = False
    before: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Everything remembered of one engine; opaque to those who only pass it on.

    Attributes:
        engine: its name.
        last: the last look that succeeded; ``before``: the one before it, of the same process. Their ``is_paused`` is
            what is believed of what the engine said.
        first: the first look at this process.
        problem: why the last look failed; None: it did not.
        looked_at: when the last look ended.
        took: how long the latest looks took that succeeded.
        looks: how many there were, and so ``failed_looks`` and ``canary_requests``, over all its processes.
        failures: failed looks in a row.
        past_changes: version changes of earlier processes.
        pause: how far what it says of a pause is believed.
        counted: the latest figure that each of its counters had.
        restarted_at: when it was seen to have restarted; ``restarted_why``: by what.
    """

    engine: str
    last: EngineSnapshot | None = None
    before: EngineSnapshot | None = None
    first: EngineSnapshot | None = None
    problem: Problem | None = None
    looked_at: float | None = None
    took: tuple[float, ...] = ()
    looks: int = 0
    failed_looks: int = 0
    canary_requests: int = 0
    failures: int = 0
    past_changes: int = 0
    restarted_at: float | None = None
    restarted_why: str = ""
    pause: PauseMemory = field(default_factory=PauseMemory)
    counted: Counted = ()
    versions: VersionHistory = field(default_factory=VersionHistory)
    canary: CanaryMemory = field(default_factory=CanaryMemory)
    checksum: ChecksumMemory = ChecksumMemory()

    @classmethod
    def new(cls, engine: str) -> EngineMemory:
        """Remember nothing of an engine yet."""
        return cls(engine)

    @property
    def is_known(self) -> bool:
        """Whether the last look succeeded."""
        return self.last is not None and self.problem is None

    @property
    def answer(self) -> Answer | None:
        """The engine's scores of the version that it serves."""
        answer = self.canary.answer
        return answer if answer is not None and answer.label == self.versions.served else None


def observe(memory: EngineMemory, snapshot: EngineSnapshot, facts: TrainerFacts) -> EngineMemory:
    """Take in a look."""
    memory = replace(memory, looks=memory.looks + 1, looked_at=snapshot.at)
    if snapshot.problem is not None:
        return replace(
            memory, problem=snapshot.problem, failed_looks=memory.failed_looks + 1, failures=memory.failures + 1
        )
    was_away = memory.problem is not None
    why = restart(memory.first, memory.last, memory.counted, snapshot, was_away=was_away)
    if why:
        memory = _forget(memory, snapshot.at, why)
    versions = see_label(memory.versions, snapshot.at, snapshot.took, snapshot.version_label)
    versions = recall_publishing(versions, facts)
    pause = see_pause(memory.pause, memory.last, snapshot)
    return replace(
        memory,
        last=replace(snapshot, is_paused=False) if pause.is_disbelieved else snapshot,
        before=memory.last,
        first=memory.first or snapshot,
        problem=None,
        failures=0,
        took=(*memory.took, snapshot.took)[-LOOKS_TIMED:],
        pause=pause,
        counted=count(memory.counted, snapshot.counters),
        versions=versions,
        canary=_keep_trainer(_compare(memory.canary, facts), versions, facts),
        checksum=_settle(memory.checksum, versions, snapshot),
    )


def observe_canary(memory: EngineMemory, canary: Canary, answer: CanaryAnswer, facts: TrainerFacts) -> EngineMemory:
    """Take in scores of a canary.

    They are of no use where their version changed while they were made: where they name none, where they were asked for
    before the version served was first seen, or where their count is not the canary's. The responses' version counts.
    """
    versions = see_answer(memory.versions, answer.at, answer.took, answer.version_label)
    count, label, begun = len(canary.sequences), canonical(answer.version_label), answer.at - answer.took
    memory = replace(
        memory, versions=recall_publishing(versions, facts), canary_requests=memory.canary_requests + count
    )
    is_settled = label is not None and label == versions.served and begun >= versions.served_at
    if label is None or not is_settled or len(answer.logprobs) != canary.scored:
        # As a failure: what is of no use must not be asked for every second.
        unused = _asked(memory.canary, answer.at, count, failures=memory.canary.failures + 1)
        return replace(memory, canary=unused)
    asked = _asked(_compare(memory.canary, facts), answer.at, count, failures=0)
    scored = _scored(asked, canary, Answer(label, answer.at, answer.logprobs))
    return replace(memory, canary=_compare(_keep_trainer(scored, versions, facts), facts))


def observe_canary_failure(memory: EngineMemory, now: float, message: str) -> EngineMemory:
    """Take in that a canary came to nothing; ``message`` says why, for whoever logs it. It may have cost as much."""
    asked = memory.canary
    count = len((asked.canary or default_canary()).sequences)
    failed = _asked(asked, now, count, failures=asked.failures + 1)
    return replace(memory, canary=failed, canary_requests=memory.canary_requests + count)


def observe_checksum(memory: EngineMemory, now: float, checksum: str | None, took: float) -> EngineMemory:
    """Take in a checksum; None: it is not granted, not there, or could not be had."""
    was, versions = memory.checksum, memory.versions
    if now - took < versions.served_at:
        return replace(memory, checksum=replace(was, at=now, took=took))  # of which version, can't be told
    before = was.before
    if was.is_settled and was.value is not None and was.label is not None and was.label != versions.served:
        before = (was.label, was.value)
    return replace(memory, checksum=ChecksumMemory(checksum, versions.served, now, took, False, before))


def observe_response(memory: EngineMemory, now: float, meta_info: Mapping[str, Any]) -> EngineMemory:
    """Take in a finished response of anybody's: the version that it ends with is the engine's at that time."""
    return replace(memory, versions=see_response(memory.versions, now, label_of_response(meta_info)))


def _asked(canary: CanaryMemory, at: float, count: int, failures: int) -> CanaryMemory:
    return replace(canary, asked_at=at, sequences=canary.sequences + count, failures=failures)


def _scored(memory: CanaryMemory, canary: Canary, answer: Answer) -> CanaryMemory:
    """File an answer: it replaces its own version's, and the other version's becomes the one before."""
    was, version = memory.answer, version_of(answer.label)
    if canary != memory.canary or was is None:
        begun = None if version is None else Standstill(answer.logprobs)
        kept = replace(memory, before=None, noise=0.0, trainer=None) if canary != memory.canary else memory
        return replace(kept, canary=canary, answer=answer, proof=None, standstill=begun, is_compared=False)
    is_repeated = was.label == answer.label
    # The noise measured under the earlier version is the best known until this one is repeated.
    moved = distance(answer.logprobs, was.logprobs) if is_repeated else None
    noise = memory.noise if moved is None else moved.abs_mean
    # A label that fell is a trainer that counts anew: its versions mean other weights.
    is_anew = version is None or has_fallen(was.label, answer.label)
    stood = None if is_anew else memory.standstill
    return replace(
        memory,
        answer=answer,
        before=memory.before if is_repeated else was,
        noise=noise,
        proof=None if is_anew else keep(memory.proof, answer.logprobs),
        standstill=stand(stood, answer.logprobs, memory.noise, is_new_label=not is_repeated),
        is_compared=False,
    )


def _compare(memory: CanaryMemory, facts: TrainerFacts) -> CanaryMemory:
    """Compare an answer once with the trainer's scores of its version, which may come when the label has moved on."""
    answer = memory.answer
    version = None if answer is None else version_of(answer.label)
    if answer is None or version is None or memory.is_compared:
        return memory
    claimed = facts.scores_of(version)
    if claimed is None or claimed.canary != memory.canary or not claimed.is_comparable:
        return memory
    page, standstill = open_book(facts.canaries).page(memory.canary), memory.standstill
    if memory.proof is not None:
        page = page.with_kept(memory.proof.scores)
    if standstill is not None and standstill.trainer is None:
        standstill = replace(standstill, trainer=claimed)
    return replace(memory, proof=prove(page, claimed, answer.logprobs), standstill=standstill, is_compared=True)


def _keep_trainer(canary: CanaryMemory, versions: VersionHistory, facts: TrainerFacts) -> CanaryMemory:
    version, kept = versions.version_served, canary.trainer
    told = None if version is None else facts.scores_of(version)
    if told is None and kept is not None and kept.version == version and facts.canary in (None, kept.canary):
        return canary
    return canary if told == kept else replace(canary, trainer=told)


def _settle(checksum: ChecksumMemory, versions: VersionHistory, snapshot: EngineSnapshot) -> ChecksumMemory:
    if checksum.is_settled or checksum.at is None or checksum.value is None:
        return checksum
    if snapshot.at - snapshot.took < checksum.at:
        return checksum
    if checksum.label == versions.served:
        return replace(checksum, is_settled=True)
    return replace(checksum, value=None, label=None)


def _forget(memory: EngineMemory, at: float, why: str) -> EngineMemory:
    """Begin again with a new process: nothing of the old one's is measured against it."""
    return EngineMemory(
        memory.engine,
        looked_at=at,
        looks=memory.looks,
        failed_looks=memory.failed_looks,
        canary_requests=memory.canary_requests,
        past_changes=memory.past_changes + memory.versions.changes,
        restarted_at=at,
        restarted_why=why,
    )
