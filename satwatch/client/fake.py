"""A client for users' own tests: scripted, without a sidecar, a network or a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, TypeAlias, Unpack

from satwatch.client.batch import BatchFields, Microbatch, read_microbatch, require_step
from satwatch.client.canary import Tokens, read_canary_scores
from satwatch.client.fallback import local_bounds, nominal_bounds
from satwatch.client.measures import Numbers, read_measures
from satwatch.client.stats import ClientStats, Numbering, Tally
from satwatch.client.tensors import Floats
from satwatch.client.versions import require_version
from satwatch.errors import InvalidBatchError
from satwatch.sat import ClipBounds
from satwatch.types import CanaryScores, Rule, ServerInfo, StepReport

Outcome: TypeAlias = ClipBounds | Exception | Literal["local", "nominal"]
Entry: TypeAlias = Outcome | Callable[[Microbatch], Outcome]

_SERVER = ServerInfo("fake", "cpu", 64 * 2**20, 8 * 2**20, "", 0.0)


@dataclass(frozen=True, slots=True)
class Call:
    """One batch that a fake was asked to bound.

    Attributes:
        batch: the batch, read and checked as the client does.
        submitted: whether it came through ``submit``.
    """

    batch: Microbatch
    submitted: bool


class FakeClient:
    """Answers from a script, and remembers what it was asked.

    An entry of the script is what one batch gets: a :class:`satwatch.sat.ClipBounds`; ``"local"`` or ``"nominal"``, as
    if the sidecar had not answered; an exception, which is raised; or a function of the batch that returns one of
    these.
    Batches beyond the script get the right bounds, as a sidecar in good health would give.

    Attributes:
        rule: the rule that its bounds follow.
        calls: what it was asked, in order.
        published: the versions that were published, in order.
        canaries: the canary's scores that were reported, in order.
        reports: what was reported of steps, in order, as sums; the run is called ``fake``.
        ended: the steps that were ended, in order.
        closed: whether it was closed.

    >>> import torch
    >>> fake = FakeClient(["nominal"])
    >>> bounds = fake.clip_bounds(torch.tensor([0.1] * 9 + [-0.3]), step=3)
    >>> bool(bounds.gate.any()), fake.stats.bounds_from_fallback, fake.calls[0].batch.step
    (False, 1, 3)
    """

    def __init__(self, script: Iterable[Entry] = (), *, rule: Rule | None = None) -> None:
        """Make a fake.

        Args:
            script: what the batches get, in order.
            rule: the rule that its bounds follow; None: the default.
        """
        self.rule = Rule() if rule is None else rule
        self.calls: list[Call] = []
        self.published: list[int] = []
        self.canaries: list[CanaryScores] = []
        self.reports: list[StepReport] = []
        self.ended: list[int] = []
        self.closed = False
        self._script = iter(script)
        self._tally = Tally()
        self._numbering = Numbering()

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def stats(self) -> ClientStats:
        """What it has done so far; each answer took 0 seconds."""
        return self._tally.read("closed", _SERVER)

    def clip_bounds(self, log_ratio: Floats, **batch: Unpack[BatchFields]) -> ClipBounds:
        """Return what the script says.

        Raises:
            InvalidBatchError: fields that do not fit each other, as the client does; the script does not move on.
            Exception: the script's.
        """
        return self._answer(log_ratio, batch, submitted=False)

    def submit(self, log_ratio: Floats, **batch: Unpack[BatchFields]) -> Future[ClipBounds]:
        """Return the same as a future that is done.

        Raises:
            InvalidBatchError: at once, not from the future.
        """
        future: Future[ClipBounds] = Future()
        try:
            future.set_result(self._answer(log_ratio, batch, submitted=True))
        except InvalidBatchError:
            raise
        except Exception as error:  # noqa: BLE001 - the script's exception, whatever it is, is the future's
            future.set_exception(error)
        return future

    def publish_version(self, version: int) -> None:
        """Remember a version.

        Raises:
            InvalidBatchError: not a version.
        """
        self.published.append(require_version(version))

    def report_canary(
        self, version: int, tokens: Tokens, logprobs: Floats, *, temperature: float = 1.0, top_p: float = 1.0
    ) -> None:
        """Remember the canary's scores.

        Raises:
            InvalidBatchError: fields that do not fit each other, as the client does.
        """
        self.canaries.append(read_canary_scores(version, tokens, logprobs, temperature, top_p))
        self._tally.canary(heard=True)

    def report(
        self,
        step: int,
        *,
        reward: Numbers | None = None,
        loss: Numbers | None = None,
        response_lengths: Numbers | None = None,
    ) -> None:
        """Remember what came of a step.

        Raises:
            InvalidBatchError: no step, or a field that holds other than numbers, as the client does.
        """
        number, measures = require_step(step), read_measures(reward, loss, response_lengths)
        if measures:
            self.reports.append(StepReport("fake", number, measures=measures))
            self._tally.report(heard=True)

    def end_step(self, step: int) -> None:
        """Remember that a step has ended.

        Raises:
            InvalidBatchError: no step.
        """
        self.ended.append(require_step(step))
        self._tally.report(heard=True)

    def server_info(self) -> ServerInfo:
        """Return a made-up sidecar's."""
        return _SERVER

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True

    def _answer(self, log_ratio: Floats, fields: BatchFields, *, submitted: bool) -> ClipBounds:
        batch = read_microbatch(log_ratio, self.rule.level, **fields)
        self.calls.append(Call(batch.snapshot(), submitted))
        entry = next(self._script, None)
        outcome = entry(batch) if callable(entry) else entry
        if isinstance(outcome, Exception):
            self._tally.raised("unavailable")
            raise outcome
        if outcome == "local" or outcome == "nominal":
            self._tally.fell_back("unavailable")
            return local_bounds(batch, self.rule) if outcome == "local" else nominal_bounds(batch.log_ratio, self.rule)
        self._tally.answered(0.0)
        return local_bounds(batch, self.rule) if outcome is None else outcome
