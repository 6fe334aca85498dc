"""The trainer's client: bounds from the sidecar, or, without it, the same bounds computed here."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Unpack

from satwatch.client.asker import Asker
from satwatch.client.batch import BatchFields, read_microbatch, require_step
from satwatch.client.breaker import Backoff
from satwatch.client.canary import Tokens, read_canary_scores
from satwatch.client.measures import Numbers, read_measures
from satwatch.client.origins import Engines
from satwatch.client.parting import enlist, forget, part
from satwatch.client.settings import OnFailure, Settings
from satwatch.client.stats import ClientStats
from satwatch.client.streams import CallerStream
from satwatch.client.tensors import Floats
from satwatch.client.versions import Version, Versions, require_version
from satwatch.sat import ClipBounds
from satwatch.sat.layout import Lengths
from satwatch.types import Routing, Rule, ServerInfo


class Client:
    """A trainer rank's connection to its sidecar; made by :func:`satwatch.connect`.

    Safe with any number of threads; after a fork, the child connects anew; pickled, it travels as its configuration.
    A context manager: leaving it closes it. Closed, it goes on bounding batches as ``on_failure`` says.
    """

    def __init__(self, settings: Settings, backoff: Backoff | None = None) -> None:
        """Make a client; nothing is opened or sent before its first batch."""
        self._settings = settings
        self._backoff = Backoff() if backoff is None else backoff
        # By process: a forked child asks through its own, and leaves its parent's alone.
        self._askers: dict[int, Asker] = {}
        self._closed = False
        weakref.finalize(self, _close_here, self._askers)

    def __reduce__(self) -> tuple[Callable[..., Client], tuple[Settings, Backoff]]:
        return Client, (self._settings, self._backoff)

    def __repr__(self) -> str:
        opening = self._settings.opening
        return (
            f"Client(address={self._settings.address!r}, run={opening.run!r}, rank={opening.rank}, "
            f"world_size={opening.world_size}, on_failure={self._settings.on_failure!r}, "
            f"breaker={self.stats.breaker!r})"
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def rule(self) -> Rule:
        """The rule that its bounds follow."""
        return self._settings.opening.rule

    @property
    def rank(self) -> int:
        """The data-parallel rank that it speaks for."""
        return self._settings.opening.rank

    @property
    def world_size(self) -> int:
        """The ranks of its run."""
        return self._settings.opening.world_size

    @property
    def on_failure(self) -> OnFailure:
        """What a batch gets when the sidecar does not answer."""
        return self._settings.on_failure

    @property
    def stats(self) -> ClientStats:
        """What it has done so far, in this process."""
        return self._here().stats

    def clip_bounds(
        self,
        log_ratio: Floats,
        *,
        mask: Floats | None = None,
        advantage: Floats | None = None,
        sequence_lengths: Lengths | None = None,
        behavior_logprob: Floats | None = None,
        reference_logprob: Floats | None = None,
        policy_version: Version = None,
        behavior_version: Versions = None,
        behavior_engine: Engines = None,
        step: int | None = None,
        microbatch: int | None = None,
        routing: Routing | None = None,
    ) -> ClipBounds:
        """Return the clip interval of every token; :func:`satwatch.sat.clip_bounds` says which.

        Tensors, arrays and lists are taken; numbers are sent in their own dtype (float64, float32, bfloat16 or
        float16), the active tokens only. A field that is left out is unknown to the sidecar, not zero.

        Args:
            log_ratio: d = log pi_train - log mu_rollout, nats: (B, T), where a row is a sequence; flat (N,); or a list
                with one 1-d tensor a sequence, whose bounds come back flat, one sequence after the other. It may carry
                its gradient: the client detaches what it takes.
            mask: the active tokens, in log_ratio's form; non-zero is active; None: all.
            advantage: A, in log_ratio's form, or one a sequence: (B,), (B, 1) or (S,).
            sequence_lengths: for (N,): the tokens of each sequence, adds up to N; needed at sequence level.
            behavior_logprob: log mu, what the rollout engine gave the token, nats, in log_ratio's form.
            reference_logprob: log pi(l), the trainer at the rollout weights, nats, in log_ratio's form.
            policy_version: the version that consumes the tokens: the weights before the update.
            behavior_version: the versions that generated them: one for the batch, one a sequence, or one a token (in
                log_ratio's shape, or one list a sequence). Decimal strings are ints; None, other strings and negative
                numbers are unknown versions.
            behavior_engine: the engines that generated them, by the names that the probe has for them: one for the
                batch, or one a sequence; None is unknown.
            step: the optimizer step; None: the batch stands alone.
            microbatch: its number within rank and step; None: numbered here in the order of the calls. A number that
                comes again is a retry and counts once.
            routing: agreement counts of engine and trainer (MoE).

        Returns:
            The bounds, in log_ratio's shape and on its device, detached. Never NaN, never outside PPO's interval.

        Raises:
            InvalidBatchError: fields that do not fit each other, before anything is sent, whatever ``on_failure`` is.
            SatwatchError: only with ``on_failure="raise"``: why the sidecar's answer is missing.

        Waits for the sidecar no longer than ``timeout``, and not at all while the breaker is open. The tensors' device
        is waited for as far as sending them needs it.
        """
        batch = read_microbatch(
            log_ratio,
            self.rule.level,
            mask=mask,
            advantage=advantage,
            sequence_lengths=sequence_lengths,
            behavior_logprob=behavior_logprob,
            reference_logprob=reference_logprob,
            policy_version=policy_version,
            behavior_version=behavior_version,
            behavior_engine=behavior_engine,
            step=step,
            microbatch=microbatch,
            routing=routing,
        )
        return self._here().bound(batch)

    def submit(self, log_ratio: Floats, **batch: Unpack[BatchFields]) -> Future[ClipBounds]:
        """Return the same as :meth:`clip_bounds` as a future, so that the sidecar works while the trainer does.

        The tensors are copied: the trainer may overwrite them at once. The deadline starts when one of the client's
        two workers takes the batch. On a CUDA device the worker's part runs on a stream of its own.

        Raises:
            InvalidBatchError: at once, not from the future.
        """
        taken = read_microbatch(log_ratio, self.rule.level, **batch).snapshot()
        future = self._here().submit(taken, CallerStream.of(taken.log_ratio))
        # A client that is forgotten ends what is in flight; the future remembers it until then.
        future.add_done_callback(self._outlive)
        return future

    def _outlive(self, future: Future[ClipBounds]) -> None:
        """Do nothing; a reference to this method is one to the client."""

    def publish_version(self, version: int) -> None:
        """Say that the trainer has published a policy version to its engines.

        Returns at once: a worker says it, and a sidecar that was away hears it when the run is opened again. With
        ``on_failure="raise"`` it waits for the answer instead.

        Raises:
            InvalidBatchError: not a version.
            SatwatchError: only with ``on_failure="raise"``: VersionOrderError for a version below the last one, or why
                there is no answer.
        """
        self._here().publish_version(require_version(version))

    def report_canary(
        self, version: int, tokens: Tokens, logprobs: Floats, *, temperature: float = 1.0, top_p: float = 1.0
    ) -> None:
        """Say how the trainer scores the canary with its weights of one version.

        The probe has every engine score the same tokens, and so tells the weights that an engine serves from those that
        it says. Returns at once: a worker says it, and a sidecar that was away hears the latest scores when the run is
        opened again. With ``on_failure="raise"`` it waits for the answer instead.

        Args:
            version: of the weights that scored.
            tokens: the canary, such as :func:`satwatch.client.default_canary`: token ids, a list with one row a
                sequence, or integers (S, T).
            logprobs: log pi of each token, nats: a list with one row a sequence, (S, T - 1), or (S, T), whose first
                column is left out, as a sequence's first token has no log-prob. Any float dtype; it may carry its
                gradient.
            temperature: that the logits were divided by. Engines score at 1, so another value can't be compared.
            top_p: the nucleus that the distribution was cut to; 1 is none.

        Raises:
            InvalidBatchError: fields that do not fit each other, before anything is sent, whatever ``on_failure`` is.
            SatwatchError: only with ``on_failure="raise"``: why there is no answer.

        Reads the log-probs from their device before it returns.
        """
        self._here().report_canary(read_canary_scores(version, tokens, logprobs, temperature, top_p))

    def report(
        self,
        step: int,
        *,
        reward: Numbers | None = None,
        loss: Numbers | None = None,
        response_lengths: Numbers | None = None,
    ) -> None:
        """Say what came of a step on this rank: as sums, so that ranks and steps merge.

        Each field is all the numbers of this call, in a tensor or an array of any shape, a list, a list of these, or a
        number alone; several calls for one step add up. Returns at once: a worker says it, in order, and at most once.
        With ``on_failure="raise"`` it waits for the answer instead.

        Args:
            step: the optimizer step.
            reward: of each response.
            loss: of each microbatch, or whatever the trainer's is a mean over.
            response_lengths: tokens of each response, 0 or more.

        Raises:
            InvalidBatchError: no step, or a field that holds other than numbers; before anything is sent.
            SatwatchError: only with ``on_failure="raise"``: why there is no answer.

        NaN is counted apart. Reads the numbers from their device before it returns.
        """
        number, measures = require_step(step), read_measures(reward, loss, response_lengths)
        if measures:
            self._here().report(number, measures)

    def end_step(self, step: int) -> None:
        """Say that this rank has sent the last batch of a step, which closes once all ranks have.

        It is said after the batches that this process has in flight. Returns at once, as :meth:`report`. Without it a
        step closes with the first message of the next one.

        Raises:
            InvalidBatchError: no step.
            SatwatchError: only with ``on_failure="raise"``: why there is no answer.
        """
        self._here().end_step(require_step(step))

    def server_info(self) -> ServerInfo:
        """Ask the sidecar what it is.

        Raises:
            SatwatchError: no answer within ``timeout``, whatever ``on_failure`` is.
        """
        return self._here().server_info()

    def close(self) -> None:
        """End this rank's part of the run, the connection and the threads. Closing again does nothing.

        What has been reported is said first, for which it waits no longer than ``timeout``. Then the sidecar hears that
        this rank sends nothing more, if it has sent anything from here: half a second at most, in which batches in
        flight may still be answered; then they fall back. Once all ranks have said so, the run has ended. A process
        that ends without closing says so too, unless it is killed.
        """
        self._closed = True
        asker = self._here()
        try:
            asker.finish()
        finally:  # whoever interrupts one of these wants the others all the more
            try:
                part(asker)
            finally:
                asker.close()

    def _here(self) -> Asker:
        """Return this process's asker; of two threads that make one at once, setdefault takes the first's."""
        asker = self._askers.get(os.getpid())
        if asker is None:
            # Of a rank that has spoken in the parent, a forked child is a guest: its end is not the run's.
            is_guest = any(other.has_spoken for other in self._askers.copy().values())
            asker = self._askers.setdefault(os.getpid(), Asker(self._settings, self._backoff, is_guest=is_guest))
            if self._closed:
                asker.close()
            enlist(asker)
        return asker


def _close_here(askers: dict[int, Asker]) -> None:
    """End what this process has opened; a parent's part is not a child's to end."""
    asker = askers.get(os.getpid())
    if asker is not None:
        forget(asker)
        asker.close()
