"""OpenRLHF: SAT in the actor's ``PolicyLoss``, by hooks on its forward.

Sends d = log pi_now - log mu, ``log_probs`` minus ``rollout_log_probs``: the policy in the forward pass against vLLM.
``PolicyLoss`` clips pi_now/pi_old and may weigh that by pi_old/mu. With the rule enabled it gets mu in the place of
pi_old and no weight: it clips pi_now/mu, the ratio that d is. Where the correction also drops tokens, the loss keeps
its ratio and its weight, and the run is reported as decoupled.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final, TypeAlias

import torch

from satwatch.client import BoundsClient
from satwatch.client.batch import BatchContext
from satwatch.errors import ConfigError, required
from satwatch.hooks.core.attachment import Attachment
from satwatch.hooks.core.denominator import denominator
from satwatch.hooks.core.heartbeat import Heartbeat
from satwatch.hooks.core.notices import Notices
from satwatch.hooks.core.ranks import at_rank
from satwatch.hooks.core.settings import distributed_rank
from satwatch.hooks.core.slots import lent

# OpenRLHF ships no types: its ActorPPOTrainer and its PolicyLoss.
Trainer: TypeAlias = Any
PolicyLoss: TypeAlias = Any
Arguments: TypeAlias = Mapping[str, Any]

_NO_BEHAVIOR: Final = (
    "no rollout_log_probs, so there is nothing to compare: nothing is sent and the stock loss runs. vLLM returns them "
    "where the importance-sampling correction is on: --algo.advantage.is_correction_level token (before 0.11.2, "
    "--algo.advantage.is_correction_enable)."
)
_NO_WEIGHT: Final = (
    "the guarded loss has vLLM's own log-probs in the place of the old policy's, and no importance-sampling weight, "
    "which would correct a second time."
)


class Installed:
    """A trainer's policy loss, with satwatch beside it; it attaches at its first call."""

    def __init__(self, trainer: Trainer, client: BoundsClient | None = None) -> None:
        """Hook into the trainer's loss; :func:`install` does so once a trainer."""
        self.trainer = trainer
        self._client = client
        self._attachment: Attachment | None = None
        self._heartbeat = Heartbeat("OpenRLHF")  # from now on: a loss that is never called must show
        self._notices = Notices("OpenRLHF")
        self._lent = ExitStack()
        # What the untouched loss says of pi_old against mu, while it runs on data that has mu twice.
        self._mismatch: tuple[Any, ...] | None = None
        loss_fn = trainer.actor_loss_fn
        self._signature = inspect.signature(loss_fn.forward)
        self._handles = [
            loss_fn.register_forward_pre_hook(self._before, with_kwargs=True),
            loss_fn.register_forward_hook(self._after, always_call=True),
        ]
        self._stock_train = trainer.ppo_train
        trainer.ppo_train = self._train

    def uninstall(self) -> None:
        """Leave the trainer as it was."""
        for handle in self._handles:
            handle.remove()
        self.trainer.ppo_train = self._stock_train
        self._heartbeat.close()
        if self in _installed:
            _installed.remove(self)

    def metrics(self) -> dict[str, float]:
        """Return ``satwatch/...`` metrics since the last call; ``ppo_train`` puts them in its status by itself."""
        return {} if self._attachment is None else self._attachment.drain()

    def _train(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # noqa: ANN401 - OpenRLHF's
        return {**self._stock_train(*args, **kwargs), **self.metrics()}

    def _before(
        self, loss_fn: PolicyLoss, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        self._after(loss_fn, args, None)  # an interrupt, which that hook does not see, may have left something
        call = self._signature.bind(*args, **kwargs)
        behavior = call.arguments.get("rollout_log_probs")
        if behavior is None:
            self._heartbeat.call()
            self._notices.give(_NO_BEHAVIOR)
            return None
        attachment = self._attachment = self._attachment or self._attach(loss_fn)
        now = call.arguments["log_probs"]
        hands_mu = attachment.guards and not _drops_tokens(loss_fn) and behavior.shape == now.shape
        is_coupled = hands_mu or (_is_gspo(loss_fn) and bool(_correction_off(loss_fn)))  # whose ratio is pi_now/mu
        radii = attachment.ask(now, behavior, decoupled=not is_coupled, **self._context(call.arguments))
        if not attachment.guards:
            return None
        if hands_mu:
            self._notices.give(_NO_WEIGHT)
            with torch.no_grad():  # the answer comes meanwhile: the radii are looked at below
                self._mismatch = loss_fn.forward(*args, **kwargs)[3:]
            old, mask = call.arguments["old_log_probs"], call.arguments.get("action_mask")
            active = torch.ones_like(old) if mask is None else mask
            call.arguments["old_log_probs"] = denominator(now.detach(), behavior, old, active)
            self._lent.enter_context(lent(loss_fn, **_correction_off(loss_fn)))
        self._lent.enter_context(lent(loss_fn, clip_eps_low=radii.low, clip_eps_high=radii.high))
        return call.args, call.kwargs

    def _after(self, loss_fn: PolicyLoss, args: object, output: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        """Put everything back, whether the loss returned or raised."""
        self._lent.close()
        mismatch, self._mismatch = self._mismatch, None
        return None if output is None or mismatch is None else (*output[:3], *mismatch)

    def _context(self, arguments: Arguments) -> BatchContext:
        context: BatchContext = {"mask": arguments.get("action_mask"), "advantage": arguments["advantages"]}
        train = getattr(getattr(self.trainer, "args", None), "train", None)
        if not getattr(train, "async_enable", True):
            # The trainer scores rollouts before it trains on them: in turns with vLLM, with the weights they came from.
            context["reference_logprob"] = arguments["old_log_probs"]
        return context

    def _attach(self, loss_fn: PolicyLoss) -> Attachment:
        rank, ranks, sends = place(self.trainer.strategy)
        return Attachment(
            "OpenRLHF",
            at_rank(self._client, rank, ranks),
            eps_low=loss_fn.clip_eps_low,
            eps_high=loss_fn.clip_eps_high,
            level="sequence" if _is_gspo(loss_fn) else "token",
            rank=rank,
            world_size=ranks,
            sends=sends,
            heartbeat=self._heartbeat,
        )


_installed: list[Installed] = []


def install(actor: Trainer, client: BoundsClient | None = None) -> Installed:
    """Attach to the policy loss of an actor's trainer; once, however often it is called.

    Args:
        actor: an ``ActorPPOTrainer``, or the ``PolicyModelActor`` that has one.
        client: what to ask; None: the process's, else one from the environment. One that several ranks are given is
            given each one's rank.

    Returns:
        What is installed: ``.uninstall()`` leaves the trainer as it was.

    Raises:
        ConfigError: no such actor, or another client than the one that is installed already.
    """
    trainer = actor if hasattr(actor, "actor_loss_fn") else getattr(actor, "trainer", None)
    if not hasattr(trainer, "actor_loss_fn"):
        needed = "an ActorPPOTrainer, or a PolicyModelActor whose model is initialized"
        raise ConfigError(required("actor", type(actor).__name__, needed))
    for handle in _installed:
        if handle.trainer is trainer:
            if client is not None and client is not handle._client:
                raise ConfigError(required("client", "a second one", "the installed one: uninstall() comes first"))
            return handle
    _installed.append(Installed(trainer, client))
    return _installed[-1]


def place(strategy: Any) -> tuple[int, int, bool]:  # noqa: ANN401 - OpenRLHF's
    """Return the data-parallel rank, how many there are, and whether this process is the one of its rank that sends.

    Args:
        strategy: a ``DeepspeedStrategy``; without a mesh, torch.distributed is asked.
    """
    mesh = getattr(strategy, "ds_device_mesh", None)
    if mesh is None:
        rank, ranks = distributed_rank()
        return rank, ranks, True
    # Ring attention and tensor parallelism: each rank has the log-probs of whole sequences.
    sends = mesh.get_local_rank("sp") == 0 and mesh.get_local_rank("tp") == 0
    return mesh.get_local_rank("dp"), mesh["dp"].size(), sends


def _is_gspo(loss_fn: PolicyLoss) -> bool:
    return getattr(loss_fn, "policy_loss_type", "ppo") == "gspo"


def _correction_off(loss_fn: PolicyLoss) -> dict[str, object]:
    """Return the attributes that turn the importance-sampling correction off; none where it is off."""
    if getattr(loss_fn, "is_correction_level", "off") != "off":
        return {"is_correction_level": "off"}
    if getattr(loss_fn, "enable_vllm_is_correction", False):  # before 0.11.2
        return {"enable_vllm_is_correction": False}
    return {}


def _drops_tokens(loss_fn: PolicyLoss) -> bool:
    """Whether the correction filters tokens by pi_old/mu, which no clipping replaces; GSPO's does not."""
    if _is_gspo(loss_fn) or not _correction_off(loss_fn):
        return False
    is_filter = getattr(loss_fn, "is_correction_mode", "clip") != "clip"
    return is_filter or getattr(loss_fn, "vllm_is_correction_type", "tis") != "tis"
