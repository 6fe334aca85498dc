"""An engine as the probe found it, and canaries: what trainer and probe tell each other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Final, Literal, TypeAlias, get_args

from satwatch.errors import InvalidBatchError, required
from satwatch.types.batch import UINT32_MAX, PackedFloats
from satwatch.types.rule import is_number
from satwatch.types.runs import check_run_name

EngineState: TypeAlias = Literal["serving", "lagging", "wrong_weights", "paused", "unknown"]
EngineKind: TypeAlias = Literal["sglang", "vllm"]
FindingKind: TypeAlias = Literal[
    "canary_differs",
    "canary_not_comparable",
    "canary_older_version",
    "checksum_differs",
    "engines_disagree",
    "label_differs",
    "label_only",
    "left_behind",
    "restarted",
    "version_ahead",
]

MAX_ENGINE_NAME: Final = 200
# A canary is a few hundred tokens: more tells nothing more, and costs the engine.
MAX_CANARY_SEQUENCES: Final = 64
MAX_CANARY_TOKENS: Final = 16_384

_CANARY_COUNT: Final = 4
_CANARY_LENGTH: Final = 32
# Ids below are often special tokens; ids from here on are in any vocabulary of bytes.
_CANARY_LOW: Final = 10
_CANARY_HIGH: Final = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """Something amiss with one engine.

    Attributes:
        kind: what, in one word of a fixed list (docs/probe.md).
        message: a sentence with the versions and figures.
    """

    kind: FindingKind
    message: str


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """What is known of one engine; None is unknown, and nothing here stands for anything else.

    Attributes:
        engine: its name, the value of the label ``engine``.
        state: ``serving``; ``lagging`` behind the published version; ``wrong_weights``: the canary says so;
            ``paused``; ``unknown``: it can't be looked at, and every other field but ``reason`` may be None.
        reason: why the state, in a sentence; empty when serving.
        kind: which engine it is.
        release: its release, as it says.
        seen_at: when it last answered, Unix time in seconds.
        version_label: what it calls its weights, as text.
        version_labelled: the same as a version.
        version_served: the version that generated its latest response, or else the label's.
        version_published: the trainer's latest.
        version_canary: the version whose trainer scores its canary equals.
        version_lag: version_published - version_served, 0 or more.
        weight_age_seconds: since the weights served were published, or, where that isn't known, since it took them.
        sync_seconds: from the publishing of the version served to its first sight in this engine, within one look.
        requests_running: requests being generated.
        requests_waiting: requests that wait.
        queue_seconds: mean time in the queue of the requests that left it between the last two looks.
        drain_seconds: time to finish what runs and waits, at the present throughput.
        generation_tokens_per_second: present throughput.
        version_lag_generation_expected: N_PQS, versions published between a token and the end of its response, to
            expect of this engine's responses, mean over tokens: from its present speed, its responses' lengths and the
            trainer's pace (:func:`satwatch.probe.forecast.forecast_from_engines`).
        canary_log_ratio_abs_mean: mean abs(log pi - log mu) over the canary's tokens at equal versions, nats.
        canary_log_ratio_abs_max: the largest.
        canary_version: the version that both were scored at.
        checksum: of its weights, as it says.
        findings: what is amiss.
        looks: times it was looked at.
        failed_looks: times it gave no usable answer.
        canary_requests: sequences that it was asked to score.
        version_changes: times that the version served was seen to change.
    """

    engine: str
    state: EngineState = "unknown"
    reason: str = ""
    kind: EngineKind | None = None
    release: str | None = None
    seen_at: float | None = None
    version_label: str | None = None
    version_labelled: int | None = None
    version_served: int | None = None
    version_published: int | None = None
    version_canary: int | None = None
    version_lag: int | None = None
    weight_age_seconds: float | None = None
    sync_seconds: float | None = None
    requests_running: int | None = None
    requests_waiting: int | None = None
    queue_seconds: float | None = None
    drain_seconds: float | None = None
    generation_tokens_per_second: float | None = None
    version_lag_generation_expected: float | None = None
    canary_log_ratio_abs_mean: float | None = None
    canary_log_ratio_abs_max: float | None = None
    canary_version: int | None = None
    checksum: str | None = None
    findings: tuple[Finding, ...] = ()
    looks: int = 0
    failed_looks: int = 0
    canary_requests: int = 0
    version_changes: int = 0

    def __post_init__(self) -> None:
        check_engine_name(self.engine)
        if self.state not in get_args(EngineState):
            allowed = ", ".join(get_args(EngineState))
            raise InvalidBatchError(required("engine.state", repr(self.state), f"one of {allowed}"))


STATUS_FIELDS: Final = tuple(f.name for f in fields(EngineStatus))


def check_engine_name(name: object) -> None:
    """Refuse an engine name that can't be a label.

    Raises:
        InvalidBatchError: not a string, empty, longer than 200 characters, or with control characters.
    """
    _check_name("engine", name)


def _check_name(field: str, name: object) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_ENGINE_NAME or not name.isprintable():
        wanted = f"a name of 1 to {MAX_ENGINE_NAME} printable characters"
        raise InvalidBatchError(required(field, repr(name)[:80], wanted))


@dataclass(frozen=True, slots=True)
class Canary:
    """A small fixed set of token sequences that engine and trainer both score.

    Attributes:
        sequences: token ids, two or more a sequence; a sequence's first token has no log-prob.

    Raises:
        InvalidBatchError: no sequence, too many, or one that can't be scored.
    """

    sequences: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        count = len(self.sequences)
        if not 1 <= count <= MAX_CANARY_SEQUENCES:
            raise InvalidBatchError(required("canary", f"{count} sequences", f"1 to {MAX_CANARY_SEQUENCES}"))
        for i, sequence in enumerate(self.sequences):
            if len(sequence) < 2:
                raise InvalidBatchError(required(f"canary[{i}]", f"{len(sequence)} tokens", "2 or more"))
            if not all(0 <= token <= UINT32_MAX for token in sequence):
                raise InvalidBatchError(required(f"canary[{i}]", f"token {min(sequence)}", "token ids, 0 or more"))
        tokens = sum(map(len, self.sequences))
        if tokens > MAX_CANARY_TOKENS:
            raise InvalidBatchError(required("canary", f"{tokens} tokens", f"at most {MAX_CANARY_TOKENS}"))

    @classmethod
    def of(cls, sequences: Iterable[Iterable[int]]) -> Canary:
        """Make one of any sequences of ints."""
        return cls(tuple(tuple(int(token) for token in sequence) for sequence in sequences))

    @property
    def scored(self) -> int:
        """The tokens that have a log-prob: all but each sequence's first."""
        return sum(len(sequence) - 1 for sequence in self.sequences)


def default_canary(vocab_size: int | None = None) -> Canary:
    """Return the canary that trainer and probe use where none is given.

    Four sequences of 32 ids from 10 to 199, which every vocabulary has and no special token takes the place of; by a
    formula, so that it is the same on every machine and in every release.

    Args:
        vocab_size: the model's; ids stay below it. None: 200 or more, as any real model has.

    Raises:
        InvalidBatchError: a vocabulary too small to choose from.

    >>> default_canary().sequences[0][:6]
    (159, 49, 125, 54, 143, 129)
    """
    size = _CANARY_HIGH if vocab_size is None else min(vocab_size, _CANARY_HIGH)
    if size < _CANARY_LOW + 2:
        raise InvalidBatchError(required("vocab_size", vocab_size, f"{_CANARY_LOW + 2} or more"))
    ids, x = [], 1
    for _ in range(_CANARY_COUNT * _CANARY_LENGTH):
        x = (75 * x + 74) % 65_537  # Lehmer's rule, as the ZX81 had it: every x from 0 to 65535 once
        ids.append(_CANARY_LOW + x % (size - _CANARY_LOW))
    return Canary(tuple(tuple(ids[i : i + _CANARY_LENGTH]) for i in range(0, len(ids), _CANARY_LENGTH)))


@dataclass(frozen=True, slots=True)
class CanaryScores:
    """A canary's log-probs under one version of the trainer's weights.

    Attributes:
        canary: the tokens.
        version: of the weights that scored them.
        logprobs: log pi of every token but each sequence's first, nats, sequence after sequence.
        temperature: that the logits were divided by; an engine's prompt log-probs are always those of 1.
        top_p: the nucleus that the distribution was cut to; 1 is none.

    Raises:
        InvalidBatchError: another number of log-probs, or a temperature or top_p that can't be meant.
    """

    canary: Canary
    version: int
    logprobs: PackedFloats = field(repr=False)
    temperature: float = 1.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.version < 0:
            raise InvalidBatchError(required("version", self.version, "0 or more"))
        if len(self.logprobs) != self.canary.scored:
            wanted = f"{self.canary.scored}, one a token but each sequence's first"
            raise InvalidBatchError(required("logprobs", f"{len(self.logprobs)} values", wanted))
        if not (is_number(self.temperature) and 0 < self.temperature < math.inf):
            raise InvalidBatchError(required("temperature", self.temperature, "a finite number above 0"))
        if not (is_number(self.top_p) and 0 < self.top_p <= 1):
            raise InvalidBatchError(required("top_p", self.top_p, "a number inside (0, 1]"))

    @property
    def is_comparable(self) -> bool:
        """Whether an engine's prompt log-probs are of the same distribution."""
        return self.temperature == 1 and self.top_p == 1


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """A version that the trainer has published to its engines.

    Attributes:
        version: the version.
        at: when, on the clock of whoever holds this value, seconds; on the wire it is an age.
    """

    version: int
    at: float


@dataclass(frozen=True, slots=True)
class TrainerFacts:
    """What a run's trainer has told that the probe needs.

    Attributes:
        run: the run; empty when no run could be told to be the engines'.
        published: the latest versions published, oldest first.
        canaries: the trainer's scores, one a version, oldest version first, all of one canary.
    """

    run: str = ""
    published: tuple[PublishedVersion, ...] = ()
    canaries: tuple[CanaryScores, ...] = ()

    @property
    def version_published(self) -> int | None:
        """The latest version published."""
        return self.published[-1].version if self.published else None

    @property
    def canary(self) -> Canary | None:
        """The tokens that the trainer scores."""
        return self.canaries[-1].canary if self.canaries else None

    def published_at(self, version: int) -> float | None:
        """Return when a version was published."""
        return next((published.at for published in self.published if published.version == version), None)

    def scores_of(self, version: int) -> CanaryScores | None:
        """Return the trainer's scores at a version."""
        return next((scores for scores in self.canaries if scores.version == version), None)


@dataclass(frozen=True, slots=True)
class EnginesReport:
    """One round of a probe that runs beside its engines.

    Attributes:
        probe: its name, which tells it from others.
        engines: all engines that it watches, each once.
        period_seconds: until it reports again.
        run: the run that the engines serve; empty: the only one that has published a version or scored a canary.

    Raises:
        ConfigError: a run name that can't be meant.
        InvalidBatchError: another name or a period that can't be meant, or an engine that comes twice.
    """

    probe: str
    engines: tuple[EngineStatus, ...]
    period_seconds: float
    run: str = ""

    def __post_init__(self) -> None:
        if self.run:
            check_run_name(self.run)
        _check_name("probe", self.probe)
        if not (is_number(self.period_seconds) and 0 < self.period_seconds < math.inf):
            raise InvalidBatchError(required("period_seconds", self.period_seconds, "finite seconds above 0"))
        names = [status.engine for status in self.engines]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidBatchError(required("engines", f"{twice!r} twice", "each engine once"))
