"""What every hook does with a microbatch: ask for its bounds, hand out radii, count, and never get in the way."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Literal, Unpack, cast

import torch

from satwatch.client import BoundsClient, Microbatch
from satwatch.client.batch import BatchContext, BatchFields, read_microbatch
from satwatch.client.fallback import local_bounds, nominal_bounds
from satwatch.client.tensors import Floats, read_tensor
from satwatch.errors import ConfigError, InvalidBatchError, SatwatchError, required
from satwatch.hooks.core.eager import not_compiled
from satwatch.hooks.core.heartbeat import Heartbeat
from satwatch.hooks.core.metrics import PREFIX, MicrobatchMetrics
from satwatch.hooks.core.radii import ClipRadii
from satwatch.hooks.core.settings import client_for
from satwatch.sat import ClipBounds
from satwatch.types import Rule

logger = logging.getLogger("satwatch")

# What the bounds need; a field beyond these that can't be read costs its own metrics and no more.
_ESSENTIAL: Final = frozenset({"mask", "sequence_lengths"})
_FAULTS_SAID: Final = 16
# Answers that nobody has looked at, each with its batch: more are not waited for, and missing in the metrics.
_PENDING: Final = 32


class Attachment:
    """One hook in one trainer rank.

    A fault of satwatch is not the run's: a field that can't be read is left out, a batch that can't be sent is bounded
    here, and one that can't be bounded gets PPO's interval, the trainer's own; all are counted and said once. Only an
    error in the set-up raises, and, with a client of ``on_failure="raise"``, a missing answer.

    Forked, pickled and copied it goes on with counts of its own; a deep copy shares its client.
    """

    def __init__(
        self,
        trainer: str,
        client: BoundsClient | None = None,
        *,
        eps_low: float | None = None,
        eps_high: float | None = None,
        level: Literal["token", "sequence"] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        run: str | None = None,
        sends: bool = True,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        """Attach; nothing is sent before the first batch.

        Args:
            trainer: its name, for the log.
            client: what to ask; None: the process's, else the environment's (:mod:`satwatch.hooks.core.settings`).
            eps_low: the trainer's own lower clip radius; None: whatever the client has.
            eps_high: the trainer's own upper clip radius; None: whatever the client has.
            level: what the trainer's ratio is taken over; None: either.
            rank: the data-parallel rank; None: torch.distributed's.
            world_size: data-parallel ranks; None: torch.distributed's.
            run: the run's name, where neither client nor environment names one.
            sends: False on ranks that hold the tokens of another one, such as tensor-parallel peers: they compute the
                same bounds from the same rule and send nothing. Such a rank can't know of the other's misses, so
                ``on_failure="nominal"`` is refused.
            heartbeat: one that counts already, as where a hook listens before its loss is called; None: one of its own.

        Raises:
            ConfigError: no run; or a client whose radii, level or rank are not the trainer's, or whose misses the peers
                of a rank can't share.
        """
        checks = {"eps_low": eps_low, "eps_high": eps_high, "level": level, "rank": rank, "world_size": world_size}
        self._made_with: dict[str, Any] = {"trainer": trainer, "run": run, "sends": sends, **checks}
        self._given = client
        self.trainer = trainer
        self.client = client_for(
            eps_low=eps_low, eps_high=eps_high, given=client, rank=rank, world_size=world_size, run=run, level=level
        )
        if not sends and getattr(self.client, "on_failure", "local") == "nominal":
            requirement = "'local': ranks that hold the same tokens would bound them differently"
            raise ConfigError(required("on_failure", "'nominal'", requirement))
        self.heartbeat = Heartbeat(trainer) if heartbeat is None else heartbeat
        self._sends = sends
        self._metrics = MicrobatchMetrics()
        self._pending: list[ClipRadii] = []
        self._decoupled = False
        self._faults = 0
        self._said: set[str] = set()
        self._process = os.getpid()

    def __reduce__(self) -> tuple[Callable[..., Attachment], tuple[type[Attachment], dict[str, Any], Any]]:
        return _made_again, (type(self), self._made_with, self._given)

    def __deepcopy__(self, memo: dict[int, Any]) -> Attachment:
        return _made_again(type(self), self._made_with, self.client)

    @property
    def rule(self) -> Rule:
        """The rule that the bounds follow."""
        return self.client.rule

    @property
    def guards(self) -> bool:
        """Whether the loss is to use the radii; if not, satwatch only watches, and the stock loss runs untouched."""
        return self.rule.enabled

    @not_compiled
    def ask(
        self,
        logprob: Floats,
        behavior_logprob: Floats,
        *,
        decoupled: bool = False,
        **batch: Unpack[BatchContext],
    ) -> ClipRadii:
        """Send a microbatch, and return its radii before the answer is there.

        Args:
            logprob: log pi of the sampled tokens, nats: (B, T); (N,); or a list with one 1-d tensor a sequence, whose
                radii come back flat. Its gradient is left alone.
            behavior_logprob: log mu, what the rollout engine gave them, in the same form. The difference, logprob -
                behavior_logprob, is the log-ratio: above 0 where the trainer likes the token better than the engine.
            decoupled: whether the loss's own ratio has another denominator than mu: its outward side is then not the
                log-ratio's.
            batch: what else is known; :meth:`satwatch.client.Client.clip_bounds` says what may be. Without ``step`` the
                heartbeat counts optimizer steps.

        Returns:
            Radii in logprob's shape and on its device.

        Raises:
            SatwatchError: only with a client of ``on_failure="raise"``, at the first look at the radii.

        Reads no number of a tensor in the calling thread, so it waits for no device.
        """
        step = self.heartbeat.call()
        self._decoupled = decoupled
        try:
            self._settle()
            radii = self._asked(logprob, behavior_logprob, cast(BatchFields, {"step": step, **batch}))
        except Exception as error:  # noqa: BLE001 - the hook's edge: no fault of ours may end a run, see docs/decisions.md
            self._fault(error)
            return _nominal_radii(logprob, self.rule)
        self._pending.append(radii)
        return radii

    @not_compiled
    def drain(self) -> dict[str, float]:
        """Return ``satwatch/...`` metrics of the microbatches since the last call, for the trainer's own logger.

        What has no value is absent. Waits for answers that are still on their way, and for the tensors' device, once.

        Raises:
            SatwatchError: only with a client of ``on_failure="raise"``: an answer is missing that nobody looked at.
        """
        self._after_fork()
        pending, self._pending = self._pending, []
        for radii in pending:
            _ = radii.bounds
        own: dict[str, float | None] = {"hook_calls_per_step": self.heartbeat.calls_last_step}
        out: dict[str, float] = {}
        try:
            out = self._metrics.read()
            stats = self.client.stats
            own |= {"client_fallbacks": stats.bounds_from_fallback, "breaker_open": stats.breaker != "closed"}
        except Exception as error:  # noqa: BLE001 - the hook's edge, as above
            self._fault(error)
        self._metrics.clear()
        own |= {"hook_faults": self._faults, "decoupled": self._decoupled}
        return out | {PREFIX + name: float(value) for name, value in own.items() if value is not None}

    def _asked(self, logprob: Floats, behavior_logprob: Floats, fields: BatchFields) -> ClipRadii:
        """Hand a batch over, and return radii that wait for its bounds."""
        ours, rows = read_tensor("logprob", logprob)
        theirs, _ = read_tensor("behavior_logprob", behavior_logprob)
        log_ratio = subtract(ours, theirs)
        fields.setdefault("behavior_logprob", theirs)
        if rows is not None:
            fields.setdefault("sequence_lengths", rows)
        rule = self.rule
        fields, batch = self._readable(log_ratio, rule, fields)
        self._count(lambda: self._metrics.add_batch(batch))
        return self._sent(log_ratio, rule, fields, _needed(batch))

    def _readable(self, log_ratio: torch.Tensor, rule: Rule, fields: BatchFields) -> tuple[BatchFields, Microbatch]:
        """Return the fields that can be read, and the batch that they make.

        Raises:
            InvalidBatchError: what the bounds need can't be read.
        """
        try:
            return fields, read_microbatch(log_ratio, rule.level, **fields)
        except Exception:  # noqa: BLE001 - the hook's edge, as below: which field it is, and what to say, is found there
            kept = {name: value for name, value in fields.items() if name in _ESSENTIAL}
            batch = read_microbatch(log_ratio, rule.level, **cast(BatchFields, kept))
        for name, value in fields.items():
            tried = cast(BatchFields, {**kept, name: value})
            try:
                batch = read_microbatch(log_ratio, rule.level, **tried)
            except Exception as error:  # noqa: BLE001 - the hook's edge, as above: whatever a field raises, it costs itself
                self._fault(error)
            else:
                kept[name] = value
        return cast(BatchFields, kept), batch

    def _sent(self, log_ratio: torch.Tensor, rule: Rule, fields: BatchFields, needed: Microbatch) -> ClipRadii:
        wait, process = self._submitted(log_ratio, rule, fields, needed), os.getpid()

        def resolve() -> ClipBounds:
            try:
                # A fork leaves the threads behind that would have brought the answer.
                bounds = wait.result() if os.getpid() == process else local_bounds(needed, rule)
                _check(bounds, log_ratio)
            except SatwatchError:
                raise
            except Exception as error:  # noqa: BLE001 - the hook's edge, as above
                self._fault(error)
                bounds = self._bounded_here(needed, rule)
            self._count(lambda: self._metrics.add_bounds(needed, bounds))
            return bounds

        return ClipRadii(resolve, lambda: _has_result(wait))

    def _submitted(
        self, log_ratio: torch.Tensor, rule: Rule, fields: BatchFields, needed: Microbatch
    ) -> Future[ClipBounds]:
        if self._sends:
            try:
                return self.client.submit(log_ratio, **fields)
            except Exception as error:  # noqa: BLE001 - the hook's edge, as above
                self._fault(error)
        here: Future[ClipBounds] = Future()
        here.set_result(self._bounded_here(needed, rule))
        return here

    def _bounded_here(self, needed: Microbatch, rule: Rule) -> ClipBounds:
        try:
            return local_bounds(needed, rule)
        except Exception as error:  # noqa: BLE001 - the hook's edge, as above
            self._fault(error)
            return nominal_bounds(needed.log_ratio, rule)

    def _settle(self) -> None:
        """Take in the answers that have arrived, so that batches whose radii no loss looks at are not kept."""
        self._after_fork()
        waiting = []
        for radii in self._pending:
            if not radii.has_arrived:
                waiting.append(radii)
            elif not radii.is_resolved:
                _ = radii.bounds
        self._pending = waiting[-_PENDING + 1 :]

    def _after_fork(self) -> None:
        """Forget, in a child, what is its parent's to report."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._pending = []
            self._metrics.clear()

    def _count(self, add: Callable[[], None]) -> None:
        try:
            add()
        except Exception as error:  # noqa: BLE001 - the hook's edge, as above: the bounds are good all the same
            self._fault(error)

    def _fault(self, error: Exception) -> None:
        self._faults += 1
        what = f"{type(error).__name__}: {error}"
        # By what is wrong, not by what came: shapes change with every batch.
        kind = f"{type(error).__name__}: {str(error).partition(':')[0]}"
        if kind not in self._said and len(self._said) < _FAULTS_SAID:
            self._said.add(kind)
            logger.warning(
                "satwatch, %s: a microbatch could not be used as it is; the run goes on: %s", self.trainer, what
            )


def _made_again(kind: type[Attachment], made_with: dict[str, Any], client: BoundsClient | None) -> Attachment:
    return kind(client=client, **made_with)


def subtract(logprob: torch.Tensor, behavior_logprob: torch.Tensor) -> torch.Tensor:
    """Return the log-ratio, log pi - log mu, detached: float64 if either is, else float32.

    Raises:
        InvalidBatchError: two shapes.
    """
    if logprob.shape != behavior_logprob.shape:
        came = f"shape {tuple(behavior_logprob.shape)}"
        raise InvalidBatchError(required("behavior_logprob", came, f"{tuple(logprob.shape)}, logprob's"))
    ours, theirs = logprob.detach(), behavior_logprob.detach().to(logprob.device)
    dtype = torch.float64 if torch.float64 in (ours.dtype, theirs.dtype) else torch.float32
    return ours.to(dtype) - theirs.to(dtype)


def _needed(batch: Microbatch) -> Microbatch:
    """Keep what the bounds need, safe from what the trainer does to its mask meanwhile."""
    mask = None if batch.mask is None else batch.mask.clone()
    return Microbatch(batch.log_ratio, mask=mask, sequence_lengths=batch.sequence_lengths)


def _check(bounds: ClipBounds, log_ratio: torch.Tensor) -> None:
    """Refuse bounds that are not this batch's.

    Raises:
        TypeError: other bounds than one a token.
    """
    if not bounds.low.shape == bounds.high.shape == bounds.gate.shape == log_ratio.shape:
        raise TypeError(required("bounds", f"shape {tuple(bounds.low.shape)}", f"{tuple(log_ratio.shape)}"))


def _has_result(future: Future[ClipBounds]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _nominal_radii(logprob: object, rule: Rule) -> ClipRadii:
    """Return the trainer's own radii, in the shape of log-probs that nothing else could be done with."""
    like = torch.empty(())  # one number fits every shape
    if isinstance(logprob, torch.Tensor) and logprob.layout == torch.strided and not logprob.is_nested:
        like = logprob.detach()  # which lets the forward pass go
    return ClipRadii(lambda: nominal_bounds(like, rule))
