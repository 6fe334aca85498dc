"""Asks the sidecar on behalf of one process, and falls back: the client's edge."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Final

from satwatch import wire
from satwatch.client.batch import Microbatch
from satwatch.client.breaker import Backoff
from satwatch.client.connection import Connection
from satwatch.client.deadline import Deadline
from satwatch.client.fallback import local_bounds, nominal_bounds
from satwatch.client.link import Link
from satwatch.client.misses import Missed, MissKind
from satwatch.client.reply import accept
from satwatch.client.reports import Reports
from satwatch.client.settings import Settings
from satwatch.client.stats import ClientStats, Numbering, Tally
from satwatch.client.streams import CallerStream
from satwatch.client.workers import Errand, Workers
from satwatch.errors import OverloadedError, UnavailableError, UnknownRunError, VersionOrderError, required
from satwatch.sat import ClipBounds, Scores, score_batch
from satwatch.types import BoundsReply, BoundsRequest, CanaryScores, ServerInfo, StepReport, Total

logger = logging.getLogger("satwatch")

# Misses that leave the breaker closed and may come with every batch: the first of a kind is logged.
_LOGGED_ONCE: Final[frozenset[MissKind]] = frozenset({"client", "fork", "invalid_batch", "too_large"})
# Misses of a canary that the breaker's warning or the caller's own doing explains.
_EXPLAINED: Final[frozenset[MissKind]] = frozenset({"closed", "deadline", "fork", "open", "unavailable"})


class Asker:
    """One process's part of a client; for any number of threads.

    Attributes:
        settings: of its client.
        process: the process that it is in.
    """

    def __init__(self, settings: Settings, backoff: Backoff, *, is_guest: bool = False) -> None:
        """Make it; nothing is opened or started before the first batch.

        Args:
            settings: of its client.
            backoff: when an open breaker is probed.
            is_guest: another process speaks for this rank, and it is that one's to say when it has ended.
        """
        self.settings = settings
        self.process = os.getpid()
        self._is_guest = is_guest
        self._has_parted = False
        self._parting = threading.RLock()
        self._tally = Tally()
        self._numbering = Numbering()
        self._workers = Workers()
        # A worker of their own: a batch never waits behind a sidecar that is slow to hear of versions and canaries.
        self._announcer = Workers(1)
        self._version_errand = Errand(self._announcer, self._say_version)
        self._scores_errand = Errand(self._announcer, self._say_scores)
        self._link = Link(settings, backoff, lambda: self._tally.missed)
        self._reports = Reports(settings, self._link, self._tally)
        self._in_flight: set[Future[ClipBounds]] = set()
        self._logged: set[MissKind] = set()
        self._canary_refused = False
        self._has_failed = False

    @property
    def stats(self) -> ClientStats:
        """What it has done so far."""
        return self._tally.read(self._link.state, self._link.server)

    @property
    def has_spoken(self) -> bool:
        """Whether the sidecar may have heard of this rank from here."""
        return self._link.has_spoken

    def submit(self, batch: Microbatch, caller: CallerStream | None) -> Future[ClipBounds]:
        """Bound a batch in a worker; the batch is nobody else's."""
        numbered = self._numbered(batch)
        if caller is None:
            future = self._workers.submit(lambda: self._bound(numbered))
        else:
            future = self._workers.submit(lambda: caller.run_aside(batch.tensors(), lambda: self._bound(numbered)))
        self._in_flight.add(future)
        future.add_done_callback(self._in_flight.discard)
        return future

    def bound(self, batch: Microbatch) -> ClipBounds:
        """Return a batch's bounds, from the sidecar or without it.

        Raises:
            SatwatchError: the sidecar's answer is missing and ``on_failure`` is ``raise``.
        """
        return self._bound(self._numbered(batch))

    def publish_version(self, version: int) -> None:
        """Say a published version: in a worker, or, where ``on_failure`` is ``raise``, at once.

        Raises:
            SatwatchError: it was refused or not heard, and ``on_failure`` is ``raise``.
        """
        self._link.publish(version)
        if self.settings.on_failure == "raise":
            try:
                self._link.say_version(self._deadline())
            except Missed as miss:
                raise miss.again().error from None
        else:
            self._version_errand.run_soon()

    def report_canary(self, scores: CanaryScores) -> None:
        """Say how the trainer scores the canary: in a worker, or, where ``on_failure`` is ``raise``, at once.

        Raises:
            SatwatchError: it was refused or not heard, and ``on_failure`` is ``raise``.
        """
        self._link.report(scores)
        if self.settings.on_failure != "raise":
            if not self._scores_errand.run_soon():
                self._tally.canary(heard=False)  # these overtake scores that nobody has heard
        elif (miss := self._say_scores()) is not None:
            raise miss.again().error

    def report(self, step: int, measures: Mapping[str, Total]) -> None:
        """Say sums of a step: in a worker, or, where ``on_failure`` is ``raise``, at once.

        Raises:
            SatwatchError: they were refused or not heard, and ``on_failure`` is ``raise``.
        """
        self._reports.add(self._report(step, measures=measures))

    def end_step(self, step: int) -> None:
        """Say, as :meth:`report` does, that a step has no more batches, once those in flight are answered.

        Raises:
            SatwatchError: it was refused or not heard, and ``on_failure`` is ``raise``.
        """
        self._reports.add(self._report(step, ended=True), self._in_flight.copy())

    def server_info(self) -> ServerInfo:
        """Ask the sidecar what it is.

        Raises:
            SatwatchError: no answer in time.
        """
        deadline = self._deadline()
        try:
            connection = self._link.acquire(deadline)
            try:
                return connection.server_info(deadline)
            except Missed as miss:
                self._link.missed(connection, miss)
                raise
        except Missed as miss:
            raise miss.again().error from None

    def finish(self) -> None:
        """Wait for what has been reported to be said, no longer than one call may take."""
        self._reports.finish()

    @property
    def owes_its_end(self) -> bool:
        """Whether it has spoken for its rank and not said yet that it sends nothing more."""
        return self.has_spoken and not self._is_guest and not self._has_parted

    def part(self, deadline: Deadline) -> None:
        """Send nothing more, and say so, unless another process speaks for this rank.

        What is in flight is answered first, if it is soon: a batch that came after the run's end would open it again.
        """
        self._link.shut()
        with self._parting:  # of two that close at once, neither ends the connection before it is said
            if self.owes_its_end:
                self._has_parted = True
                patience = Deadline.after(deadline.remaining / 2)
                wait(self._in_flight.copy(), patience.remaining)
                self._link.wait_returned(patience.remaining)
                self._link.say_closed(deadline)

    def close(self) -> None:
        """End the connection, then the threads, whose calls end with it."""
        self._link.close()
        self._workers.close()
        self._announcer.close()
        self._reports.close()

    def _report(self, step: int, *, measures: Mapping[str, Total] | None = None, ended: bool = False) -> StepReport:
        opening = self.settings.opening
        return StepReport(opening.run, step, opening.incarnation, opening.rank, measures or {}, ended)

    def _deadline(self) -> Deadline:
        return Deadline.after(self.settings.timeout)

    def _numbered(self, batch: Microbatch) -> Microbatch:
        if batch.step is None or batch.microbatch is not None:
            return batch
        return replace(batch, microbatch=self._numbering.take(batch.step))

    def _bound(self, batch: Microbatch) -> ClipBounds:
        # No local name keeps a miss: its traceback would keep this frame, and so the batch, until a garbage collection.
        try:
            return self._ask(batch)
        except Missed as miss:
            return self._fall_back(batch, miss)
        except Exception as error:  # noqa: BLE001 - the client's edge: no fault in here may stop the trainer
            return self._fall_back(batch, Missed(UnavailableError(f"{type(error).__name__}: {error}"), "client"), error)

    def _ask(self, batch: Microbatch) -> ClipBounds:
        rule, deadline = self.settings.opening.rule, self._deadline()
        with self._link.batch(deadline) as connection:
            scores = score_batch(batch.log_ratio, rule, batch.mask, batch.sequence_lengths)
            request = self._encode(batch, scores, connection.server)
            began = time.perf_counter()
            bounds = accept(self._send(connection, request, deadline), rule, scores)
            self._tally.answered(time.perf_counter() - began)
            return bounds

    def _send(self, connection: Connection, request: bytes, deadline: Deadline) -> BoundsReply:
        try:
            return connection.compute_bounds(request, deadline)
        except Missed as miss:
            if not isinstance(miss.error, UnknownRunError):
                raise
        # The sidecar has started again, or another life of the run has come and gone.
        self._link.open_run(connection, deadline)
        return connection.compute_bounds(request, deadline)

    def _encode(self, batch: Microbatch, scores: Scores, server: ServerInfo | None) -> bytes:
        """Make the request's bytes, unless the sidecar has said that it does not take as many."""
        tokens = scores.layout.tokens
        # Looked at twice: packing what is too large already costs what the refusal saves.
        _check_size(server, tokens, tokens * batch.log_ratio.element_size())
        opening = self.settings.opening
        request = BoundsRequest(
            run=opening.run,
            batch=batch.pack(scores),
            incarnation=opening.incarnation,
            rank=opening.rank,
            step=batch.step,
            microbatch=batch.microbatch,
            policy_version=batch.policy_version,
            routing=batch.routing,
            rule_only=True,
            client_fallbacks=self._tally.fallbacks,
        )
        data = wire.encode_request(request).SerializeToString()
        _check_size(server, tokens, len(data))
        return data

    def _fall_back(self, batch: Microbatch, reason: Missed, fault: Exception | None = None) -> ClipBounds:
        self._log_once(reason, fault)
        if self.settings.on_failure == "raise":
            self._tally.raised(reason.kind)
            raise reason.again().error from fault
        bounds, kind = self._bound_here(batch, reason.kind)
        self._tally.fell_back(kind)
        return bounds

    def _bound_here(self, batch: Microbatch, kind: MissKind) -> tuple[ClipBounds, MissKind]:
        """Return bounds made without the sidecar, and what to count."""
        rule = self.settings.opening.rule
        if self.settings.on_failure == "local":
            try:
                return local_bounds(batch, rule), kind
            except Exception as error:
                kind = "client"
                if not self._has_failed:
                    self._has_failed = True
                    message = "No bounds could be computed here (%s); batches get PPO's interval, and are only counted."
                    logger.warning(message, f"{type(error).__name__}: {error}", exc_info=error)
        return nominal_bounds(batch.log_ratio, rule), kind

    def _log_once(self, reason: Missed, fault: Exception | None) -> None:
        if reason.kind in _LOGGED_ONCE and reason.kind not in self._logged:
            self._logged.add(reason.kind)
            message = "A batch is bounded without the sidecar (%s: %s); further ones of this kind are only counted."
            logger.warning(message, reason.kind, str(reason), exc_info=fault)

    def _say_version(self) -> None:
        try:
            self._link.say_version(self._deadline())
        except Missed as miss:
            # Anything else is the breaker's to say, and the version is said again when the run is opened again.
            if isinstance(miss.error, VersionOrderError):
                logger.warning("The sidecar refused a published version: %s.", str(miss))

    def _say_scores(self) -> Missed | None:
        try:
            self._link.say_scores(self._deadline())
        except Missed as miss:
            self._tally.canary(heard=False)
            if miss.kind not in _EXPLAINED and not self._canary_refused:
                self._canary_refused = True
                message = "The sidecar did not take the canary's scores (%s: %s); further refusals are only counted."
                logger.warning(message, miss.kind, str(miss))
            return miss.again()
        self._tally.canary(heard=True)
        return None


def _check_size(server: ServerInfo | None, tokens: int, size: int) -> None:
    """Refuse a batch above what the sidecar said it takes; it would be sent in vain."""
    if server is None:
        return
    for name, came, limit in (
        ("max_tokens", tokens, server.max_tokens),
        ("max_message_bytes", size, server.max_message_bytes),
    ):
        if 0 < limit < came:
            raise Missed(
                OverloadedError(required("log_ratio", came, f"at most {limit}, the sidecar's {name}")), "too_large"
            )
